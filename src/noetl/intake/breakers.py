"""The circuits of one subscription: one per downstream, kept where others and restarts find them.

Transitions and the failures before one are written, each over the state it was made from: of
several processes one makes it, and they count together. While the store is away the circuit lives
in memory and is written when it returns.
"""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from noetl.intake.circuit_stores import Changed, StoreGone, circuit_key
from noetl.sources import breaker as rules_of
from noetl.sources.breaker import PHASES, Breaker, Rules
from noetl.sources.ordering import SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noetl.clock import Clock
    from noetl.intake.circuit_stores import CircuitStore
    from noetl.intake.metrics import IntakeMetrics
    from noetl.sources.breaker import Word

    Tell = Callable[[str, dict[str, Any]], None]

_TURNS: Final = 8
"""How often a change is made anew because somebody else was faster; then it stays in memory."""


@dataclass(slots=True)
class _Circuit:
    key: str
    breaker: Breaker = field(default_factory=Breaker)
    revision: int | None = None
    is_unwritten: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Breakers:
    """Asks circuits, and tells them what happened."""

    def __init__(  # noqa: PLR0913 - its parts, met in one place
        self,
        path: str,
        downstreams: Iterable[str],
        rules: Rules,
        *,
        store: CircuitStore,
        clock: Clock,
        tell: Tell,
        metrics: IntakeMetrics,
    ) -> None:
        self.rules = rules
        self._path = path
        self._store = store
        self._clock = clock
        self._tell = tell
        self._metrics = metrics
        self._circuits = {
            name: _Circuit(circuit_key(path, name))
            for name in dict.fromkeys((SERVER, *downstreams))
        }
        self.closed: Callable[[str], None] = lambda _: None
        """Is called with the name of a downstream that is back."""
        for name in self._circuits:
            self._shown(name)
            for phase in PHASES:
                metrics.transitions.inc(path, name, phase, by=0.0)

    @property
    def names(self) -> tuple[str, ...]:
        """Every downstream, the server first."""
        return tuple(self._circuits)

    def state(self, name: str) -> Breaker:
        """The circuit as this process knows it."""
        return self._circuits[name].breaker

    def is_closed(self, *names: str) -> bool:
        """Whether messages may pass to all of them."""
        return all(self._circuits[name].breaker.phase == "closed" for name in names)

    def wait_ms(self, *names: str) -> int:
        """How long until every one of them may be asked again."""
        now = self._now_ms()
        return max(
            (rules_of.wait_ms(self.state(name), now, self.rules) for name in names), default=0
        )

    def outage_ms(self, *names: str) -> int | None:
        """How long the longest outage among them lasts; none while all are closed."""
        now = self._now_ms()
        open_ones = [self.state(name) for name in names if not self.is_closed(name)]
        return max((now - state.opened_at_ms for state in open_ones), default=None)

    async def refresh(self) -> None:
        """Learn what others have changed, and write what could not be written before."""
        for name, circuit in self._circuits.items():
            async with circuit.turn:
                try:
                    await self._refreshed(name, circuit)
                except StoreGone:
                    return

    async def follow(self, every_s: float) -> None:
        """Learn of the changes of others as soon as the store tells them; until cancelled."""
        keys = [circuit.key for circuit in self._circuits.values()]
        await self._store.follow(keys, self.refresh, every_s)

    async def enter(self, *names: str) -> tuple[Word, tuple[str, ...]]:
        """Whether a message that needs all of them may pass, and for which it is the probe."""
        if self.is_closed(*names):
            return "closed", ()
        now = self._now_ms()
        probed: list[str] = []
        words = {name: rules_of.ask(self.state(name), now, self.rules)[0] for name in names}
        if "hold" in words.values():
            for name in (name for name, word in words.items() if word == "hold"):
                await self._ask(name)  # a probe that nobody answered comes to its end here
            return "hold", ()
        for name in names:
            word = await self._ask(name)
            if word == "hold":  # somebody else was faster
                for other in probed:
                    await self.released(other)
                return "hold", ()
            if word == "probe":
                probed.append(name)
        return ("probe", tuple(probed)) if probed else ("closed", ())

    async def failed(self, name: str, reason: str = "") -> None:
        """Something went wrong that says that it is away."""
        await self._change(
            name, lambda state: rules_of.failed(state, self._now_ms(), self.rules), reason
        )

    async def succeeded(self, name: str) -> None:
        """Something went right."""
        state = self.state(name)
        if state.phase == "closed" and not state.consecutive_failures:
            return
        await self._change(name, lambda state: rules_of.succeeded(state, self._now_ms()))

    async def released(self, name: str) -> None:
        """A probe told nothing: the next one may go at once."""

        def back(state: Breaker) -> Breaker:
            if state.phase != "half_open":
                return state
            since = self._now_ms() - self.rules.probe_after_ms
            return dataclasses.replace(state, phase="open", last_transition_ms=since)

        await self._change(name, back)

    async def taken_over(self) -> None:
        """Whoever asked before is gone: nobody waits for the answers to his probes."""
        for name in self._circuits:
            if self.state(name).phase == "half_open":
                await self.released(name)

    async def _ask(self, name: str) -> Word:
        said: Word = "hold"

        def asked(state: Breaker) -> Breaker:
            nonlocal said
            said, after = rules_of.ask(state, self._now_ms(), self.rules)
            return after

        await self._change(name, asked)
        return said

    async def _change(
        self, name: str, change: Callable[[Breaker], Breaker], reason: str = ""
    ) -> None:
        circuit = self._circuits[name]
        async with circuit.turn:
            for _ in range(_TURNS):
                before, after = circuit.breaker, change(circuit.breaker)
                if after.phase == before.phase and (after == before or after.phase != "closed"):
                    circuit.breaker = after
                    return
                try:
                    state = {**after.as_json(), "subscription": self._path, "downstream": name}
                    circuit.revision = await self._store.put(circuit.key, state, circuit.revision)
                except Changed:
                    try:
                        await self._refreshed(name, circuit)
                    except StoreGone:
                        continue
                    continue
                except StoreGone:
                    break
                circuit.is_unwritten = False
                self._changed(name, before, after, reason)
                return
            before, after = circuit.breaker, change(circuit.breaker)
            if after.phase == before.phase:  # a count is of no use to others later
                circuit.breaker = after
                return
            circuit.is_unwritten = True
            self._metrics.unkept.inc(self._path)
            self._changed(name, before, after, reason)

    async def _refreshed(self, name: str, circuit: _Circuit) -> None:
        """Take what the store has, unless what could not be written is newer."""
        found = await self._store.get(circuit.key)
        stored = Breaker.from_json(found.state) if found else Breaker()
        circuit.revision = found.revision if found else None
        mine = circuit.breaker
        if circuit.is_unwritten and mine.last_transition_ms >= stored.last_transition_ms:
            state = {**mine.as_json(), "subscription": self._path, "downstream": name}
            try:
                circuit.revision = await self._store.put(circuit.key, state, circuit.revision)
            except Changed:
                return
            circuit.is_unwritten = False
            return
        circuit.is_unwritten = False
        if found is None:
            return
        if stored.phase == mine.phase:
            is_older = stored.last_transition_ms < mine.last_transition_ms
            circuit.breaker = mine if is_older else stored
            return
        circuit.breaker = stored
        self._shown(name)
        if stored.phase == "closed":
            self.closed(name)

    def _changed(self, name: str, before: Breaker, after: Breaker, reason: str) -> None:
        self._circuits[name].breaker = after
        if after.phase == before.phase:
            return
        self._shown(name)
        self._metrics.transitions.inc(self._path, name, after.phase)
        if before.phase == "closed":
            self._tell(
                "subscription.circuit.opened",
                {
                    "downstream": name,
                    "consecutive_failures": after.consecutive_failures,
                    "trips": after.trips,
                    "reason": reason,
                },
            )
        elif after.phase == "closed":
            open_ms = max(0, self._now_ms() - after.opened_at_ms)
            self._tell("subscription.circuit.closed", {"downstream": name, "open_ms": open_ms})
            self.closed(name)

    def _shown(self, name: str) -> None:
        number = PHASES.index(self.state(name).phase)
        self._metrics.circuit.set(float(number), self._path, name)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)
