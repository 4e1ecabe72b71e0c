"""Other playbooks as tasks of a pipeline: the task parks until its children returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.tasks import PlaybookCall, Playbooks
from noetl.tools.base import Parked, ToolError, Traits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks.calls import PlaybookItem
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext


class PlaybookTool:
    """The kind `playbook`."""

    kind: ClassVar[str] = "playbook"
    Config: ClassVar[type[Task]] = PlaybookCall
    traits: ClassVar[Traits] = Traits(parks=True)

    async def run(self, config: PlaybookCall, ctx: ToolContext) -> Parked:
        """Ask for one child; its workload is the task's input."""
        child = _child(config, ctx.input, config.pool) | {
            "return_step": config.return_step,
            "dedup_key": config.dedup_key,
        }
        is_awaited = config.wait not in {False, "false"}
        return _parked([child], ctx, many=False, best_effort=False, wait=is_awaited)

    async def cancel(self, ctx: ToolContext) -> None:
        """The children of a cancelled run are ended by the server."""


class PlaybooksTool:
    """The kind `playbooks`."""

    kind: ClassVar[str] = "playbooks"
    Config: ClassVar[type[Task]] = Playbooks
    traits: ClassVar[Traits] = Traits(parks=True)

    async def run(self, config: Playbooks, ctx: ToolContext) -> Parked:
        """Ask for all children together."""
        if isinstance(config.items, str):
            raise ToolError("config", "invalid_config", "/items: must be a list of children")
        children = [_child(item, item.input, config.pool) for item in config.items]
        return _parked(children, ctx, many=True, best_effort=config.best_effort, wait=True)

    async def cancel(self, ctx: ToolContext) -> None:
        """The children of a cancelled run are ended by the server."""


def parked_for(path: str, workload: Mapping[str, Any], ctx: ToolContext) -> Parked:
    """Wait for one playbook, for kinds that make something of its result."""
    child = {
        "path": path,
        "catalog_id": None,
        "version": None,
        "workload": dict(workload),
        "pool": None,
        "return_step": None,
        "dedup_key": None,
    }
    return _parked([child], ctx, many=False, best_effort=False, wait=True)


def _child(
    about: PlaybookCall | PlaybookItem, workload: Mapping[str, Any], pool: str | None
) -> dict[str, Any]:
    catalog_id = about.catalog_id
    return {
        "path": about.path,
        "catalog_id": None if catalog_id is None else str(catalog_id),
        "version": about.version,
        "workload": dict(workload),
        "pool": pool,
        "return_step": None,
        "dedup_key": None,
    }


def _parked(
    children: list[dict[str, Any]], ctx: ToolContext, *, many: bool, best_effort: bool, wait: bool
) -> Parked:
    request = {
        "children": children,
        "many": many,
        "best_effort": best_effort,
        "wait": wait,
        "timeout_s": ctx.timeout_s,
    }
    return Parked(reason="child", request=request)
