"""What must hold of every run after whatever happened, once all is quiet."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections import Counter

import asyncpg

from noetl.api.problems import Refused
from noetl.clock import SystemClock
from tests.reliability.rebuild import readers

ENDS = {"playbook.completed", "playbook.failed", "playbook.cancelled"}
AGAIN = {"command.lost", "command.resumed"}
QUIET_S = 20.0
LOOK_S = 1.0
"""For each run, when all the time has passed."""
LEFT = """
select 'lease of ' || execution_id || '/' || step from noetl.command where status = 'CLAIMED'
union all select 'command of ' || c.execution_id || '/' || c.step from noetl.command c
    join noetl.execution e using (execution_id)
    where c.status in ('PENDING', 'PARKED') and e.completed_at is not null
union all select 'timer of ' || execution_id from noetl.timer where due_at < now()
union all select 'outbox of ' || execution_id || ' ' || kind from noetl.outbox
    where published_at is null
"""
ROOTS = "select execution_id::text from noetl.execution where parent_execution_id is null"
OLDER = "update noetl.outbox set available_at = available_at - interval '10 s'"


async def judge(stack, ledger, runs, server="server", *, is_patient=False):
    """Check runs, `{id: work}`, from every side; what is left open is waited for."""
    for run in runs:
        await stack.ended(run, server)
    async with readers(stack.postgres.url) as rebuild:
        sides = Sides(stack, ledger, server, await _listed(stack, server), rebuild)
        for run, work in runs.items():
            await sides.check(run, work)
    await quiet(stack, is_patient=is_patient)


async def weigh(stack, ledger, runs, verdict, server="server", *, within_s=60.0, is_patient=False):  # noqa: PLR0913 - all sides
    """Judge runs as `judge` does, each into the words of a verdict."""
    verdict.accepted += len(runs)
    ended = await _ended(stack, runs, verdict, server, within_s)
    async with readers(stack.postgres.url) as rebuild:
        sides = Sides(stack, ledger, server, await _listed(stack, server), rebuild)
        for run, work in ended.items():
            try:
                await sides.check(run, work)
            except (AssertionError, KeyError) as wrong:
                told = traceback.extract_tb(wrong.__traceback__)[-1].line
                verdict.wrong.append(f"{run} ({work.name}): {told}: {wrong}")
                await keep(stack, run, server)
    if strays := stack.strays():
        verdict.wrong.append(f"processes that nobody has begun: {strays}")
    try:
        await quiet(stack, is_patient=is_patient)
    except AssertionError as left:
        verdict.stuck.append(str(left))
    verdict.calls, verdict.repeats = ledger.calls.total(), ledger.repeats


async def ghosts(stack, runs):
    """Runs that nobody was told of, when every start was sent until it was answered."""
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        found = {row[0] for row in await connection.fetch(ROOTS)}
    finally:
        await connection.close()
    return [f"nobody has asked for {run}" for run in sorted(found - set(runs))]


async def _ended(stack, runs, verdict, server, within_s):
    """Wait for the ends of runs; those that have come to one."""
    clock, ended = SystemClock(), {}
    until = clock.monotonic() + within_s
    for run, work in runs.items():
        try:
            async with asyncio.timeout(max(LOOK_S, until - clock.monotonic())):
                await stack.ended(run, server)
        except Refused as refusal:
            verdict.lost.append(f"{run} ({work.name}): {refusal}")
        except TimeoutError:
            verdict.stuck.append(f"{run} ({work.name}) has not ended in {within_s:g} s")
            await keep(stack, run, server)
        else:
            ended[run] = work
    return ended


async def keep(stack, run, server):
    """Leave the log of a run where it is found, if anybody tells it."""
    folder = stack.folder / "events"
    folder.mkdir(exist_ok=True)
    try:
        async with asyncio.timeout(QUIET_S):
            rows = await stack.rows(run, server)
    except TimeoutError:
        return
    (folder / f"{run}.json").write_text(json.dumps(rows, indent=1, default=str))


async def _listed(stack, server):
    """Every run as the list tells it."""
    client, found, more = stack.client(server), {}, {}
    while True:
        page = await stack.insist(lambda more=more: client.executions(limit=100, **more))
        found |= {item.execution_id: item for item in page.items}
        if page.next_cursor is None:
            return found
        more = {"cursor": page.next_cursor}


class Sides:
    """All sides from which a run is looked at."""

    def __init__(self, stack, ledger, server, listed, rebuild):
        self._stack = stack
        self._ledger = ledger
        self._client = stack.client(server)
        self._server = server
        self._listed = listed
        self._rebuild = rebuild

    async def check(self, run, work):
        """Whether a run has come to what its work is to come to."""
        status, detail, listed, rows = await self._views(run)
        folded, differences = await self._rebuild.differences(run)
        said = {status.status, detail.status, listed.status, folded}
        assert said == {"COMPLETED"}, (said, detail.error)
        assert detail.result == work.result, (detail.result, work.result)
        effects = self._ledger.of(run)
        assert effects == work.effects, (effects, work.effects)
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert len({row["event_id"] for row in rows}) == len(rows)
        assert status.last_seq == detail.last_seq == len(rows)
        assert listed.event_count == detail.event_count == len(rows)
        assert (listed.pending_commands, detail.pending_commands) == (0, 0)
        kinds = Counter(row["event_type"] for row in rows)
        assert sum(kinds[name] for name in ENDS) == 1, kinds
        assert kinds["command.completed"] == (work.commands or len(work.effects) or 1), kinds
        claims, given_back = _attempts(rows, "command.claimed"), _attempts(rows, "command.resumed")
        assert not [key for key, count in claims.items() if count > 1 + given_back[key]]
        unexplained = self._unexplained(rows)
        assert not unexplained, f"called again without a reason: {unexplained}"
        assert not differences, differences
        if work.child is not None:
            found = [item.execution_id for item in (await self._children(run)).items]
            assert len(found) == 1, f"children {found}"
            await self.check(found[0], work.child)

    async def _views(self, run):
        """What is told of a run, all of one moment: reports that come late go behind its end."""
        stack, client = self._stack, self._client
        after = await stack.insist(lambda: client.status(run))
        while True:
            before, detail = after, await stack.insist(lambda: client.execution(run))
            rows = await stack.rows(run, self._server)
            if run not in self._listed or self._listed[run].event_count != len(rows):
                self._listed = await _listed(stack, self._server)
            after = await stack.insist(lambda: client.status(run))
            if after.last_seq == before.last_seq:
                return after, detail, self._listed[run], rows

    async def _children(self, run):
        return await self._stack.insist(lambda: self._client.children(run))

    def _unexplained(self, rows):
        """Calls beyond those of attempts that were lost or given back, by key."""
        again = Counter(row["node_id"] for row in rows if row["event_type"] in AGAIN)
        keys = {
            row["idempotency_key"]: row["node_id"]
            for row in rows
            if row["event_type"] == "command.issued"
        }
        calls = self._ledger.calls
        return {key: calls[key] for key, node in keys.items() if calls[key] > 1 + again[node]}


def _attempts(rows, name):
    """How often there is an event of each attempt."""
    return Counter((row["node_id"], row["attempt"]) for row in rows if row["event_type"] == name)


async def quiet(stack, *, is_patient=False):
    """Wait until no lease, no due timer and no unpublished row is left.

    What a server left unpublished falls due after ten seconds; who is not patient has them passed.
    """
    clock = SystemClock()
    until = clock.monotonic() + QUIET_S
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        if not is_patient:
            await connection.execute(OLDER)
        while left := [row[0] for row in await connection.fetch(LEFT)]:
            assert clock.monotonic() < until, f"after {QUIET_S} s there is still {Counter(left)}"
            await asyncio.sleep(0.2)
    finally:
        await connection.close()
