"""A listener for every subscription that is to listen, as long as the stack runs."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from noetl.api.client import Client
from noetl.api.sockets import SocketTransport
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from noetl.api.subscriptions import Subscription
    from noetl.local.embedded.children import Child
    from noetl.local.embedded.supervisor import Supervisor

AGAIN_S: Final = 1.0
"""How long a server that is away is left alone."""
TOPIC: Final = "subscriptions"
_NOT_YET: Final = "REGISTERED"
_STOPPED: Final = "stopped"
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Listeners:
    """Starts and stops listeners as the server's list of subscriptions changes."""

    def __init__(
        self,
        url: str,
        token: str,
        supervisor: Supervisor,
        make: Callable[[str, str], Child],
    ) -> None:
        """Take the server, and how the process of a name and a path is made."""
        self._url = url
        self._token = token
        self._supervisor = supervisor
        self._make = make
        self._kept: dict[str, asyncio.Task[None]] = {}
        self._names: dict[str, str] = {}

    async def run(self) -> None:
        """Follow the list, until cancelled; then every listener is stopped."""
        try:
            while True:
                try:
                    await self._follow()
                except (NoetlError, OSError):
                    await asyncio.sleep(AGAIN_S)  # the supervisor sees to the server
        finally:
            await self._end(list(self._kept))

    async def _follow(self) -> None:
        """Look once, and again whenever something changes."""
        async with self._connected() as client:
            await self._look(client)
            async for _ in client.follow(TOPIC):
                await self._look(client)

    async def _look(self, client: Client) -> None:
        found = (await client.subscriptions()).subscriptions
        wanted = {one.path for one in found if is_wanted(one)}
        await self._end([path for path in self._kept if path not in wanted])
        for path in sorted(wanted - self._kept.keys()):
            child = self._make(self._name(path), path)
            self._kept[path] = asyncio.create_task(
                self._supervisor.keep(child), name=f"listener of {path}"
            )

    async def _end(self, paths: list[str]) -> None:
        tasks = [self._kept.pop(path) for path in paths]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _name(self, path: str) -> str:
        """The name of a listener's part, which no other has."""
        if path not in self._names:
            name = f"listener-{_NO_NAME.sub('-', path)}"
            while name in self._names.values():
                name += "-"
            self._names[path] = name
        return self._names[path]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        transport = SocketTransport(self._url, token=self._token)
        try:
            yield Client(transport)
        finally:
            await transport.close()


def is_wanted(subscription: Subscription) -> bool:
    """Whether a process has to listen: also for one that is paused, which may go on any time."""
    is_continuous = subscription.mode == "pull" and subscription.activation != "scheduled"
    is_begun = subscription.state != _NOT_YET  # somebody has to want it first
    return is_continuous and is_begun and subscription.desired != _STOPPED
