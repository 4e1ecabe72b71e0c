"""The one statement of a commit: who lost a race is found first, and only winners are written.

A data-modifying statement is one round trip and one transaction whatever the batch holds. Six texts
exist, so that a step of a running chain does not pay for what only starts and ends need, nor a
start with one key for those with two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMED: Final = {"execution_id": "bigint", "expected_seq": "int", "document": "json"}
HEAD: Final = {
    "status": "text", "last_seq": "int", "last_event_id": "bigint", "last_event_type": "text",
    "current_steps": "text[]", "steps": "json", "pending_commands": "int", "result": "json",
    "error": "json", "error_message": "text", "completed_at": "timestamptz",
    "updated_at": "timestamptz", "snapshot": "bytea",
}  # fmt: skip
STARTS: Final = {
    "execution_id": "bigint", "has_key": "boolean", "tenant_id": "text", "organization_id": "text",
    "catalog_id": "bigint", "path": "text", "version": "int", "kind": "text", "workload": "json",
    "labels": "jsonb", "trace": "json", "pool": "text", "priority": "int",
    "concurrency_key": "text", "dedup_key": "text", "request_id": "text", "client_id": "text",
    "parent_execution_id": "bigint", "parent_key": "text", "root_execution_id": "bigint",
    "forked_from": "json", "rerun_of": "bigint", "created_by": "text",
    "started_at": "timestamptz",
}  # fmt: skip
KEYS: Final = {
    "scope": "text", "dedup_key": "text", "execution_id": "bigint", "body_digest": "bytea",
    "expires_at": "timestamptz",
}  # fmt: skip
EVENTS: Final = {
    "execution_id": "bigint", "seq": "int", "event_id": "bigint", "prev_event_id": "bigint",
    "event_type": "text", "step": "text", "node_id": "text", "node_type": "text",
    "status": "text", "command_id": "bigint", "attempt": "int", "iteration": "int",
    "worker_id": "text", "parent_event_id": "bigint", "created_at": "timestamptz",
    "event_time": "timestamptz", "duration_ms": "double precision", "context": "json",
    "result": "json", "meta": "json", "error": "json", "trace": "json", "idempotency_key": "text",
}  # fmt: skip
COMMANDS: Final = {
    "execution_id": "bigint", "command_id": "bigint", "command_key": "text", "step": "text",
    "tool_kind": "text", "pool": "text", "priority": "int", "status": "text",
    "is_paused": "boolean", "attempt": "int", "losses": "int", "max_attempts": "int",
    "worker_id": "text", "claimed_at": "timestamptz", "started_at": "timestamptz",
    "completed_at": "timestamptz", "lease_until": "timestamptz", "available_at": "timestamptz",
    "checkpoint": "json",
}  # fmt: skip
OUTBOX: Final = {
    "outbox_id": "bigint", "execution_id": "bigint", "kind": "text", "payload": "json",
    "first_seq": "int", "last_seq": "int", "available_at": "timestamptz",
}  # fmt: skip
TIMERS: Final = {
    "execution_id": "bigint", "timer_key": "text", "due_at": "timestamptz", "kind": "text",
    "is_paused": "boolean",
}  # fmt: skip
GONE: Final = {"execution_id": "bigint", "timer_key": "text"}
CALLBACKS: Final = {"key_sha256": "text", "execution_id": "bigint", "command_id": "bigint"}
ENDED: Final = {
    "execution_id": "bigint", "completed_at": "timestamptz", "told_to": "bigint",
}  # fmt: skip
TURNED: Final = {"execution_id": "bigint", "is_paused": "boolean"}

_WON: Final = "execution_id in (select execution_id from won)"
_OPEN: Final = "status in ('PENDING', 'CLAIMED', 'PARKED')"


class _Text:
    """Numbers the parameters as they come."""

    def __init__(self) -> None:
        self.used = 0

    def one(self) -> str:
        self.used += 1
        return f"${self.used}"

    def rows(self, columns: Mapping[str, str], alias: str) -> str:
        """Rows of one document, for what is only inserted: one parameter, encoded in one go."""
        return f"json_to_recordset({self.one()}::json) as {alias}({_typed(columns)})"

    def few(self, columns: Mapping[str, str], alias: str) -> str:
        """Rows of arrays, for what is looked up: the planner expects few of them."""
        arrays = ", ".join(f"{self.one()}::{kind}[]" for kind in columns.values())
        return f"unnest({arrays}) as {alias}({', '.join(columns)})"


def _typed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _columns(columns: Mapping[str, str], alias: str = "") -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(f"{prefix}{name}" for name in columns)


def _advanced(text: _Text) -> list[str]:
    return [
        f"""head as (
    select t.execution_id, t.expected_seq, r.* from {text.few(NAMED, "t")},
        json_to_record(t.document) as r({_typed(HEAD)}))""",  # noqa: S608 - made of constants
        """advanced as (
    update noetl.execution e set status = h.status, last_seq = h.last_seq,
        last_event_id = h.last_event_id, last_event_type = h.last_event_type,
        current_steps = h.current_steps, steps = h.steps, event_count = h.last_seq,
        pending_commands = h.pending_commands, result = h.result, error = h.error,
        error_message = h.error_message, completed_at = h.completed_at, updated_at = h.updated_at,
        snapshot = coalesce(h.snapshot, e.snapshot),
        snapshot_seq = case when h.snapshot is null then e.snapshot_seq else h.last_seq end
    from head h
    where e.execution_id = h.execution_id and e.last_seq = h.expected_seq and h.expected_seq > 0
    returning e.execution_id)""",
    ]


def _keys(text: _Text) -> list[str]:
    """Keys that were free; a start has one at most."""
    return [
        f"""keys as (
    insert into noetl.subscription_dedup as d ({_columns(KEYS)})
    select * from {text.rows(KEYS, "k")}
    where not exists (
        select from noetl.execution x where x.execution_id = k.execution_id)
    on conflict (scope, dedup_key) do update set execution_id = excluded.execution_id,
        body_digest = excluded.body_digest, expires_at = excluded.expires_at
    where d.expires_at <= {text.one()}::timestamptz
    returning d.execution_id)""",  # noqa: S608 - as above
    ]


def _more_keys(text: _Text) -> list[str]:
    """Keys of starts that may have two: one that is taken keeps the other from being written."""
    given, now = text.rows(KEYS, "k"), f"{text.one()}::timestamptz"
    return [
        f"given as (select * from {given})",  # noqa: S608 - as above
        # `offset 0`: each is looked up by its key. A plan that was made while the table was small
        # would go through all that have not expired.
        f"""taken as (
    select g.execution_id from given g cross join lateral (
        select d.expires_at from noetl.subscription_dedup d
        where d.scope = g.scope and d.dedup_key = g.dedup_key offset 0) as d
    where d.expires_at > {now})""",  # noqa: S608 - as above
        f"""tried as (
    insert into noetl.subscription_dedup as d ({_columns(KEYS)})
    select g.* from given g
    where not exists (select from noetl.execution x where x.execution_id = g.execution_id)
        and not exists (select from taken t where t.execution_id = g.execution_id)
    on conflict (scope, dedup_key) do update set execution_id = excluded.execution_id,
        body_digest = excluded.body_digest, expires_at = excluded.expires_at
    where d.expires_at <= {now}
    returning d.execution_id)""",  # noqa: S608 - as above
        """keys as (
    select execution_id from (select execution_id, count(*) as n from tried group by 1) as got
    join (select execution_id, count(*) as n from given group by 1) as asked
        using (execution_id, n))""",
    ]


_NO_HALF: Final = """
union all
select null where 1 / case when exists (
    select from tried where execution_id not in (select execution_id from keys)
) then 0 else 1 end = 0"""
"""A key that was taken between the look and the insert: nothing of the statement may stay."""


def _created(text: _Text, *, twice: bool) -> list[str]:
    """Runs that begin, when their id and their keys are free; a lost one leaves no key behind."""
    told = [name for name in STARTS if name not in {"execution_id", "has_key"}]
    return [
        *(_more_keys(text) if twice else _keys(text)),
        f"""created as (
    insert into noetl.execution (execution_id, status, last_seq, last_event_id, last_event_type,
        current_steps, steps, event_count, pending_commands, result, error, error_message,
        completed_at, updated_at, snapshot, snapshot_seq, {", ".join(told)})
    select h.execution_id, h.status, h.last_seq, h.last_event_id, h.last_event_type,
        h.current_steps, h.steps, h.last_seq, h.pending_commands, h.result, h.error,
        h.error_message, h.completed_at, h.updated_at, h.snapshot,
        case when h.snapshot is not null then h.last_seq end,
        {", ".join(f"s.{name}" for name in told)}
    from {text.rows(STARTS, "s")} join head h on h.execution_id = s.execution_id
    where not s.has_key or s.execution_id in (select execution_id from keys)
    on conflict (execution_id) do nothing
    returning execution_id)""",  # noqa: S608 - as above
        "won as (select execution_id from advanced union all select execution_id from created)",
    ]


def _written(text: _Text) -> list[str]:
    return [
        f"""events as (
    insert into noetl.event ({_columns(EVENTS)})
    select * from {text.rows(EVENTS, "t")} where {_WON})""",  # noqa: S608 - as above
        f"""told as (select * from {text.rows(COMMANDS, "t")})""",  # noqa: S608 - as above
        f"""commands as (
    insert into noetl.command as c ({_columns(COMMANDS)}, hinted_at)
    select *, available_at from told where {_WON}
    on conflict (execution_id, command_id) do update set status = excluded.status,
        is_paused = excluded.is_paused, attempt = excluded.attempt, losses = excluded.losses,
        worker_id = excluded.worker_id, started_at = excluded.started_at,
        claimed_at = coalesce(excluded.claimed_at, c.claimed_at),
        completed_at = excluded.completed_at,
        lease_until = case
            when c.status = 'CLAIMED' and c.worker_id = excluded.worker_id
                and c.attempt = excluded.attempt and c.lease_until > excluded.lease_until
            then c.lease_until else excluded.lease_until end,
        available_at = coalesce(excluded.available_at, c.available_at),
        hinted_at = coalesce(excluded.available_at, c.available_at),
        checkpoint = case when c.is_kept and excluded.status <> 'PARKED'
            then c.checkpoint else excluded.checkpoint end,
        is_kept = c.is_kept and excluded.status <> 'PARKED')""",  # noqa: S608 - as above
        f"""outgoing as (
    insert into noetl.outbox ({_columns(OUTBOX)})
    select * from {text.rows(OUTBOX, "t")} where {_WON}
    on conflict do nothing)""",  # noqa: S608 - as above
        f"""delivered as (
    delete from noetl.outbox where outbox_id = any({text.one()}::bigint[]))""",  # noqa: S608 - as above
    ]


def _rest(text: _Text) -> list[str]:
    """Timers, callbacks, and what follows from the end, the pause or the resumption of a run.

    No row is touched twice by one statement: which of both would count is not defined.
    """
    return [
        f"timed as (select * from {text.rows(TIMERS, 't')})",  # noqa: S608 - as above
        f"gone as (select * from {text.few(GONE, 't')} where {_WON})",  # noqa: S608 - as above
        f"ended as (select * from {text.few(ENDED, 't')} where {_WON})",  # noqa: S608 - as above
        f"turned as (select * from {text.few(TURNED, 't')} where {_WON})",  # noqa: S608 - as above
        f"""timers as (
    insert into noetl.timer ({_columns(TIMERS)}) select * from timed where {_WON}
    on conflict (execution_id, timer_key) do update set due_at = excluded.due_at,
        kind = excluded.kind, is_paused = excluded.is_paused)""",  # noqa: S608 - as above
        """timers_gone as (
    delete from noetl.timer r using gone g
    where r.execution_id = g.execution_id and r.timer_key = g.timer_key)""",
        """timers_ended as (
    delete from noetl.timer r using ended n where r.execution_id = n.execution_id)""",
        """timers_turned as (
    update noetl.timer r set is_paused = t.is_paused from turned t
    where r.execution_id = t.execution_id
        and not exists (select from timed i
            where i.execution_id = r.execution_id and i.timer_key = r.timer_key)
        and not exists (select from gone g
            where g.execution_id = r.execution_id and g.timer_key = r.timer_key))""",
        f"""callbacks as (
    insert into noetl.callback ({_columns(CALLBACKS)})
    select * from {text.rows(CALLBACKS, "t")} where {_WON}
    on conflict (key_sha256) do update set execution_id = excluded.execution_id,
        command_id = excluded.command_id)""",  # noqa: S608 - as above
        """outcomes as (
    insert into noetl.subscription_outcome (subscription_id, execution_id)
    select s.subscription_id, n.execution_id
    from ended n join noetl.subscription s on s.subscription_id = n.told_to)""",
        f"""closed as (
    update noetl.command c set status = 'CANCELLED', completed_at = n.completed_at,
        worker_id = null, lease_until = null
    from ended n where c.execution_id = n.execution_id and c.{_OPEN}
        and not exists (select from told i where i.command_id = c.command_id))""",  # noqa: S608 - as above
        f"""commands_turned as (
    update noetl.command c set is_paused = t.is_paused, hinted_at = c.available_at
    from turned t where c.execution_id = t.execution_id and c.{_OPEN}
        and not exists (select from told i where i.command_id = c.command_id))""",  # noqa: S608 - as above
    ]


def _statement(*, starts: bool, rest: bool, twice: bool = False) -> str:
    text = _Text()
    parts = _advanced(text)
    alone = ["won as (select execution_id from advanced)"]
    parts += _created(text, twice=twice) if starts else alone
    parts += _written(text)
    if rest:
        parts += _rest(text)
    last = _NO_HALF if twice else ""
    return "with " + ",\n".join(parts) + "\nselect execution_id from won" + last


COMMIT: Final = {
    (starts, rest): _statement(starts=starts, rest=rest)
    for starts in (False, True)
    for rest in (False, True)
}
"""By whether runs begin, and whether there is more than events, commands and messages."""
COMMIT_TWICE: Final = {
    rest: _statement(starts=True, rest=rest, twice=True) for rest in (False, True)
}
"""The same for batches in which a run begins under two keys."""
