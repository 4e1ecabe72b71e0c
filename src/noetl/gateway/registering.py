"""How the server knows of a gateway: it registers, with a key to seal to, and lives."""

from __future__ import annotations

import asyncio
import logging
import platform
from typing import TYPE_CHECKING, Final

from noetl import __version__
from noetl.api.problems import Refused
from noetl.api.runtime import Left, PoolHeartbeat, WorkerEntry
from noetl.errors import NoetlError
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.gateway.upstream import Upstream
    from noetl.secrets.sealed import KeyPair

KIND: Final = "gateway"
BEAT_S: Final = 5.0
FIRST_AGAIN_S: Final = 0.1
AGAIN_S: Final = 1.0
LEAVE_S: Final = 2.0
_UNKNOWN: Final = "unknown_worker"
_log: Final = logging.getLogger(__name__)


def new_name() -> str:
    """A name of a replica that no other has."""
    host = "".join(c if c.isalnum() and c.isascii() else "-" for c in platform.node()).strip("-")
    return f"{host[:60] or 'gateway'}-{random_key()[:8]}"


class Registration:
    """Keeps this gateway known."""

    def __init__(
        self,
        upstream: Upstream,
        name: str,
        url: str,
        keys: KeyPair,
        on_machine: Callable[[int], None] | None = None,
    ) -> None:
        self.name = name
        self._upstream = upstream
        self._url = url
        self._keys = keys
        self._on_machine = on_machine
        self.is_known = False

    async def run(self) -> None:
        """Register, then beat, for ever; a server that is away is asked again."""
        again_s = FIRST_AGAIN_S
        while True:
            try:
                await self._beat()
            except NoetlError as fault:
                if self.is_known or not isinstance(fault, Refused):
                    _log.debug("the server was not told", extra={"code": fault.code})
                else:
                    _log.warning("the server does not know us", extra={"code": fault.code})
                self.is_known = False
                await asyncio.sleep(again_s)
                again_s = min(2 * again_s, AGAIN_S)
            else:
                again_s = FIRST_AGAIN_S
                await asyncio.sleep(BEAT_S)

    async def leave(self) -> None:
        """Say that this gateway ends; a server that is away finds out by itself."""
        if not self.is_known:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._upstream.service().leave(
                    Left(name=self.name, kind=KIND, component_type=KIND)
                )
        except (NoetlError, TimeoutError):
            _log.debug("the server was not told that the gateway ends")

    async def _beat(self) -> None:
        client = self._upstream.service()
        if self.is_known:
            beat = PoolHeartbeat(name=self.name, kind=KIND, component_type=KIND)
            try:
                await client.pool_heartbeat(beat)
            except Refused as fault:
                if fault.code != _UNKNOWN:
                    raise
            else:
                return
        joined = await client.register_worker(
            WorkerEntry(
                name=self.name,
                component_type=KIND,
                uri=self._url,
                hostname=platform.node(),
                runtime={"worker_public_key": self._keys.public, "version": __version__},
            )
        )
        if joined.machine_id is not None and self._on_machine is not None:
            self._on_machine(joined.machine_id)
        self.is_known = True
