"""The oracle for thousands of runs: what `oracle.judge` asks of each, asked of all in one go."""

from __future__ import annotations

import json

import asyncpg

from tests.reliability.oracle import ENDS

_RUNS = """
select execution_id::text, status, result, error_message, last_seq, event_count, pending_commands,
    completed_at
from noetl.execution where execution_id = any($1::bigint[])
"""
_EVENTS = """
select execution_id::text, count(*) as events, count(distinct seq) as seqs, max(seq) as last,
    count(*) filter (where event_type = any($2::text[])) as ends,
    count(*) filter (where event_type = 'command.completed') as completed
from noetl.event where execution_id = any($1::bigint[]) group by execution_id
"""
_OPEN = """
select count(*) from noetl.execution where completed_at is null and execution_id = any($1::bigint[])
"""
_PER_SECOND = """
select count(*) from noetl.execution where status = 'COMPLETED' and completed_at >= $1
    and completed_at < $2
"""


async def unfinished(connection, runs):
    """How many of these runs have not ended."""
    return await connection.fetchval(_OPEN, [int(run) for run in runs])


async def ended_between(connection, since, until):
    """How many runs were completed between two moments of the database's clock."""
    return await connection.fetchval(_PER_SECOND, since, until)


async def verdicts(stack, ledger, runs, verdict):
    """Judge runs, `{id: work}`, that had time to end; what is wrong goes into the verdict."""
    effects = _effects(ledger)
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        ids = [int(run) for run in runs]
        found = {row["execution_id"]: row for row in await connection.fetch(_RUNS, ids)}
        logs = {
            row["execution_id"]: row for row in await connection.fetch(_EVENTS, ids, sorted(ENDS))
        }
    finally:
        await connection.close()
    for run, work in runs.items():
        if run not in found:
            verdict.lost.append(f"run {run} was accepted and is not there")
        elif found[run]["completed_at"] is None:
            verdict.stuck.append(f"run {run} is {found[run]['status']}")
        else:
            told = _wrong(found[run], logs[run], work, effects.get(run, []))
            verdict.wrong.extend(f"run {run}: {words}" for words in told)


def _effects(ledger):
    """What ledger A holds, by run."""
    found = {}
    for key, row in ledger.rows.items():
        found.setdefault(key.partition("/")[0], []).append((row["step"], row["n"]))
    return found


def _wrong(row, log, work, effects):
    if row["status"] != "COMPLETED":
        yield f"{row['status']}: {row['error_message']}"
        return
    if (result := json.loads(row["result"] or "null")) != work.result:
        yield f"its result is {result!r}, not {work.result!r}"
    if sorted(effects) != work.effects:
        yield f"its effects are {sorted(effects)}"
    if log["ends"] != 1:
        yield f"it has {log['ends']} terminal events"
    if not log["events"] == log["seqs"] == log["last"] == row["last_seq"] == row["event_count"]:
        yield f"its log and its row differ: {dict(log)}, {row['last_seq']}, {row['event_count']}"
    if log["completed"] != (work.commands or len(work.effects) or 1) or row["pending_commands"]:
        yield f"{log['completed']} commands were completed, {row['pending_commands']} wait"
