"""R1: kill -9 of every part, at every failpoint and at random.

First the matrix: a process dies at a failpoint of its own, or another part is killed while it
stands there. Then any part is killed every few seconds. Guests start and follow runs all the while.
Gateways and listeners have scenarios of their own, `gateway` and `subscriptions`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from urllib.parse import urlsplit

import asyncpg

from noetl.clock import SystemClock
from noetl.local.embedded.children import PartFailed
from noetl.server import admin
from noetl.telemetry.failpoint import POINTS
from tests.reliability.guests import Guests
from tests.reliability.ledger import Ledger
from tests.reliability.oracle import ghosts, weigh
from tests.reliability.scenario import Verdict

PARTS = ("server", "worker", "system", "nats", "postgres")
OWNERS = {
    "server": ("server",), "worker": ("worker", "system"), "migration": ("migration",),
    "subscription": (),
}  # fmt: skip
"""Which parts have the failpoints of a program; those of messages are in `subscriptions`."""
SHARE = 0.6
"""Of the time, for the matrix."""
CELL_S = 3.0
LEAST_CELLS = 4
LEAST_KILLS = 2
LEAST_S, MOST_S = 2.0, 10.0
"""Between two kills at random; less in a short play."""
SHORT_S = 60.0
REACHED_S = 40.0
STAND_MS = 400
"""How long a process stands at a failpoint while another part is killed."""
PATIENCE = "20"
"""A command that loses its worker three times is taken for poison; here workers die by our hand."""
OFTEN, SELDOM = 8, 2
RARE = ("heartbeat", "deliver", "timer")
ONCE = ("drain", "ack")
"""Points that a process reaches at its end, or when a hint comes: most work comes without one."""
MIGRATE = """
import asyncio, sys
from noetl.server import admin
from noetl.telemetry import failpoint
failpoint.configure(sys.argv[2])
asyncio.run(admin.migrate(sys.argv[1]))
"""
REACHED = b"a fault on purpose"
SPARE = ("drop database if exists spare with (force)", "create database spare")


def matrix(random):
    """Every part at every failpoint: those that die by themselves first, each group shuffled."""
    own, other = [], []
    for point in POINTS:
        for owner in OWNERS[point.partition(".")[0]]:
            for part in (owner, *(name for name in PARTS if name != owner)):
                if owner == "migration" and part not in {owner, "postgres"}:
                    continue
                often = SELDOM if point.rpartition(".")[2] in RARE else OFTEN
                cell = {
                    "kill": part, "at": point, "of": owner,
                    "time": 1 if point.endswith(ONCE) else random.randint(1, often),
                }  # fmt: skip
                (own if part == owner else other).append(cell)
    return [*random.sample(own, len(own)), *random.sample(other, len(other))]


def drawn(random, seconds):
    """All that is done in so many seconds: a part of the matrix, then kills at random."""
    count = max(LEAST_CELLS, int(seconds * SHARE / CELL_S))
    schedule = matrix(random)[:count]
    passed = len(schedule) * CELL_S
    most_s = min(MOST_S, max(LEAST_S, seconds / 6))
    kills = 0
    while kills < LEAST_KILLS or passed < seconds:
        after_s = round(random.uniform(min(LEAST_S, seconds / 6), most_s), 2)
        down_s = round(random.uniform(0.0, 1.0), 2)
        schedule.append({"kill": random.choice(PARTS), "after_s": after_s, "down_s": down_s})
        passed += after_s + down_s
        kills += 1
    return schedule


async def play(plan):
    """Do what was drawn while guests come and go."""
    verdict = Verdict(name="kills", seed=plan.seed, is_mid_tool=True)
    verdict.schedule = drawn(plan.random, plan.seconds)
    async with Ledger().open() as ledger, plan.stack() as stack:
        stack.add_server(NOETL_COMMAND_MAX_ATTEMPTS=PATIENCE)
        stack.add_worker(slots=4)
        stack.add_worker("system", slots=2, pool="system")
        await stack.start("server", "worker", "system")
        shared = 3 if plan.seconds < SHORT_S else 6
        guests = Guests(stack, ledger, lasts_s=plan.seconds, shared=shared)
        killer = Killer(stack, guests, verdict)
        async with guests.here():
            await ledger.reaches(5)
            for number, fault in enumerate(verdict.schedule):
                try:
                    await (killer.cell(fault) if "at" in fault else killer.kill(fault))
                except (TimeoutError, PartFailed) as missed:
                    said = stack.last(fault.get("of", fault["kill"]))
                    verdict.wrong.append(f"{number} {fault}: {missed!r}: {said}")
                    await killer.whole()
            verdict.measured["harmed_s"] = killer.passed_s
        verdict.measured["ended_s"] = killer.passed_s
        verdict.wrong += guests.wrong + await ghosts(stack, guests.runs)
        await weigh(stack, ledger, guests.runs, verdict, is_patient=plan.seconds >= SHORT_S)
        verdict.measured["judged_s"] = killer.passed_s
    return verdict


class Killer:
    """Kills parts and starts them."""

    def __init__(self, stack, guests, verdict):
        self._stack = stack
        self._guests = guests
        self._verdict = verdict
        self._clock = SystemClock()
        self._began = self._clock.monotonic()

    @property
    def passed_s(self):
        return round(self._clock.monotonic() - self._began, 1)

    async def kill(self, fault):
        """Kill a part at any moment."""
        await asyncio.sleep(fault["after_s"])
        await self._stack.kill(fault["kill"])
        await asyncio.sleep(fault["down_s"])
        await self._back(fault["kill"])

    async def cell(self, fault):
        """Kill a part while a process is at a failpoint."""
        if fault["of"] == "migration":
            await self._migration(fault)
        elif fault["kill"] == fault["of"]:
            await self._dies(fault)
        else:
            await self._stands(fault)

    async def whole(self):
        """Start whatever does not run, for those that come next."""
        for part in PARTS:
            is_there = self._stack.postgres.pid if part == "postgres" else None
            if is_there is None and (part == "postgres" or self._stack.parts[part].pid is None):
                await self._stack.start(part)

    async def _dies(self, fault):
        stack, part = self._stack, fault["of"]
        await stack.arm(part, f"{fault['at']}=crash@{fault['time']}")
        async with asyncio.timeout(REACHED_S):
            await self._told_to_end(fault)
            code = await stack.parts[part].wait()
        if code != -signal.SIGKILL:
            self._verdict.wrong.append(f"{fault}: it ended with {code}: {stack.last(part)}")
        await self._back(part)

    async def _stands(self, fault):
        stack, owner, part = self._stack, fault["of"], fault["kill"]
        since = len(stack.lines[owner])
        await stack.arm(owner, f"{fault['at']}=delay:{STAND_MS}@{fault['time']}*1")
        async with asyncio.timeout(REACHED_S):
            await self._told_to_end(fault)
            await stack.says(owner, f'"{fault["at"]}"', since)
        await stack.kill(part)
        if not fault["at"].endswith("drain"):
            await self._back(part)
            return
        needs_owner = owner == "server" and part in {"worker", "system"}
        if not needs_owner:
            await stack.start(part)
        async with asyncio.timeout(REACHED_S):
            await stack.parts[owner].wait()
        if needs_owner:
            await stack.start(owner)
        await self._back(part if needs_owner else owner)

    async def _told_to_end(self, fault):
        """A process that is to drain is told so, once it works."""
        if fault["at"].endswith("drain"):
            part = self._stack.parts[fault["of"]]
            await part.until_ready()
            part._child.send_signal(signal.SIGTERM)  # noqa: SLF001 - a drain, not the stop of the rig

    async def _back(self, part):
        """Start a part; how long it takes until work is begun that was not under way."""
        began = self._clock.monotonic()
        await self._stack.start(part)
        await self._guests.recovered(self._verdict, part, began)

    async def _migration(self, fault):
        """A new database, whose migration is ended half-way and then done again."""
        stack, is_dying = self._stack, fault["kill"] == "migration"
        spare = await _spare(stack)
        what = "crash" if is_dying else "hang"
        making = await _migrate(spare, f"{fault['at']}={what}@{fault['time']}")
        try:
            async with asyncio.timeout(REACHED_S):
                if not is_dying:
                    await making.stderr.readuntil(REACHED)
                    await stack.kill("postgres")
                    making.kill()
                await making.communicate()
        finally:
            if making.returncode is None:
                making.kill()
                await making.communicate()
        if not is_dying:
            await self._back("postgres")
        again = await _migrate(spare, "")
        _, said = await again.communicate()
        if making.returncode != -signal.SIGKILL or again.returncode:
            self._verdict.wrong.append(f"{fault}: {making.returncode}, then {said[-500:]}")
        elif missing := [one.name for one in await admin.changes(spare) if not one.is_applied]:
            self._verdict.wrong.append(f"{fault}: {missing} are missing")


async def _spare(stack):
    """The address of an empty database beside the one that is used."""
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        for statement in SPARE:
            await connection.execute(statement)
    finally:
        await connection.close()
    return urlsplit(stack.postgres.url)._replace(path="/spare").geturl()


async def _migrate(url, fault):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", MIGRATE, url, fault,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
