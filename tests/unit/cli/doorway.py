"""A gateway before a server and a provider, on sockets, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self

from noetl.clock import SystemClock
from noetl.settings.gateway import SignInProvider
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from tests.fakes.issuer import CLIENT, SECRET, Issuer
from tests.unit.gateway.rig import gateway_rig
from tests.unit.gateway.served import served

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.unit.gateway.rig import GatewayRig

LATE_S = 30.0


class Doorway:
    """`with` runs it; accounts are made and looked at through `call`."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def __enter__(self) -> Self:
        """Start, and wait until it listens."""
        self._thread.start()
        assert self._ready.wait(LATE_S)
        if self._fault is not None:
            raise self._fault
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and wait for the end."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, work: Callable[[GatewayRig], Coroutine[Any, Any, Any]]) -> Any:
        """Do something with the rig from the test's own thread."""
        return asyncio.run_coroutine_threadsafe(work(self.rig), self._loop).result(LATE_S)

    async def _main(self) -> None:
        try:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await self._serve()
        except BaseException as fault:
            self._fault = fault
            self._ready.set()
            raise

    async def _serve(self) -> None:
        async def provided(scope: Any, receive: Any, send: Any) -> None:
            await self.issuer.app(scope, receive, send)

        async with served(provided) as issuer_url:
            fetch = Fetcher(Guard(egress=Egress(always=(issuer_url,))))
            provider = SignInProvider(
                name="corp", issuer=issuer_url, client_id=CLIENT, audience=CLIENT,
                client_secret=SECRET, role_claim="groups", role_map={"engineers": "developer"},
            )  # fmt: skip
            given = {"providers": (provider,), **self._settings}
            clock = {"clock": SystemClock()}
            async with gateway_rig(clock, fetch=fetch, **given) as self.rig:
                self.issuer = Issuer(issuer_url, clock=self.rig.gate.clock)
                async with self.rig.worker({"done": True}), served(self.rig.gateway.asgi) as url:
                    self.url = url
                    self._ready.set()
                    await self._stop.wait()
            await fetch.close()
