"""Keeps one subscription open at this gateway: by its newest version, and again after a fault."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.gateway.ingress.edge_engine import Edge
from noetl.gateway.ingress.edge_ports import fields_of
from noetl.intake.outcomes import Disposition

if TYPE_CHECKING:
    from noetl.gateway.ingress.edge_ports import EdgePorts
    from noetl.gateway.ingress.listeners import Known
    from noetl.gateway.ingress.pipeline import Planned

OPENING_S: Final = 5.0
"""How long a delivery waits for its edge; its sender waits for eight seconds in all."""
LONGEST_OPENING_S: Final = 30.0
FIRST_AGAIN_S: Final = 0.5
LONGEST_AGAIN_S: Final = 15.0
STEADY_S: Final = 60.0
"""An edge that has worked so long is no sick one."""
AWAY: Final = "spool_unavailable"
_RETRY_MS: Final = 5_000
_log: Final = logging.getLogger(__name__)


class Keeper:
    """The edge of one subscription, or why there is none now."""

    def __init__(self, known: Known, ports: EdgePorts) -> None:
        self.known = known
        self._ports = ports
        self._edge: Edge | None = None
        self._changed = asyncio.Event()
        self._attempt: asyncio.Future[Edge | None] = _future()
        self._told = ""
        # Whoever comes first begins it, and what it does for others is not of his trace.
        self._task = asyncio.create_task(
            self._run(), name=f"keeper:{known.path}", context=Context()
        )

    def seen(self, known: Known) -> None:
        """The listener as it is now; an older version than the one that is known counts nothing."""
        mine = self.known
        if _age(known) < _age(mine):
            return
        self.known = known
        if _age(known) != _age(mine) or fields_of(known) != fields_of(mine):
            self._renew()  # whoever comes from now on waits for the new one
            self._changed.set()
        elif self._edge is not None:
            self._edge.steer(known.state)

    def hinted(self) -> None:
        """Something of the listener has changed, if only what somebody wants of it."""
        if self._edge is not None:
            self._edge.hinted()

    async def deliver(self, known: Known, planned: Planned) -> Disposition:
        """Run it, or let it wait; its sender keeps it while there is nothing that could.

        What a delivery was judged by is a while ago: of it a newer version alone is news.
        """
        if _age(known) > _age(self.known):
            self.seen(known)
        edge = await self._awaited()
        if edge is None:
            return refused(planned)
        return await edge.deliver(planned, known.state)

    async def stop(self) -> None:
        """Let go; what waits stays where it is."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    @property
    def edge(self) -> Edge | None:
        """What takes deliveries now."""
        return self._edge

    async def _awaited(self) -> Edge | None:
        try:
            async with asyncio.timeout(OPENING_S):
                while True:
                    edge = await asyncio.shield(self._attempt)
                    if edge is None or not edge.is_closing:
                        return edge
        except TimeoutError:
            return None

    async def _run(self) -> None:
        again_s = FIRST_AGAIN_S
        try:
            while True:
                self._changed.clear()
                began = self._ports.clock.monotonic()
                self._edge = await self._opened()
                self._settle(self._edge)
                if self._edge is not None and await self._worked(self._edge):
                    again_s = FIRST_AGAIN_S
                    continue
                if self._ports.clock.monotonic() - began > STEADY_S:
                    again_s = FIRST_AGAIN_S
                await self._rest(again_s)
                again_s = min(again_s * 2, LONGEST_AGAIN_S)
                self._renew()
        finally:
            self._settle(None)

    async def _opened(self) -> Edge | None:
        """The edge by what is known now; none when it cannot be had."""
        known = self.known
        try:
            async with asyncio.timeout(LONGEST_OPENING_S):
                edge = await Edge.open(known, self._ports)
        except Exception as fault:  # noqa: BLE001 - the border of a listener: others go on
            self._unopened(fault)
            return None
        if self._told:
            _log.info("the listener can take deliveries again", extra=self._about())
            self._told = ""
        return edge

    async def _worked(self, edge: Edge) -> bool:
        """Let an edge work until there is a newer one; false when it has failed."""
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait((changed, edge.task), return_when=asyncio.FIRST_COMPLETED)
            has_failed = edge.task.done() and not self._changed.is_set()
            if has_failed:
                _log.error(
                    "the work of a listener has failed",
                    extra=self._about(),
                    exc_info=None if edge.task.cancelled() else edge.task.exception(),
                )
        finally:
            changed.cancel()
            self._edge = None
            self._renew()  # whoever comes from now on waits for the next one
            await edge.close()
            self._left_behind(edge)
        if has_failed:
            self._settle(None)
        return not has_failed

    def _left_behind(self, edge: Edge) -> None:
        """Tell of messages that wait where the new version does not look."""
        before, now = _place(edge.known), _place(self.known)
        if before == now or not edge.waiting:
            return
        told = {**self._about(), "items": edge.waiting, "before": before, "now": now}
        _log.warning("messages wait in a spool that the document no longer names", extra=told)

    def _settle(self, edge: Edge | None) -> None:
        if not self._attempt.done():
            self._attempt.set_result(edge)

    def _renew(self) -> None:
        if self._attempt.done():
            self._attempt = _future()

    async def _rest(self, seconds: float) -> None:
        """Wait, at most until something is known that is new."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _unopened(self, fault: Exception) -> None:
        """Tell once why deliveries are sent back, and again when that is another reason."""
        code = fault.code if isinstance(fault, NoetlError) else type(fault).__name__
        level = logging.DEBUG if code == self._told else logging.WARNING
        self._told = code
        told = {**self._about(), "code": code}
        if isinstance(fault, NoetlError):
            told |= {"reason": fault.message, "hint": fault.hint}
        else:
            told |= {"reason": str(fault) or "it took too long"}
        _log.log(level, "the listener can take no deliveries: they are sent back", extra=told)

    def _about(self) -> dict[str, object]:
        known = self.known
        return {"listener": known.listener, "path": known.path, "version": known.version}


def refused(planned: Planned) -> Disposition:
    """Its sender is to keep it: nobody here could."""
    return Disposition(
        message_id=str(planned.message["id"]),
        settle="nack",
        outcome="held",
        reason=AWAY,
        delay_ms=_RETRY_MS,
    )


def _age(known: Known) -> tuple[int, int]:
    """Of two of one path the one that counts has more of this: a later life, a later version."""
    told = known.subscription_id
    return (int(told) if told.isascii() and told.isdigit() else 0), known.version


def _place(known: Known) -> tuple[str | None, ...]:
    """Where the messages of a listener wait."""
    spool = known.spec.spool
    return () if spool is None else (spool.mode, spool.backend, spool.bucket, spool.path)


def _future() -> asyncio.Future[Edge | None]:
    return asyncio.get_running_loop().create_future()
