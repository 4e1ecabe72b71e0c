"""The listener of one subscription: from its first look at the server to its last word.

A newer version of the document is taken between two fetches, when what the older one has begun is
done.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.sources.base import SourceError
from noetl.subscription.ears import Ears
from noetl.subscription.fetching import Fetching
from noetl.subscription.pausing import Pausing, may_pass

if TYPE_CHECKING:
    from noetl.subscription.ports import Ports
    from noetl.subscription.state import Listened

BACKLOG_S: Final = 10.0
_log: Final = logging.getLogger(__name__)


class Runtime:
    """One subscription that is listened for."""

    def __init__(self, path: str, ports: Ports) -> None:
        self.path = path
        self._ports = ports
        self._pausing = Pausing()
        self._ears: Ears | None = None
        self._fetching: Fetching | None = None
        self._fault = "starting"
        self._backlog: int | None = None
        self._pending = 0

    # ------------------------------------------------------------------ what others ask

    @property
    def ailments(self) -> tuple[str, ...]:
        """Why it is not well; nothing while it is."""
        fault = self._fault if self._fetching is None else self._fetching.ailment
        return (f"{self.path}: {fault}",) if fault else ()

    @property
    def is_ready(self) -> bool:
        """Whether it has begun."""
        return self._fetching is not None

    @property
    def figures(self) -> dict[str, object]:
        """What the server is told about it."""
        ears = self._ears
        return {} if ears is None else {**ears.figures(), "backlog": self._backlog}

    @property
    def received(self) -> int:
        """How many messages have come."""
        return int(self._ports.metrics.received.value(self.path))

    @property
    def held(self) -> int:
        """How much is under way."""
        return 0 if self._fetching is None else self._fetching.held

    @property
    def pending(self) -> int:
        """How many messages wait in the spool, also after the end."""
        ears = self._ears
        if ears is not None and ears.spool is not None:
            self._pending = ears.spool.pending()
        return self._pending

    def stop(self) -> None:
        """End in good order: fetch no more, and let what was begun come to its end."""
        self._pausing.end()

    # ------------------------------------------------------------------ its life

    async def run(self) -> None:
        """Listen until `stop`; a fault that needs a person is raised."""
        listened = await self._begun()
        while listened is not None and not self._pausing.is_over:
            listened = await self._listen(listened)

    async def _begun(self) -> Listened | None:
        """The subscription, as soon as the server tells it; none when the end comes first."""
        while not self._pausing.is_over:
            try:
                return await self._ports.control.start()
            except NoetlError as fault:
                await self._stumbled("the subscription is not known yet", fault)
        return None

    async def _listen(self, listened: Listened) -> Listened:
        """Listen by one version of the document; the next one, when there is one."""
        ears = await self._opened(listened)
        if ears is None:
            return listened
        self._ears = ears
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work, name=name) for name, work in ears.tasks()]
                tasks.append(group.create_task(self._watch_backlog(ears), name="backlog"))
                await self._activated()
                self._fetching = fetching = Fetching(ears, self._ports, self._pausing)
                newer = await fetching.run(listened)
                await fetching.finish(self._ports.grace_s)
                for task in tasks:
                    task.cancel()
        finally:
            self._pending = self.pending
            self._ears = self._fetching = None
            await ears.close()
        return newer

    async def _opened(self, listened: Listened) -> Ears | None:
        """All that listening needs; a source or a store that is away is asked again."""
        while not self._pausing.is_over:
            try:
                return await Ears.open(listened, self._ports)
            except NoetlError as fault:
                await self._stumbled("listening does not begin", fault)
        return None

    async def _activated(self) -> None:
        """Set the subscription going, as soon as the server lets us."""
        while not self._pausing.is_over:
            try:
                await self._ports.control.activate()
            except NoetlError as fault:
                self._fault = fault.code
                _log.warning("the subscription is not set going", extra={"code": fault.code})
                await self._pausing.again()
                await self._ports.control.look()
            else:
                self._pausing.reset()
                return

    async def _stumbled(self, what: str, fault: NoetlError) -> None:
        """Wait before the next try; what no try can help is raised."""
        if not may_pass(fault):
            raise fault
        self._fault = fault.code
        _log.warning(what, extra={"code": fault.code})
        await self._pausing.again()

    async def _watch_backlog(self, ears: Ears) -> None:
        while True:
            try:
                self._backlog = await ears.source.backlog()
            except SourceError:
                self._backlog = None
            if self._backlog is not None:
                self._ports.metrics.backlog.set(float(self._backlog), self.path)
            await asyncio.sleep(BACKLOG_S)
