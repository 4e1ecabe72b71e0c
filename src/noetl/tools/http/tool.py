"""Sends HTTP requests; the client is imported with the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from noetl.dsl.tasks import Http
from noetl.tools.base import Traits
from noetl.tools.http.egress import Egress, Guard, resolve
from noetl.tools.http.identity import Identities
from noetl.tools.http.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.clock import Clock
    from noetl.dsl.tasks.task import Task
    from noetl.dsl.views import Outcome
    from noetl.secrets.fetch import Fetch
    from noetl.tools.base import ToolContext
    from noetl.tools.http.egress import Resolve
    from noetl.tools.http.transport import Door


class HttpTool:
    """The kind `http`."""

    kind: ClassVar[str] = "http"
    Config: ClassVar[type[Task]] = Http
    traits: ClassVar[Traits] = Traits()

    def __init__(
        self,
        egress: Egress,
        clock: Clock,
        resolve: Resolve = resolve,
        *,
        roots: tuple[Path, ...] = (),
        machine: Fetch | None = None,
    ) -> None:
        self._guard = Guard(egress=egress, resolve=resolve)
        self._clock = clock
        self._roots = roots
        self._identities = Identities(self._guard, clock, machine)
        self._door: Door | None = None
        self.tally = Tally()
        """What became of the requests."""

    async def run(self, config: Http, ctx: ToolContext) -> Outcome:
        """Send the request, or all of its pages."""
        # The client takes as long to import as everything else of a short local run.
        from noetl.tools.http.exchange import Exchange  # noqa: PLC0415 - see above
        from noetl.tools.http.paginate import pages  # noqa: PLC0415 - see above
        from noetl.tools.http.request import request_of  # noqa: PLC0415 - see above
        from noetl.tools.http.transport import Door  # noqa: PLC0415 - see above

        if self._door is None:
            self._door = Door(self._guard, self.tally)
        exchange = Exchange(config=config, ctx=ctx, door=self._door, clock=self._clock)
        request = await request_of(config, ctx, self._identities.google, self._roots)
        if config.paginate is not None:
            return await pages(exchange, request, config.paginate)
        return await exchange.ask(request)

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task closes its connection."""

    async def close(self) -> None:
        """Close every connection."""
        await self._identities.close()
        door, self._door = self._door, None
        if door is not None:
            await door.close()
