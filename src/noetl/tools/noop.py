"""Does nothing; its data is what it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from noetl.dsl.tasks import Noop
from noetl.dsl.views import Outcome
from noetl.tools.base import Traits

if TYPE_CHECKING:
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext


class NoopTool:
    """The kind `noop`."""

    kind: ClassVar[str] = "noop"
    Config: ClassVar[type[Task]] = Noop
    traits: ClassVar[Traits] = Traits(side_effects=False)

    async def run(self, config: Noop, ctx: ToolContext) -> Outcome:
        """Return the result, the message, or `{status: ok}`."""
        del ctx
        given = config.result if config.result is not None else config.message
        return Outcome(data={"status": "ok"} if given is None else given)

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing to stop."""
