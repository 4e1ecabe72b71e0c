"""A long history made by SQL: runs that are copies of real ones, spread over a month.

Each copy has the row and the whole log of a run that really happened on this stack, with other ids
and times, so that every reader can read it. What lists filter by is dealt out unevenly on purpose:
some values are everywhere, some are rare, and some stand only in the oldest part.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from bench import playbooks
from noetl.api.executions import Control, Execute

if TYPE_CHECKING:
    from bench.stack import Stack

PATH: Final = "bench/template"
NOBODY: Final = "nobody"
"""A pool without workers."""
DAYS: Final = 30
CHUNK: Final = 25_000
LANES: Final = 2
_ROOM: Final = f"select noetl.ensure_partitions(now() - interval '{DAYS + 1} days', 3)"
_MONTHS: Final = "select name from noetl.months() where parent = 'event'"
_QUIET: Final = "alter table noetl.{} set (autovacuum_enabled = {})"
_RUNS: Final = """
create unlogged table bench_run (n int primary key, age double precision, execution_id bigint,
    template bigint, moved interval, shift bigint, parent bigint)"""
_PLACED: Final = """
insert into bench_run
with placed as (
    select n, n::double precision / $1 as age,
        now() - interval '1 minute' - ($1 - n) * (interval '1 day' * $2 / $1) as at,
        case when n % 20 = 7 then $4::bigint when n % 50 = 9 then $5::bigint else $3::bigint end
            as template
    from generate_series(1, $1::int) as n),
named as (
    select *, noetl.first_id(at) + (1023 << 12) as execution_id from placed)
select n, age, named.execution_id, template, at - t.started_at, named.execution_id - template,
    case when age > 0.95 then (select max(execution_id) from named where age <= 0.95)
        when n % 10 in (1, 2, 3)
        then lag(named.execution_id, (n % 10)::int) over (order by n) end
from named join noetl.execution t on t.execution_id = template"""
_EXECUTIONS: Final = """
insert into noetl.execution (execution_id, tenant_id, organization_id, catalog_id, path, version,
    kind, status, last_seq, last_event_id, last_event_type, current_steps, steps, event_count,
    pending_commands, workload, result, error, error_message, labels, trace, pool, priority,
    request_id, client_id, parent_execution_id, parent_key, root_execution_id, created_by,
    started_at, completed_at, updated_at)
select r.execution_id, t.tenant_id, t.organization_id,
    case when age < 0.1 then 10 when n % 5000 = 0 then 11 else t.catalog_id end,
    case when age > 0.95 then 'storm/item' when age < 0.2 then 'legacy/job_' || n % 30
        when n % 5000 = 0 then 'rare/one' else 'bench/flow_' || n % 40 end,
    case when age < 0.1 then 7 when n % 5000 = 0 then 9 else 1 + n % 3 end,
    t.kind, t.status, t.last_seq, t.last_event_id + r.shift, t.last_event_type, t.current_steps,
    t.steps, t.event_count, 0, t.workload, t.result, t.error,
    case when t.error_message is null then null
        when age < 0.2 then 'gone: ' || n else 'oops: the host ' || n % 100 || ' said no' end,
    case when age < 0.1 then '{"era": "old"}'::jsonb
        when n % 5000 = 0 then '{"team": "rare"}'::jsonb
        when n % 2 = 0 then jsonb_build_object('team', 'team-' || n % 8, 'batch', n / 1000)
        else '{}'::jsonb end,
    t.trace,
    case when age < 0.1 then 'retired' when n % 5000 = 0 then 'gpu' else t.pool end, t.priority,
    case when n % 5 = 0 then 'request-' || n end,
    case when age < 0.1 and n % 2 = 0 then 'client-old' when n % 5 = 0
        then 'client-' || n % 5000 end,
    r.parent, case when r.parent is not null then 'start#1' end,
    coalesce(r.parent, r.execution_id),
    case when age < 0.1 then 'leaver' when n % 5000 = 0 then 'visitor' else 'user-' || n % 50 end,
    t.started_at + r.moved, t.completed_at + r.moved, t.updated_at + r.moved
from bench_run r join noetl.execution t on t.execution_id = r.template
where n > $1 and n <= $2"""
_EVENTS: Final = """
insert into noetl.event (execution_id, seq, event_id, prev_event_id, event_type, step, node_id,
    node_type, status, command_id, attempt, iteration, worker_id, parent_event_id, created_at,
    event_time, duration_ms, context, result, meta, error, trace, idempotency_key)
select r.execution_id, e.seq, e.event_id + r.shift, e.prev_event_id + r.shift, e.event_type,
    e.step, e.node_id, e.node_type, e.status, e.command_id + r.shift, e.attempt, e.iteration,
    e.worker_id, e.parent_event_id + r.shift, e.created_at + r.moved, e.event_time + r.moved,
    e.duration_ms, e.context, e.result, e.meta, e.error, e.trace, e.idempotency_key
from bench_run r join noetl.event e on e.execution_id = r.template
where n > $1 and n <= $2
order by r.execution_id, e.seq"""
_LONG: Final = """
insert into noetl.event (execution_id, seq, event_id, event_type, step, node_id, node_type, status,
    attempt, created_at, context, meta)
select $1, $2 + n, $3::bigint + n, 'step.progress', 'start', 'start#1', 'command', 'RUNNING',
    1, now(), '{"percent": 1}'::json, '{"command_key": "start#1"}'::json
from generate_series(1, $4::int) as n"""
_MOVED: Final = """
update noetl.execution set last_seq = last_seq + $2, event_count = last_seq + $2
where execution_id = $1"""
_SIZES: Final = """
select (select reltuples::bigint from pg_class where oid = 'noetl.execution'::regclass) as runs,
    (select sum(reltuples)::bigint from pg_class join pg_inherits on inhrelid = oid
        where inhparent = 'noetl.event'::regclass) as events,
    pg_database_size(current_database()) / 1048576 as mib"""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was made."""

    runs: int
    events: int
    mib: int
    seconds: float


async def seed(stack: Stack, runs: int, steps: int) -> History:
    """Make so many runs, each with the log of a run of so many steps."""
    began = time.perf_counter()
    templates = await _templates(stack, steps)
    held = stack.connection
    await held.execute(_ROOM)
    await held.execute(_RUNS)
    await held.execute(_PLACED, runs, DAYS, *templates)
    await held.execute("analyze bench_run")
    months = await held.fetch(_MONTHS)
    tables = ["execution", *(row["name"] for row in months)]
    for name in tables:
        await held.execute(_QUIET.format(name, "false"))
    places = asyncio.Queue[int]()
    for first in range(0, runs, CHUNK):
        places.put_nowait(first)
    await asyncio.gather(*(_lane(stack.database_url, places, runs) for _ in range(LANES)))
    for name in tables:
        await held.execute(_QUIET.format(name, "true"))
        await held.execute(f"vacuum (analyze) noetl.{name}")
    await held.execute("drop table bench_run")
    sizes = await held.fetchrow(_SIZES)
    if sizes is None:
        raise RuntimeError("the database told nothing about itself")
    return History(**dict(sizes), seconds=round(time.perf_counter() - began, 1))


async def lengthened(stack: Stack, events: int) -> str:
    """A run that goes on, whose log has so many events more."""
    one = {"step": "start", "tool": playbooks.python("result = 1")}
    await stack.register(playbooks.playbook(f"{PATH}_long", one))
    started = await stack.client.execute(Execute(path=f"{PATH}_long", execution_pool=NOBODY))
    run = started.execution_id
    last = (await stack.client.status(run)).last_seq
    await stack.connection.execute(_LONG, int(run), last, int(run) + (1 << 21), events)
    await stack.connection.execute(_MOVED, int(run), events)
    return run


async def _templates(stack: Stack, steps: int) -> list[int]:
    """A run that ended well, one that failed, and one that was cancelled."""
    await stack.register(playbooks.chain(PATH, steps))
    good, _ = await stack.run(PATH)
    failing = {"step": "start", "tool": playbooks.python("raise ValueError('oops')")}
    await stack.register(playbooks.playbook(f"{PATH}_fails", failing))
    failed = (await stack.client.execute(Execute(path=f"{PATH}_fails"))).execution_id
    async for _ in stack.client.stream(failed):
        pass
    asked = Execute(path=PATH, execution_pool=NOBODY)
    cancelled = (await stack.client.execute(asked)).execution_id
    await stack.client.cancel(cancelled, Control())
    return [int(good), int(failed), int(cancelled)]


async def _lane(url: str, places: asyncio.Queue[int], runs: int) -> None:
    held = await asyncpg.connect(url)
    try:
        while not places.empty():
            first = places.get_nowait()
            last = min(first + CHUNK, runs)
            await held.execute(_EXECUTIONS, first, last)
            await held.execute(_EVENTS, first, last)
    finally:
        await held.close()
