"""The loop of a listener: how many messages may come, and that each is dealt with.

Fetching never waits for what was fetched: messages become runs beside it, and the governor says
how many may be under way. Nor does the loop wait for a fetch: it looks at the state beside a long
one, and what comes after a pause goes back to its source.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.intake.spans import spanned
from noetl.sources.base import SourceError
from noetl.sources.ordering import ordering_of
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from noetl.sources.base import PolledMessage
    from noetl.subscription.ears import Ears
    from noetl.subscription.pausing import Pausing
    from noetl.subscription.ports import Ports
    from noetl.subscription.state import Listened

TIMEOUT_MS: Final = {"pubsub": 20_000}
DEFAULT_TIMEOUT_MS: Final = 2_000
IDLE_S: Final = 0.25
"""How often one who fetches nothing looks whether that is over."""
LEAST_WAIT_S: Final = 0.01
"""A shorter wait may be rounded to none."""
LAST_POLL_S: Final = 1.0
"""How long a fetch may go on when the end has come."""
FIRST_REFUSED_S: Final = 5.0
LONGEST_REFUSED_S: Final = 300.0
SLOW_POLLS: Final = 3
SILENT_S: Final = 30.0
_RELOADED: Final = "subscription.reloaded"
_LIMITED: Final = "subscription.rate_limited"
_log: Final = logging.getLogger(__name__)


class Fetching:
    """Fetches by one version of the document."""

    def __init__(self, ears: Ears, ports: Ports, pausing: Pausing) -> None:
        self._ears = ears
        self._ports = ports
        self._pausing = pausing
        self._clock = ports.clock
        self._path = ears.listened.path
        self._polled_at = ports.clock.monotonic()
        self._look_at = self._polled_at + ports.state_poll_s
        self._has_polled = False
        self._refused_s = 0.0
        self._refused_until: float | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._newest = ears.listened
        self._fetch: asyncio.Task[None] | None = None
        """The fetch that is under way; there is one at a time."""
        self.fault = ""

    @property
    def ailment(self) -> str:
        """Why it is not well; nothing while it is."""
        if self._ports.control.is_unauthorized or self._refused_until is not None:
            return "unauthorized"
        silent_s = self._clock.monotonic() - self._polled_at
        if not self.fault and silent_s > SLOW_POLLS * self._timeout_s + SILENT_S:
            return f"no poll for {silent_s:.0f} s"
        return self.fault or self._ears.intake.keeping.fault

    @property
    def held(self) -> int:
        """How much is under way."""
        return self._ears.settling.held + len(self._working)

    async def run(self, listened: Listened) -> Listened:
        """Fetch until the end, or until there is a newer version, which is returned."""
        control, ears = self._ports.control, self._ears
        try:
            while not self._pausing.is_over:
                await self._look()
                if self._fetch is None and self._newest.version != listened.version:
                    versions = {
                        "from_version": listened.version,
                        "to_version": self._newest.version,
                    }
                    ears.audit.tell(_RELOADED, versions)
                    return self._newest
                ears.steer(control.task, control.requests)
                self._heed()
                if control.task == "drain" and ears.is_drained:
                    await self._drained()
                await self._step()
            await self._end()
        finally:
            if self._fetch is not None:  # what it brings is delivered again
                self._fetch.cancel()
                await asyncio.wait((self._fetch,))
        return listened

    async def finish(self, grace_s: float) -> None:
        """Let what was begun come to its end; what does not is given back."""
        settling = self._ears.settling
        if not await settling.settled(grace_s):
            _log.warning("messages are given back", extra={"count": settling.held})
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)
        await settling.give_back()

    # ------------------------------------------------------------------ what may be fetched

    async def _look(self) -> None:
        """See what the subscription is now, when it is time to look."""
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + self._ports.state_poll_s
            self._newest = await self._ports.control.look()

    async def _step(self) -> None:
        """Go on with the fetch that is under way, or with a new one, until it is time to look."""
        if self._fetch is None:
            count = self._allowed()
            if not count:
                self._polled_at = self._clock.monotonic()  # nothing is wanted of the source
                await self._pausing.wait(self._wait_s())
                return
            self._fetch = asyncio.create_task(self._fetched(count), name="fetch")
        await self._pausing.first(self._fetch, self._next_look_s())
        if self._fetch.done():
            done, self._fetch = self._fetch, None
            done.result()

    async def _end(self) -> None:
        """Give the last fetch a moment."""
        if self._fetch is not None:
            await asyncio.wait((self._fetch,), timeout=LAST_POLL_S)
            if self._fetch.done():
                self._fetch.result()

    def _heed(self) -> None:
        """After a refusal of the server: nothing is fetched for a while, longer each time."""
        now, intake = self._clock.monotonic(), self._ears.intake
        if not intake.is_unauthorized:
            return
        if self._refused_until is None:
            self._ports.control.unauthorized()
            self._refused_s = min(max(self._refused_s * 2, FIRST_REFUSED_S), LONGEST_REFUSED_S)
            self._refused_until = now + self._refused_s
        elif now >= self._refused_until and not self._ports.control.is_unauthorized:
            self._refused_until = None
            intake.is_unauthorized = False

    @property
    def _listens(self) -> bool:
        """Whether messages are wanted now."""
        ears = self._ears
        if self._ports.control.task != "listen" or ears.intake.is_unauthorized:
            return False
        return ears.lease.is_held or ordering_of(ears.listened.spec) != "global"

    def _allowed(self) -> int:
        """How many messages may be fetched now."""
        ears, spec, now = self._ears, self._ears.listened.spec, self._clock.monotonic()
        if not self._listens:
            return 0
        reason = ears.settling.governor.edge(now)
        if reason is not None:
            self._ports.metrics.rate_limited.inc(self._path)
            limits = {
                "reason": reason,
                "max_in_flight": spec.max_in_flight,
                "max_dispatch_per_sec": spec.limits.max_dispatch_per_sec,
                "action": "stopped_fetching",
            }
            ears.audit.tell(_LIMITED, limits)
        left = self._ports.left()
        base = spec.runtime.batch if left is None else min(left, spec.runtime.batch)
        return ears.settling.governor.plan_fetch(ears.intake.room(base), now)

    def _wait_s(self) -> float:
        now, base = self._clock.monotonic(), self._ears.listened.spec.runtime.batch
        wait_s = self._ears.settling.governor.wait_s(now, base) or IDLE_S
        return min(IDLE_S, self._next_look_s(), wait_s)

    def _next_look_s(self) -> float:
        return max(LEAST_WAIT_S, self._look_at - self._clock.monotonic())

    # ------------------------------------------------------------------ fetching

    async def _fetched(self, count: int) -> None:
        try:
            messages = await self._poll(count)
        except SourceError as fault:
            if not fault.is_retryable and not self._has_polled:
                raise
            self.fault = fault.code
            _log.warning("nothing can be fetched", extra={"code": fault.code})
            await self._pausing.again()
            return
        self.fault, self._has_polled = "", True
        self._pausing.reset()
        self._polled_at = self._clock.monotonic()
        if messages:
            await self._took(messages)

    async def _poll(self, count: int) -> list[PolledMessage]:
        about: dict[str, str | int] = {"subscription": self._path, "batch": count}
        with spanned(self._ports.tracer, "subscription.runtime.poll", None, about):
            return await self._ears.source.poll(count, int(self._timeout_s * 1000))

    async def _took(self, messages: list[PolledMessage]) -> None:
        settling = self._ears.settling
        settling.governor.fetched(len(messages), self._clock.monotonic())
        settling.took(messages)
        if not self._listens:  # not any more, since this fetch began
            settling.release([str(message.ack_id) for message in messages])
            return
        if armed:
            await failpoint("subscription.fetch")
        if self._ports.on_received is not None:
            self._ports.on_received(messages)
        task = asyncio.create_task(self._handle(messages), name="messages")
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _handle(self, messages: list[PolledMessage]) -> None:
        settling = self._ears.settling
        try:
            await self._ears.intake.handle(
                [message.as_json() for message in messages], settle=settling.settle
            )
        except Exception:  # noqa: BLE001 - whatever it was, they come again
            _log.exception("messages could not be dealt with")
            settling.release([str(message.ack_id) for message in messages])

    async def _drained(self) -> None:
        """Everything is done that a person wanted to see done: say so."""
        ears = self._ears
        await ears.settling.flush()
        if self.held:
            return
        await ears.audit.flush()
        try:
            await self._ports.control.drained()
        except NoetlError as fault:
            _log.warning("the server was not told that all is drained", extra={"code": fault.code})

    @property
    def _timeout_s(self) -> float:
        spec = self._ears.listened.spec
        default = TIMEOUT_MS.get(spec.source, DEFAULT_TIMEOUT_MS)
        return (default if spec.runtime.timeout_ms is None else spec.runtime.timeout_ms) / 1000
