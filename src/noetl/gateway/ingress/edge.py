"""Where verified deliveries become runs, or wait: an edge for every subscription that is pushed to.

Edges are opened by deliveries, and at the start for every listener that messages may wait for, so
that those go on without a new delivery. Of several gateways one drains: whoever holds the lease. A
folder of its own each of them drains itself.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import NoetlError
from noetl.gateway.ingress.edge_keeper import Keeper, refused
from noetl.gateway.ingress.edge_ports import EdgePorts
from noetl.intake.keeping import OFF, mode_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.gateway.ingress.edge_ports import Lookup
    from noetl.gateway.ingress.listeners import Known
    from noetl.gateway.ingress.pipeline import Planned
    from noetl.gateway.parts import GatewayParts
    from noetl.intake.metrics import IntakeMetrics
    from noetl.intake.outcomes import Disposition

LOOK_S: Final = 2.0
"""How often listeners are looked at in the cache, where hints do not come."""
NAMES_S: Final = 30.0
"""How often the server is asked which listeners there are."""
AT_ONCE: Final = 8
MOST_HINTED: Final = 10_000
DEACTIVATED: Final = "DEACTIVATED"
_log: Final = logging.getLogger(__name__)


class Edges:
    """The edges of one gateway, by where their messages wait: the tenant and the path."""

    def __init__(self, ports: EdgePorts) -> None:
        self._ports = ports
        self._keepers: dict[tuple[str, str], Keeper] = {}
        self._names: frozenset[str] = frozenset()
        self._names_at = 0.0
        self._hinted: set[str] = set()
        self._came = asyncio.Event()
        self._is_over = False
        self._going: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, parts: GatewayParts, lookup: Lookup) -> Edges:
        """Those of a gateway; `lookup` finds a listener by its name."""
        return cls(EdgePorts.of(parts, lookup))

    @property
    def metrics(self) -> IntakeMetrics:
        """What is counted."""
        return self._ports.metrics

    async def deliver(self, known: Known, planned: Planned) -> Disposition:
        """Run it, or let it wait; the answer says which, and nothing is promised before."""
        if self._is_over:
            return refused(planned)
        keeper = self._keepers.get(_key(known)) or self._seen(known)
        return await keeper.deliver(known, planned)

    def hinted(self, name: str) -> None:
        """Something of a listener has changed, and whoever asks is told the new."""
        if len(self._hinted) < MOST_HINTED:
            self._hinted.add(name)
        else:
            self._names_at = 0.0
        self._came.set()

    def figures(self) -> dict[str, dict[str, Any]]:
        """What the server is told of every subscription that is open here, by path."""
        open_ones = ((one.known.path, one.edge) for one in self._keepers.values())
        return {path: edge.figures() for path, edge in open_ones if edge is not None}

    async def run(self) -> None:
        """Keep edges as listeners are, until cancelled; then let what is under way end."""
        self._is_over = False
        try:
            while True:
                await self._look()
                await self._rest()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close all of them; what waits stays where it is."""
        self._is_over = True
        keepers, self._keepers = list(self._keepers.values()), {}
        self._let_go(keepers)
        if self._going:
            await asyncio.wait(self._going)

    # ------------------------------------------------------------------ what there is

    async def _look(self) -> None:
        self._came.clear()
        hinted, self._hinted = self._hinted, set()
        now = self._ports.clock.monotonic()
        if now >= self._names_at:
            try:
                self._names = frozenset(await self._ports.control.names())
                self._names_at = now + NAMES_S
            except NoetlError as fault:  # it is asked again after the next rest
                _log.debug("listeners are not told", extra={"code": fault.code})
        open_ones = {keeper.known.listener for keeper in self._keepers.values()}
        await self._update(self._names | open_ones | hinted)
        for keeper in self._keepers.values():
            if keeper.known.listener in hinted:
                keeper.hinted()

    async def _update(self, names: Iterable[str]) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def ask(name: str) -> tuple[str, Known | None, bool]:
            async with room:
                try:
                    return name, await self._ports.lookup(name), True
                except NoetlError as fault:  # a server that is away has not forgotten anybody
                    _log.debug("a listener is not told", extra={"code": fault.code})
                    return name, None, False

        found = await asyncio.gather(*map(ask, sorted(names)))
        gone = {name for name, known, is_sure in found if known is None and is_sure}
        for _, known, _ in found:
            if known is None:
                continue
            if known.state == DEACTIVATED:
                gone.add(known.listener)
            elif _key(known) in self._keepers or mode_of(known.spec) != OFF:
                self._seen(known)
        self._names -= gone
        # What waits for those that nobody may deliver to stays where it is.
        keys = [key for key, one in self._keepers.items() if one.known.listener in gone]
        self._let_go([self._keepers.pop(key) for key in keys])

    def _seen(self, known: Known) -> Keeper:
        key = _key(known)
        keeper = self._keepers.get(key)
        if keeper is None:
            keeper = self._keepers[key] = Keeper(known, self._ports)
        else:
            keeper.seen(known)
        return keeper

    def _let_go(self, keepers: Iterable[Keeper]) -> None:
        """Close these, beside all else: what is under way may take a while to end."""
        for keeper in keepers:
            task = asyncio.create_task(keeper.stop(), name=f"closing:{keeper.known.path}")
            self._going.add(task)
            task.add_done_callback(self._going.discard)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._came.wait()
        except TimeoutError:
            return


def _key(known: Known) -> tuple[str, str]:
    return known.tenant, known.path
