"""How the server knows of a gateway or a listener: it registers, with a key, and lives."""

from __future__ import annotations

import asyncio
import logging
import platform
from typing import TYPE_CHECKING, Any, Final

from noetl import __version__
from noetl.api.problems import Refused
from noetl.api.runtime import Left, PoolHeartbeat, WorkerEntry
from noetl.errors import NoetlError
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.api.client import Client
    from noetl.secrets.sealed import KeyPair

    Figures = Mapping[str, Mapping[str, Any]]

BEAT_S: Final = 5.0
FIRST_AGAIN_S: Final = 0.1
LONGEST_AGAIN_S: Final = 1.0
LEAVE_S: Final = 2.0
_UNKNOWN: Final = "unknown_worker"
_log: Final = logging.getLogger(__name__)


def new_name(kind: str) -> str:
    """A name of a process that no other has."""
    host = "".join(c if c.isalnum() and c.isascii() else "-" for c in platform.node()).strip("-")
    return f"{host[:60] or kind}-{random_key()[:8]}"


class Registration:
    """Keeps this process known, with what it has to tell about its subscriptions."""

    def __init__(  # noqa: PLR0913 - what a process says of itself
        self,
        client: Callable[[], Client],
        name: str,
        kind: str,
        keys: KeyPair,
        *,
        uri: str = "",
        on_machine: Callable[[int], None] | None = None,
    ) -> None:
        """`client` is asked for each call, since tokens are renewed."""
        self.name = name
        self.is_known = False
        self.figures: Callable[[], Figures] = dict
        """What is told of each subscription, by its path: backlog, in_flight and so on."""
        self._client = client
        self._kind = kind
        self._keys = keys
        self._uri = uri
        self._on_machine = on_machine
        self._told: Figures = {}

    async def join(self) -> None:
        """Make this process known now; the fault of a server that is away is raised."""
        figures = self.figures()
        joined = await self._client().register_worker(
            WorkerEntry(
                name=self.name,
                component_type=self._kind,
                uri=self._uri,
                hostname=platform.node(),
                runtime={
                    "worker_public_key": self._keys.public,
                    "version": __version__,
                    "subscriptions": figures,
                },
            )
        )
        self._told = figures
        if joined.machine_id is not None and self._on_machine is not None:
            self._on_machine(joined.machine_id)
        self.is_known = True

    async def run(self) -> None:
        """Tell the server for ever that this process lives; one that is away is asked again."""
        again_s = FIRST_AGAIN_S
        while True:
            try:
                await self._beat()
            except NoetlError as fault:
                is_news = isinstance(fault, Refused) and not self.is_known
                level = logging.WARNING if is_news else logging.DEBUG
                _log.log(level, "the server was not told of us", extra={"code": fault.code})
                self.is_known = False
                await asyncio.sleep(again_s)
                again_s = min(2 * again_s, LONGEST_AGAIN_S)
            else:
                again_s = FIRST_AGAIN_S
                await asyncio.sleep(BEAT_S)

    async def leave(self) -> None:
        """Say that this process ends; a server that is away finds out by itself."""
        if not self.is_known:
            return
        self.is_known = False
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._client().leave(
                    Left(name=self.name, kind=self._kind, component_type=self._kind)
                )
        except (NoetlError, TimeoutError):
            _log.debug("the server was not told that the process ends")

    async def _beat(self) -> None:
        if self.is_known and self.figures() == self._told:
            beat = PoolHeartbeat(name=self.name, kind=self._kind, component_type=self._kind)
            try:
                await self._client().pool_heartbeat(beat)
            except Refused as fault:
                if fault.code != _UNKNOWN:
                    raise
            else:
                return
        await self.join()
