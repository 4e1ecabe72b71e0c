"""PostgreSQL is restarted, killed, frozen, stalled and cut off while requests come.

Whoever was told 2xx finds his run: it was committed. What was refused or got no answer may have
been stored or not; nobody was promised anything.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from tests.reliability.ledger import Ledger
from tests.reliability.load import Load
from tests.reliability.scenario import Verdict
from tests.reliability.wire import Wire
from tests.reliability.work import chain, fanout

LEAST = 2
STALL_S = 2.0
LONG_S = 30.0
HALF_OPEN_S = 60.0
PASSING = {(503, "db_unavailable"), (503, "pool_saturated")}
TERMINATE = (
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'noetl'"
)


async def play(plan):
    """Do one harm after the other, each once before any comes again."""
    verdict = Verdict(name="database", seed=plan.seed)
    async with AsyncExitStack() as exits:
        ledger = await exits.enter_async_context(Ledger().open())
        stack = await exits.enter_async_context(plan.stack())
        port = urlsplit(stack.postgres.url).port
        wire = await exits.enter_async_context(Wire(port).open())
        stack.add_server(
            NOETL_DATABASE_URL=stack.postgres.url.replace(f":{port}/", f":{wire.port}/")
        )
        stack.add_worker()
        await stack.start("server", "worker")
        server = stack.pid("server")
        load = Load(stack, ledger, [chain(3), fanout(8)])
        async with load.going():
            await ledger.reaches(10)
            if plan.seconds >= LONG_S:
                await _forsaken(load, wire, verdict)
            for name, pause_s in _drawn(plan.random):
                verdict.schedule.append(name)
                await HARMS[name](stack, wire)
                await load.recovered(verdict)
                await asyncio.sleep(pause_s)
                if len(verdict.schedule) >= LEAST and plan.left_s <= 0:
                    break
        await load.judged(verdict)
        strange = set(load.refused) - PASSING
        if strange:
            verdict.wrong.append(f"requests were refused with {sorted(strange)}")
        if stack.pid("server") != server:
            verdict.wrong.append("the server has died with its database")
    return verdict


def _drawn(random):
    """Harms without end, and how long all is well after each."""
    while True:
        for name in random.sample(sorted(HARMS), len(HARMS)):
            yield name, random.uniform(0.2, 1.5)


async def _forsaken(load, wire, verdict):
    """The machine of the database is gone without a word, and another one answers.

    Nobody can know before the longest statement would have ended.
    """
    verdict.schedule.append("forsaken")
    wire.forsake()
    await load.recovered(verdict, HALF_OPEN_S)
    if verdict.recovery_s:
        verdict.measured["half_open_s"] = verdict.recovery_s.pop()


async def _restart(stack, _wire):
    await stack.postgres.stop()
    await stack.start("postgres")


async def _kill(stack, _wire):
    await stack.again("postgres")


async def _freeze(stack, _wire):
    """No process of PostgreSQL moves; whoever waits for an answer waits."""
    frozen = _family(stack.pid("postgres"))
    for pid in frozen:
        _signal(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(STALL_S)
    finally:
        for pid in frozen:
            _signal(pid, signal.SIGCONT)


async def _stall(_stack, wire):
    wire.stall()
    await asyncio.sleep(STALL_S)
    wire.heal()


async def _lose_answers(_stack, wire):
    """What was committed is not told; then the connections are reset."""
    wire.swallow(wire.back)
    await asyncio.sleep(STALL_S / 2)
    wire.heal()


async def _reset(_stack, wire):
    """Connections end in the middle of answers."""
    wire.blow(wire.back, after=700)
    await asyncio.sleep(STALL_S / 2)
    wire.heal()


async def _cut(_stack, wire):
    wire.cut()
    await asyncio.sleep(STALL_S / 4)
    wire.heal()


async def _terminate(stack, _wire):
    """Sessions are ended again and again, whatever they are at."""
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        for _ in range(10):
            await connection.fetch(TERMINATE)
            await asyncio.sleep(0.05)
    finally:
        await connection.close()


HARMS = {
    "restart": _restart, "kill": _kill, "freeze": _freeze, "stall": _stall, "cut": _cut,
    "lose answers": _lose_answers, "reset": _reset, "terminate": _terminate,
}  # fmt: skip


def _family(pid):
    """A process and its children."""
    told = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *map(int, told.split())]


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # a session that has ended meanwhile
