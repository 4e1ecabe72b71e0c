"""How the server knows of a listener: it registers, with a key to seal to, and lives."""

from __future__ import annotations

import asyncio
import logging
import platform
from typing import TYPE_CHECKING, Any, Final

from noetl import __version__
from noetl.api.problems import Refused
from noetl.api.runtime import Left, WorkerEntry
from noetl.errors import NoetlError
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.api.client import Client
    from noetl.secrets.sealed import KeyPair

KIND: Final = "subscription"
BEAT_S: Final = 5.0
FIRST_AGAIN_S: Final = 0.1
LONGEST_AGAIN_S: Final = 1.0
LEAVE_S: Final = 2.0
_log: Final = logging.getLogger(__name__)


def new_name() -> str:
    """A name of a listener that no other has."""
    host = "".join(c if c.isalnum() and c.isascii() else "-" for c in platform.node()).strip("-")
    return f"{host[:60] or 'listener'}-{random_key()[:8]}"


class Registration:
    """Keeps this process known, with what it has to tell about its subscriptions."""

    def __init__(
        self,
        client: Client,
        name: str,
        keys: KeyPair,
        figures: Callable[[], dict[str, dict[str, Any]]],
        on_machine: Callable[[int], None] | None = None,
    ) -> None:
        """Take what is told of each subscription, by its path: backlog, in_flight and so on."""
        self.name = name
        self._client = client
        self._keys = keys
        self._figures = figures
        self._on_machine = on_machine
        self.is_known = False

    async def join(self) -> None:
        """Make this process known now; the fault of a server that is away is raised."""
        figures = self._figures()
        joined = await self._client.register_worker(
            WorkerEntry(
                name=self.name,
                component_type=KIND,
                hostname=platform.node(),
                runtime={
                    "worker_public_key": self._keys.public,
                    "version": __version__,
                    "subscriptions": figures,
                },
            )
        )
        if joined.machine_id is not None and self._on_machine is not None:
            self._on_machine(joined.machine_id)
        self.is_known = True

    async def run(self) -> None:
        """Tell the server for ever that this process lives; one that is away is asked again."""
        again_s = FIRST_AGAIN_S
        while True:
            try:
                await self.join()
            except NoetlError as fault:
                level = logging.WARNING if isinstance(fault, Refused) else logging.DEBUG
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
        try:
            async with asyncio.timeout(LEAVE_S):
                left = Left(name=self.name, kind=KIND, component_type=KIND)
                await self._client.leave(left)
        except (NoetlError, TimeoutError):
            _log.debug("the server was not told that the listener ends")
        self.is_known = False
