"""The way from a worker or client to a server: requests and answers get lost, late and doubled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from noetl.api.http import NO_HEADERS, Answer, AsgiTransport, NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.simulation.backends import Process

PATIENCE_S = 30.0


class Endpoint:
    """A server process as its callers reach it: it runs their requests in tasks of its own."""

    def __init__(self, process: Process, app: Any) -> None:
        self.process = process
        self._transport = AsgiTransport(app)
        self._under_way: dict[asyncio.Task[Answer], None] = {}

    def begin(self, *request: Any) -> asyncio.Task[Answer]:
        """Run a request, whoever still waits for it."""
        task = asyncio.get_running_loop().create_task(self._transport.request(*request))
        self._under_way[task] = None
        task.add_done_callback(self._ended)
        return task

    def crash(self) -> None:
        """Nobody is answered any more."""
        for task in list(self._under_way):
            task.cancel()

    async def ended(self) -> None:
        """Wait until nothing is under way."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        self._under_way.pop(task, None)
        if not task.cancelled():
            task.exception()


class Wire:
    """A transport of one caller to whichever server it finds."""

    def __init__(
        self,
        caller: Process,
        servers: Callable[[], Sequence[Endpoint]],
        seen: Callable[[str, bytes], None] = lambda _path, _body: None,
    ) -> None:
        self._caller = caller
        self._servers = servers
        self._seen = seen

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """The answer; `NoAnswer` when the line or the server fails."""
        caller = self._caller
        faults = caller.faults
        caller.alive()
        self._seen(path, body)
        await faults.dawdle("wire_slow")
        caller.alive()
        found = self._servers()
        if not found or caller.is_cut or faults.hits("request_lost"):
            await asyncio.sleep(faults.chance.random())
            raise NoAnswer(f"{method} {path}: nobody is there")
        server = faults.chance.choice(found)
        task = server.begin(method, path, body, headers)
        if faults.hits("request_twice"):
            faults.chance.choice(found).begin(method, path, body, headers)
        done, _ = await asyncio.wait((task,), timeout=PATIENCE_S)
        if not done or task.cancelled():
            raise NoAnswer(f"{method} {path}: no answer, in time or ever")
        answer = task.result()
        await faults.dawdle("wire_slow")
        caller.alive()
        if caller.is_cut or faults.hits("answer_lost"):
            raise NoAnswer(f"{method} {path}: the answer was lost")
        return answer
