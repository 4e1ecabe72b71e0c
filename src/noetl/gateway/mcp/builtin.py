"""Tools that every server of ours has: looking at runs and at the catalog, as the caller may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.catalog import CatalogQuery, Validate
from noetl.api.executions import Control

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.api.client import Client

    Run = Callable[[Client, Mapping[str, Any]], Awaitable[Any]]

_ID: Final = {"type": "string", "pattern": "^[0-9]{1,19}$", "description": "The id of a run."}
_CURSOR: Final = {"type": "string", "description": "Where the page before ended."}
_STATUSES: Final = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")


class Builtin(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is no playbook."""

    name: str
    title: str
    description: str
    takes: dict[str, Any]
    run: Any
    """Asks the server, as the caller."""
    is_reader: bool = True

    def shown(self) -> dict[str, Any]:
        """As a list shows it."""
        hints = {"readOnlyHint": self.is_reader, "openWorldHint": False}
        if not self.is_reader:
            hints |= {"destructiveHint": True, "idempotentHint": True}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.takes,
            "annotations": hints,
        }


def _takes(required: tuple[str, ...] = (), **properties: object) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        made["required"] = list(required)
    return made | {"additionalProperties": False}


def _limit(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": min(50, most)}


async def _list_executions(client: Client, asked: Mapping[str, Any]) -> object:
    return await client.executions(**{"limit": 50, **asked})


async def _get_execution(client: Client, asked: Mapping[str, Any]) -> object:
    return await client.execution(asked["execution_id"], with_state=False)


async def _get_events(client: Client, asked: Mapping[str, Any]) -> object:
    after, limit = asked.get("after_seq", 0), asked.get("limit", 50)
    return await client.events(asked["execution_id"], after, limit)


async def _cancel_execution(client: Client, asked: Mapping[str, Any]) -> object:
    body = Control(reason=asked.get("reason", ""), cascade=asked.get("cascade", True))
    return await client.cancel(asked["execution_id"], body)


async def _validate_playbook(client: Client, asked: Mapping[str, Any]) -> object:
    return await client.validate(Validate(content=asked["content"]))


async def _search_catalog(client: Client, asked: Mapping[str, Any]) -> object:
    return await client.catalog(
        CatalogQuery(
            q=asked.get("query"),
            resource_type=asked.get("kind"),
            limit=asked.get("limit", 50),
            cursor=asked.get("cursor"),
        )
    )


def _builtin(
    name: str, description: str, takes: dict[str, Any], run: Run, *, is_reader: bool = True
) -> Builtin:
    return Builtin(
        name=f"noetl_{name}",
        title=name.replace("_", " ").capitalize(),
        description=description,
        takes=takes,
        run=run,
        is_reader=is_reader,
    )


BUILTINS: Final[Mapping[str, Builtin]] = {
    one.name: one
    for one in (
        _builtin(
            "list_executions", "Lists runs of playbooks, the newest first.",
            _takes(status={"type": "string", "enum": list(_STATUSES)},
                   path={"type": "string", "description": "Runs of this playbook."},
                   limit=_limit(200), cursor=_CURSOR), _list_executions,
        ),
        _builtin(
            "get_execution", "Tells how a run is, and its result.",
            _takes(("execution_id",), execution_id=_ID), _get_execution,
        ),
        _builtin(
            "get_events", "Tells what has happened in a run, in order.",
            _takes(("execution_id",), execution_id=_ID, limit=_limit(200),
                   after_seq={"type": "integer", "minimum": 0, "default": 0}), _get_events,
        ),
        _builtin(
            "cancel_execution", "Ends a run, and the runs that it started.",
            _takes(("execution_id",), execution_id=_ID, reason={"type": "string"},
                   cascade={"type": "boolean", "default": True}), _cancel_execution,
            is_reader=False,
        ),
        _builtin(
            "validate_playbook", "Checks the text of a playbook; keeps nothing.",
            _takes(("content",), content={"type": "string", "description": "YAML."}),
            _validate_playbook,
        ),
        _builtin(
            "search_catalog", "Finds documents by path, name or description.",
            _takes(query={"type": "string"}, kind={"type": "string"}, limit=_limit(200),
                   cursor=_CURSOR), _search_catalog,
        ),
    )
}  # fmt: skip
