"""R16: many running trees are cancelled at random moments; nothing of them starts afterwards.

A tree is a run with two children: one sleeps in a child process of the worker, the other has a
child of its own that calls the ledger step after step. The log of each run is the witness: what is
claimed after the cancel, or called without a claim before it, is wrong. A tool that was claimed
just before may begin while the word of the cancel is on its way; `measured` tells how late one did.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from textwrap import indent

import asyncpg

from noetl.api.catalog import Register
from noetl.api.executions import Control, Execute
from noetl.clock import SystemClock
from tests.reliability.ledger import Ledger
from tests.reliability.oracle import quiet
from tests.reliability.scenario import Verdict
from tests.reliability.work import HEAD, chain

TREES = 6
"""How many are cancelled in one round; each holds two slots."""
MOST_S = 1.5
"""How long a tree may live before its cancel."""
CALL_S = 0.02
STOPS_S = 5.0
"""How long a tool of a cancelled run may go on."""
ENDS_S = 30.0
STARTS = {"command.issued", "command.claimed", "command.started", "call.started"}
MEMBERS = """
select execution_id::text, status from noetl.execution where root_execution_id = $1
union select execution_id::text, status from noetl.execution where execution_id = $1
"""
SLEEP = """\
import os, time
open(os.path.join(folder, f"{tree}-{os.getpid()}"), "w").close()
time.sleep(600)
"""


def playbooks(marks):
    """The documents of a tree, the root last."""
    asleep = (
        f"{HEAD.replace('NAME', 'asleep')}workflow:\n  - step: start\n    tool:\n"
        f"      kind: python\n      input: {{folder: {marks}, tree: '{{{{ workload.tree }}}}'}}\n"
        f"      code: |\n{indent(SLEEP, '        ')}"
    )
    branch = (
        f"{HEAD.replace('NAME', 'branch')}workflow:\n  - step: start\n"
        "    tool: {kind: playbook, path: faults/chain, input: {url: '{{ workload.url }}'}}\n"
    )
    tree = (
        f"{HEAD.replace('NAME', 'tree')}workflow:\n  - step: start\n    tool:\n"
        "      kind: playbooks\n      items:\n"
        "        - {path: faults/branch, input: {url: '{{ workload.url }}'}}\n"
        "        - {path: faults/asleep, input: {tree: '{{ workload.tree }}'}}\n"
    )
    return [chain(200).text, asleep, branch, tree]


class Calls:
    """When each call of the ledger began."""

    def __init__(self):
        self.began = []
        self._clock = SystemClock()

    async def __call__(self, key, _row):
        self.began.append((key, self._clock.now()))
        await asyncio.sleep(CALL_S)


async def play(plan):
    """Start trees and cancel them, round after round."""
    verdict = Verdict(name="cancel_storm", seed=plan.seed, is_mid_tool=True)
    verdict.measured = {"latest_start_s": 0.0, "latest_process_s": 0.0}
    async with plan.stack() as stack, Ledger().open() as ledger:
        marks = stack.folder / "marks"
        marks.mkdir()
        calls = ledger.on_call = Calls()
        stack.add_server()
        stack.add_worker(slots=2 * TREES, NOETL_PYTHON_SANDBOX="off")
        await stack.start("server", "worker")
        for text in playbooks(marks):
            entry = await stack.client().register(Register(content=text))
        while not verdict.schedule or plan.left_s > 0:
            delays = [round(plan.random.uniform(0, MOST_S), 3) for _ in range(TREES)]
            verdict.schedule.append({"cancel_after_s": delays})
            bodies = [
                Execute(catalog_id=entry.catalog_id, payload={"url": ledger.url, "tree": tree})
                for tree in range(len(delays))
            ]
            roots = await asyncio.gather(
                *(
                    _one(stack, body, marks, delay_s, verdict)
                    for body, delay_s in zip(bodies, delays, strict=True)
                )
            )
            await _judged(stack, roots, calls, verdict)
            for mark in marks.iterdir():
                if is_alive(mark):
                    verdict.stuck.append(f"a process of tree {mark.name} still runs")
                mark.unlink()
            calls.began.clear()
        verdict.calls, verdict.repeats = ledger.calls.total(), ledger.repeats
        try:
            await quiet(stack)
        except AssertionError as left:
            verdict.stuck.append(str(left))
    return verdict


async def _one(stack, body, marks, delay_s, verdict):
    """Start a tree, cancel it later, and see its processes end."""
    tree, clock = body.payload["tree"], SystemClock()
    root = (await stack.client().execute(body)).execution_id
    verdict.accepted += 1
    await asyncio.sleep(delay_s)
    await stack.client().cancel(root, Control(reason="storm"))
    began = clock.monotonic()
    while any(map(is_alive, marks.glob(f"{tree}-*"))):
        if clock.monotonic() - began > STOPS_S:
            verdict.wrong.append(f"a process of {root} runs {STOPS_S:g} s after the cancel")
            break
        await asyncio.sleep(0.02)
    took_s = round(clock.monotonic() - began, 3)
    verdict.measured["latest_process_s"] = max(verdict.measured["latest_process_s"], took_s)
    return root


def is_alive(mark):
    """Whether the process lives that has left a mark."""
    return Path("/proc", mark.name.rpartition("-")[2]).exists()


async def _judged(stack, roots, calls, verdict):
    """Every run of every tree is cancelled, and has started nothing since."""
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        for root in roots:
            for run, status in await _ended(connection, root):
                if status != "CANCELLED":
                    verdict.stuck.append(f"{run} of the cancelled tree {root} is {status}")
                    continue
                rows = await stack.rows(run)
                end = [row for row in rows if row["event_type"] == "playbook.cancelled"]
                if len(end) != 1:
                    verdict.wrong.append(f"{run} has {len(end)} ends")
                    continue
                _compared(run, rows, end[0], calls, verdict)
    finally:
        await connection.close()


async def _ended(connection, root):
    """The runs of a tree, once all have ended or they do not."""
    clock = SystemClock()
    until = clock.monotonic() + ENDS_S
    while True:
        found = [tuple(row) for row in await connection.fetch(MEMBERS, int(root))]
        if {status for _, status in found} == {"CANCELLED"} or clock.monotonic() > until:
            return found
        await asyncio.sleep(0.05)


def _compared(run, rows, end, calls, verdict):
    """A run's log and the calls of its tools with its cancel."""
    for row in rows:
        if row["event_type"] in STARTS and row["seq"] > end["seq"]:
            verdict.wrong.append(f"{run}: {row['event_type']} of {row['step']} after the cancel")
    claimed = {row["step"] for row in rows if row["event_type"] == "command.claimed"}
    at = datetime.fromisoformat(end["created_at"])
    for key, began in calls.began:
        if not key.startswith(f"{run}/"):
            continue
        if key.split("/")[1] not in claimed:
            verdict.wrong.append(f"{key} was called and never claimed")
        late_s = round((began - at).total_seconds(), 3)
        verdict.measured["latest_start_s"] = max(verdict.measured["latest_start_s"], late_s)
        if late_s > STOPS_S:
            verdict.wrong.append(f"{key} was called {late_s} s after the cancel")
