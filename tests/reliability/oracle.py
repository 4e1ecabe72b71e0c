"""What must hold of every run after whatever happened, once all is quiet."""

from __future__ import annotations

import asyncio
from collections import Counter

import asyncpg

from noetl.clock import SystemClock

ENDS = {"playbook.completed", "playbook.failed", "playbook.cancelled"}
QUIET_S = 20.0
LEFT = """
select 'lease of ' || execution_id || '/' || step from noetl.command where status = 'CLAIMED'
union all select 'command of ' || c.execution_id || '/' || c.step from noetl.command c
    join noetl.execution e using (execution_id)
    where c.status in ('PENDING', 'PARKED') and e.completed_at is not null
union all select 'timer of ' || execution_id from noetl.timer where due_at < now()
union all select 'outbox of ' || execution_id || ' ' || kind from noetl.outbox
    where published_at is null
"""
OLDER = "update noetl.outbox set available_at = available_at - interval '10 s'"


async def judge(stack, ledger, runs, server="server", *, is_patient=False):
    """Check runs, `{id: work}`, from every side; what is left open is waited for."""
    for run in runs:
        await stack.ended(run, server)
    listed = await _listed(stack, server)
    for run, work in runs.items():
        await _run(stack, ledger, run, work, listed[run], server)
    await quiet(stack, is_patient=is_patient)


async def _listed(stack, server):
    """Every run as the list tells it."""
    client, found, more = stack.client(server), {}, {}
    while True:
        page = await stack.insist(lambda more=more: client.executions(limit=100, **more))
        found |= {item.execution_id: item for item in page.items}
        if page.next_cursor is None:
            return found
        more = {"cursor": page.next_cursor}


async def _run(stack, ledger, run, work, listed, server):  # noqa: PLR0913, PLR0917 - all sides
    client = stack.client(server)
    status = await stack.insist(lambda: client.status(run))
    detail = await stack.insist(lambda: client.execution(run))
    rows = await stack.rows(run, server)
    said = {status.status, detail.status, listed.status}
    assert said == {"COMPLETED"}, (said, detail.error)
    assert detail.result == work.result
    assert ledger.of(run) == work.effects
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert len({row["event_id"] for row in rows}) == len(rows)
    assert status.last_seq == detail.last_seq == len(rows)
    assert listed.event_count == detail.event_count == len(rows)
    assert (listed.pending_commands, detail.pending_commands) == (0, 0)
    kinds = Counter(row["event_type"] for row in rows)
    assert sum(kinds[name] for name in ENDS) == 1, kinds
    assert kinds["command.completed"] == (len(work.effects) or 1), kinds
    claims, given_back = _attempts(rows, "command.claimed"), _attempts(rows, "command.resumed")
    assert not [key for key, count in claims.items() if count > 1 + given_back[key]]


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
