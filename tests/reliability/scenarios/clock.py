"""Wall clocks jump, each process on its own: by an hour, by a day, forwards and back.

The time of the product is that of its database, which nobody moves here. A library that is loaded
into the processes (libfaketime) tells each of them another time of day; what measures durations is
left alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from noetl.api.catalog import Register
from noetl.api.schedules import ScheduleBody
from noetl.clock import SystemClock, rfc3339
from noetl.server.ticks import moment_of
from tests.reliability.ledger import Ledger
from tests.reliability.oracle import weigh
from tests.reliability.scenario import Verdict
from tests.reliability.work import HEAD, Work

PROCESSES = ("server-a", "server-b", "worker")
JUMPS_S = (3600, -3600, 86_400, -86_400, 5, -5)
FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
NOTICED_S = 1.2
"""A process asks once a second which time it is to tell."""
NAP_S, UNTIL_S = 1.0, 2.5
EARLY_S = 1.0
TABLES, EVERY_S = 10, 10
"""Time tables that fire in turn, so that every second one does."""
FAR_S = 1800.0
CALL = """kind: http
        method: POST
        url: "{{ workload.url }}"
        timeout: 60
        json: """
TIMED = f"""{HEAD.replace("NAME", "timed")}workflow:
  - step: start
    spec: {{timeout: 60}}
    tool:
      - name: nap
        kind: wait
        seconds: {NAP_S}
      - name: call
        {CALL}{{step: start, n: 0, due: "{{{{ workload.napped }}}}"}}
    next: {{arcs: [{{step: later}}]}}
  - step: later
    spec: {{timeout: 60}}
    tool:
      - name: hold
        kind: wait
        until: "{{{{ workload.until }}}}"
      - name: call
        {CALL}{{step: later, n: 1, due: "{{{{ workload.until }}}}"}}
result: "{{{{ later.call.data.value }}}}"
"""
TICK = f"""{HEAD.replace("NAME", "tick")}workflow:
  - step: start
    tool:
      - name: call
        {CALL}{{step: start, n: 0, due: "{{{{ workload.schedule.due_at }}}}",
               table: "{{{{ workload.schedule.name }}}}"}}
result: "{{{{ start.call.data.value }}}}"
"""
WORK = Work("timed", TIMED, 2, [("later", 1), ("start", 0)])
TICKED = Work("tick", TICK, 1, [("start", 0)])


async def play(plan):
    """Let clocks jump while timers and time tables run; a part may start anew at its other time."""
    verdict = Verdict(name="clock", seed=plan.seed)
    library = _library()
    if library is None:
        verdict.skipped = "libfaketime is not installed (apt-get install libfaketime)"
        return verdict
    clock, early = SystemClock(), []
    async with Ledger().open() as ledger, plan.stack() as stack:

        async def seen(key, row):
            before_s = (moment_of(row["due"]) - clock.now()).total_seconds()
            if before_s > EARLY_S:
                early.append(f"{key}: {before_s:.3f} s before {row['due']}")

        ledger.on_call = seen
        files = _faked(stack, library)
        await stack.start("server-a", "server-b")
        await stack.start("worker")
        tables = await _tables(stack, ledger)
        runs = {name: {} for name in ("server-a", "server-b")}
        for name, jump_s, is_new in _drawn(plan.random):
            verdict.schedule.append(f"{name} {jump_s:+} s{', started anew' if is_new else ''}")
            if is_new:
                await stack.parts[name].stop(10)
            files[name].write_text(f"{jump_s:+}\n")
            if is_new:
                await stack.start(name)
            await asyncio.sleep(NOTICED_S)
            for server, begun in runs.items():
                begun[await _begin(stack, ledger, clock, server)] = WORK
            if len(verdict.schedule) >= len(PROCESSES) and plan.left_s <= 0:
                break
        client = stack.client("server-a")
        for table in tables:
            await client.pause_schedule(table.schedule_id)
        await _judge(stack, ledger, runs, verdict)
        verdict.wrong += early
    return verdict


def _drawn(random):
    """Which process is told another time, and whether it starts with it; each process soon."""
    while True:
        for name in random.sample(PROCESSES, len(PROCESSES)):
            yield name, random.choice(JUMPS_S), random.random() < 0.25


def _library():
    """The library that tells another time, if this machine has it."""
    for folder in FOLDERS:
        for found in sorted(Path(folder).glob("**/faketime/libfaketimeMT.so.1")):
            return found
    return None


def _faked(stack, library):
    """The files in which each process reads how much later it is."""
    files = {}
    for name in PROCESSES:
        files[name] = file = stack.folder / f"{name}.time"
        file.write_text("+0\n")
        told = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        if name == "worker":
            stack.add_worker(name, server="server-a", slots=16, **told)
        else:
            stack.add_server(name, **told)
    return files


async def _tables(stack, ledger):
    """Time tables whose ticks are a second apart."""
    client = stack.client("server-a")
    await client.register(Register(content=TICK))
    begins = SystemClock().now().replace(microsecond=0) + timedelta(seconds=1)
    return [
        await client.add_schedule(
            ScheduleBody(
                name=f"table-{number}",
                path=TICKED.path,
                interval_seconds=EVERY_S,
                start_at=rfc3339(begins + timedelta(seconds=number)),
                payload={"url": ledger.url},
                catchup="all",
                overlap="allow",
            )
        )
        for number in range(TABLES)
    ]


async def _begin(stack, ledger, clock, server):
    now = clock.now()
    napped, until = (rfc3339(now + timedelta(seconds=wait_s)) for wait_s in (NAP_S, UNTIL_S))
    return await stack.begin(WORK, ledger, server, napped=napped, until=until)


async def _judge(stack, ledger, runs, verdict):
    """Whether ids grow, ticks come once each and none is left out, and everything has ended."""
    for server, begun in runs.items():
        ids = [int(run) for run in begun]
        if ids != sorted(set(ids)):
            verdict.wrong.append(f"ids of {server} do not grow: {ids}")
    ticked = await _ticked(stack)
    everything = runs["server-a"] | runs["server-b"] | dict.fromkeys(ticked, TICKED)
    await weigh(stack, ledger, everything, verdict, "server-a")
    fired = Counter((row["table"], row["due"]) for row in ledger.rows.values() if "table" in row)
    verdict.wrong += [f"fired {count} times: {tick}" for tick, count in fired.items() if count > 1]
    for table in {table for table, _ in fired}:
        dues = sorted(moment_of(due) for name, due in fired if name == table)
        gaps = {(later - due).total_seconds() for due, later in pairwise(dues)}
        if gaps - {EVERY_S}:
            verdict.wrong.append(f"{table} has left out ticks: {sorted(gaps)}")
    rows = [row for run in everything for row in await stack.rows(run, "server-a")]
    if len({row["event_id"] for row in rows}) != len(rows):
        verdict.wrong.append("two events have one id")
    verdict.measured = {"ticks": fired.total(), "shift_s": _shift(rows)}
    if verdict.measured["shift_s"] < FAR_S and _is_far(verdict.schedule):
        verdict.wrong.append("no clock has jumped: the library does nothing here")


async def _ticked(stack):
    """The runs that time tables began."""
    client, found, more = stack.client("server-a"), [], {}
    while True:
        page = await client.executions(limit=100, path=TICKED.path, **more)
        found += [item.execution_id for item in page.items]
        if page.next_cursor is None:
            return found
        more = {"cursor": page.next_cursor}


def _shift(rows):
    """The most that a worker's idea of the time was off, as its events tell."""
    shifts = [
        abs((moment_of(row["event_time"]) - moment_of(row["created_at"])).total_seconds())
        for row in rows
        if row["event_type"] == "call.done"
    ]
    return round(max(shifts, default=0.0), 3)


def _is_far(schedule):
    return any(item.startswith("worker") and abs(int(item.split()[1])) > FAR_S for item in schedule)
