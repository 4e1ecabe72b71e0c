"""R10, and the row of listeners in R1: messages come all the while, and every part is killed.

First the listener dies at each of its failpoints, with the downstream away where that takes a
spool, and the server at the redrive of a dead letter. Then any part is killed at random, or the
downstream goes away. Each message has one run, and the runs of a key began in order.
"""

from __future__ import annotations

import asyncio
import signal

from noetl.clock import SystemClock
from noetl.local.embedded.children import PartFailed
from noetl.telemetry.failpoint import POINTS
from tests.reliability.ledger import Ledger
from tests.reliability.oracle import weigh
from tests.reliability.scenario import Verdict, passable
from tests.reliability.senders import PATHS, Senders
from tests.reliability.work import leaf

PARTS = ("listener", "server", "worker", "nats", "postgres")
INTO = ("subscription.put", "subscription.stored")
"""Points that are reached while the downstream is away."""
OUT = ("subscription.replay", "subscription.delete")
"""Points that are reached when it is back."""
REDRIVE = "subscription.redrive"
CELLS = tuple(point for point in POINTS if point.startswith("subscription."))
SHORT_S = 60.0
LEAST_S, MOST_S = 2.0, 8.0
REACHED_S = 40.0
FILLED = 3
"""Messages in the spool before the downstream is back."""
PATIENCE = "20"
"""Commands lose their workers by our hand here."""
ABSENT = leaf().text.replace("faults/leaf", "faults/absent").replace("name: leaf", "name: absent")


def drawn(random, seconds):
    """What is done in so many seconds: some failpoints, or all; then faults at random."""
    is_short = seconds < SHORT_S
    cells = random.sample(CELLS, 2 if is_short else len(CELLS))
    schedule = [{"at": point, "time": random.randint(1, 3)} for point in cells]
    for fault in schedule:
        fault["time"] = 1 if fault["at"] == REDRIVE else fault["time"]
    passed = 3.0 * len(cells)
    least_s, most_s = (0.1, 0.5) if is_short else (LEAST_S, MOST_S)
    while passed < seconds:
        what = random.choice((*PARTS, "downstream"))
        after_s, down_s = (round(random.uniform(least_s, most_s), 2) for _ in range(2))
        schedule.append({"kill": what, "after_s": after_s, "down_s": down_s})
        passed += after_s + down_s
    return schedule


async def play(plan):
    """Do what was drawn while messages come."""
    verdict = Verdict(name="subscriptions", seed=plan.seed, is_mid_tool=True)
    verdict.schedule = drawn(plan.random, plan.seconds)
    spool = passable("spool-", plan.folder)
    async with Ledger().open() as ledger, plan.stack() as stack:
        stack.add_server(NOETL_COMMAND_MAX_ATTEMPTS=PATIENCE)
        stack.add_worker(slots=4)
        stack.add_listener(*PATHS)
        await stack.start("server", "worker")
        senders = Senders(stack, ledger, spool)
        harm = Harm(stack, ledger, senders, verdict)
        async with senders.downstream.open():
            async with senders.here():
                await stack.start("listener")
                await ledger.reaches(5)
                await harm.all()
            await senders.downstream.up()
            runs = await senders.judged(verdict)
        await weigh(stack, ledger, runs, verdict, is_patient=plan.seconds >= SHORT_S)
        verdict.measured |= {"messages": senders.sent, "letters": senders.letters}
    return verdict


class Harm:
    """Kills parts, takes the downstream away, and waits until messages run again."""

    def __init__(self, stack, ledger, senders, verdict):
        self._stack = stack
        self._ledger = ledger
        self._senders = senders
        self._verdict = verdict
        self._clock = SystemClock()

    async def all(self):
        """What was drawn, one after the other, until something is not as it must be."""
        for number, fault in enumerate(self._verdict.schedule):
            self._verdict.measured.setdefault("at", []).append(f"{self._clock.now():%H:%M:%S}")
            try:
                await (self.cell(fault) if "at" in fault else self.kill(fault))
            except (TimeoutError, PartFailed) as missed:
                said = self._stack.last("listener")
                self._verdict.wrong.append(f"{number} {fault}: {missed!r}: {said}")
                return

    async def kill(self, fault):
        """Kill a part, or let the downstream be away for a while."""
        what, stack = fault["kill"], self._stack
        await asyncio.sleep(fault["after_s"])
        if what == "downstream":
            await self._senders.downstream.down()
            await asyncio.sleep(fault["down_s"])
            began = self._clock.monotonic()
            await self._senders.downstream.up()
        else:
            await stack.kill(what)
            await asyncio.sleep(fault["down_s"])
            began = self._clock.monotonic()
            await stack.start(what)
        await self._recovered(fault, began)

    async def cell(self, fault):
        """Let a process die at a failpoint."""
        point, downstream = fault["at"], self._senders.downstream
        part = "server" if point == REDRIVE else "listener"
        if point == REDRIVE:
            await self._letter()
        await self._stack.arm(part, f"{point}=crash@{fault['time']}")
        async with asyncio.timeout(REACHED_S):
            if point in INTO + OUT:
                await downstream.down()
            if point in OUT:
                await self._spooled()
                await downstream.up()
            if point == REDRIVE:
                await self._senders.redrive(ABSENT)
            code = await self._stack.parts[part].wait()
        if code != -signal.SIGKILL:
            self._verdict.wrong.append(f"{fault}: it ended with {code}: {self._stack.last(part)}")
        await downstream.up()
        began = self._clock.monotonic()
        await self._stack.start(part)
        await self._recovered(fault, began)

    async def _recovered(self, fault, began, within_s=60.0):
        """Wait for a call that nobody has made before."""
        try:
            async with asyncio.timeout(within_s):
                await self._ledger.anew()
        except TimeoutError:
            self._verdict.stuck.append(f"nothing new was begun for {within_s:g} s after {fault}")
        self._verdict.recovery_s.append(round(self._clock.monotonic() - began, 3))

    async def _spooled(self):
        while self._senders.waiting() < FILLED:  # noqa: ASYNC110 - another process fills it
            await asyncio.sleep(0.05)

    async def _letter(self):
        """A message whose playbook is not there becomes a dead letter."""
        await self._senders.send_letter()
        async with asyncio.timeout(REACHED_S):
            await self._senders.dead(1)
