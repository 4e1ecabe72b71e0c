"""Subscriptions, their logs, and the ends of the runs that their messages started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import asyncpg

from noetl.clock import rfc3339
from noetl.store.postgres.documents import shown, shown_or_none, stored, value_of, written
from noetl.store.postgres.rows import event_document
from noetl.store.postgres.statements import EVENTS
from noetl.store.postgres.values import id_of, moment, text_of, told
from noetl.store.subscriptions import ListenerTaken, OutcomeRow, SubscriptionRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded
    from noetl.store.postgres.database import Database
    from noetl.store.subscriptions import Appended, LetterRow

_ROW: Final = {
    "catalog_id": "bigint", "version": "int", "state": "text", "listener": "text",
    "last_event_type": "text", "last_event_id": "bigint", "last_seq": "int",
    "updated_at": "timestamptz", "next_tick_at": "timestamptz", "last_execution_id": "bigint",
    "summary": "json",
}  # fmt: skip
_LETTERS: Final = {
    "ref": "text", "message_id": "text", "reason": "text", "attempts": "int",
    "result_ref": "text", "at": "timestamptz",
}  # fmt: skip
_COLUMNS: Final = ", ".join(_ROW)


def _typed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


_EVENTS: Final = ", ".join(EVENTS)
_ADD_EVENTS: Final = f"""events as (
    insert into noetl.event ({_EVENTS})
    select * from json_to_recordset($3::json) as t({_typed(dict(EVENTS))})
    where exists (select from head))"""  # noqa: S608 - made of constants
_REGISTER: Final = f"""
with head as (
    insert into noetl.subscription (subscription_id, tenant_id, path, {_COLUMNS})
    select $1, $4, $5, r.* from json_to_record($2::json) as r({_typed(_ROW)})
    on conflict (tenant_id, path) do nothing
    returning subscription_id),
{_ADD_EVENTS}
select subscription_id from head"""  # noqa: S608 - as above
_APPEND: Final = f"""
with head as (
    update noetl.subscription s set ({_COLUMNS}) =
        (select r.* from json_to_record($2::json) as r({_typed(_ROW)}))
    where s.subscription_id = $1 and s.last_seq = $4
    returning s.subscription_id),
{_ADD_EVENTS},
gone as (
    delete from noetl.dead_letter d
    where d.subscription_id = $1 and d.ref = any($6::text[]) and exists (select from head)),
letters as (
    insert into noetl.dead_letter (subscription_id, {", ".join(_LETTERS)})
    select $1, t.* from json_to_recordset($5::json) as t({_typed(_LETTERS)})
    where exists (select from head)
    on conflict (subscription_id, ref) do update set reason = excluded.reason,
        attempts = excluded.attempts, at = excluded.at,
        result_ref = coalesce(excluded.result_ref, noetl.dead_letter.result_ref))
select subscription_id from head"""  # noqa: S608 - as above
_FROM: Final = f"""
select subscription_id, tenant_id, path, {_COLUMNS} from noetl.subscription"""  # noqa: S608 - as above
_GET: Final = f"{_FROM} where subscription_id = $1"
_FIND: Final = f"{_FROM} where tenant_id = $1 and path = $2"
_LISTENING: Final = f"{_FROM} where listener = $1"
_LISTED: Final = f"""{_FROM}
where ($1::text is null or tenant_id = $1) and ($2::text is null or state = $2)
order by path collate "C", tenant_id collate "C" """
_KNOWN: Final = """
select event_id, seq from noetl.event where execution_id = $1 and event_id = any($2::bigint[])"""
_HELD: Final = """
select k.scope, k.dedup_key from unnest($1::text[], $2::text[]) as k(scope, dedup_key)
cross join lateral (
    select d.expires_at from noetl.subscription_dedup d
    where d.scope = k.scope and d.dedup_key = k.dedup_key offset 0) as d
where d.expires_at > $3"""
_DUE: Final = f"{_FROM} where next_tick_at <= $1 order by next_tick_at, subscription_id limit $2"
_NEXT: Final = "select min(next_tick_at) from noetl.subscription"
_OUTCOMES: Final = """
select o.xid::text as xid, o.execution_id, e.status, e.error::text as error,
    started.meta::text as meta
from noetl.subscription_outcome o
left join noetl.execution e on e.execution_id = o.execution_id
left join noetl.event started on started.execution_id = o.execution_id and started.seq = 1
where o.subscription_id = $1 and (o.xid, o.execution_id) > ($2::text::xid8, $3::bigint)
    and o.xid < pg_snapshot_xmin(pg_current_snapshot())
order by o.xid, o.execution_id limit $4"""
# A cursor from before the database was restored knows transactions that there were not yet.
_IS_OURS: Final = "select $1::text::xid8 <= pg_snapshot_xmax(pg_current_snapshot())"
_NOW: Final = "select pg_snapshot_xmin(pg_current_snapshot())::text"
_COUNTED: Final = """
select status, count(*) as runs from noetl.execution
where parent_execution_id = $1 and execution_id >= noetl.first_id($2) group by status"""


class PostgresSubscriptions:
    """Subscriptions by id, and by tenant and path."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, row: SubscriptionRow, event: Recorded) -> SubscriptionRow:
        """Keep a new one with its first event; the known one of that tenant and path as it is."""
        try:
            await self._database.fetchrow(
                _REGISTER,
                id_of(row.subscription_id),
                written(_document(row)),
                written([event_document(event)]),
                stored(row.tenant_id),
                stored(row.path),
            )
        except asyncpg.UniqueViolationError:
            raise taken(row) from None
        found = await self.find(row.tenant_id, row.path)
        if found is None:
            raise AssertionError("it was kept just now, and nobody removes one")
        return found

    async def get(self, subscription_id: str) -> SubscriptionRow | None:
        """One by its id."""
        return _one(await self._database.fetchrow(_GET, id_of(subscription_id)))

    async def find(self, tenant_id: str, path: str) -> SubscriptionRow | None:
        """The one of a path."""
        return _one(await self._database.fetchrow(_FIND, stored(tenant_id), stored(path)))

    async def listening(self, listener: str) -> SubscriptionRow | None:
        """The one that listens under a name."""
        return _one(await self._database.fetchrow(_LISTENING, stored(listener)))

    async def listed(
        self, tenant_id: str | None = None, state: str | None = None
    ) -> list[SubscriptionRow]:
        """All of a tenant, or of every tenant, by path."""
        tenant = None if tenant_id is None else stored(tenant_id)
        rows = await self._database.background.fetch(_LISTED, tenant, state)
        return [_row(row) for row in rows]

    async def append(self, change: Appended) -> bool:
        """Write events and the row together; false when another writer was faster."""
        row = change.row
        try:
            found = await self._database.fetchrow(
                _APPEND,
                id_of(row.subscription_id),
                written(_document(row)),
                written([event_document(event) for event in change.events]),
                change.expected_seq,
                written([_letter(letter) for letter in change.letters]),
                [stored(ref) for ref in change.letters_gone],
            )
        except asyncpg.UniqueViolationError as clash:
            if "listener" in str(clash.constraint_name):
                raise taken(row) from None
            return False  # one of the events is stored
        return found is not None

    async def known(self, subscription_id: str, event_ids: Sequence[str]) -> dict[str, int]:
        """Those of these events that its log has, and where."""
        numbers = [id_of(text) for text in event_ids]
        rows = await self._database.fetch(_KNOWN, id_of(subscription_id), numbers)
        return {str(row["event_id"]): row["seq"] for row in rows}


class PostgresKeys:
    """Keys under which runs were started."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def held(self, keys: Sequence[tuple[str, str]], now: str) -> frozenset[tuple[str, str]]:
        """Those of these scopes and keys that have started a run within their windows."""
        scopes, names = [stored(scope) for scope, _ in keys], [stored(name) for _, name in keys]
        rows = await self._database.fetch(_HELD, scopes, names, moment(now))
        return frozenset((shown(row["scope"]), shown(row["dedup_key"])) for row in rows)


class PostgresTicks:
    """Subscriptions that are drained by the clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def due(self, now: str, limit: int = 100) -> list[SubscriptionRow]:
        """Those whose time has come, oldest first."""
        rows = await self._database.background.fetch(_DUE, moment(now), limit)
        return [_row(row) for row in rows]

    async def next_due(self) -> str | None:
        """When the next one is due."""
        return told(await self._database.background.fetchval(_NEXT))


class PostgresOutcomes:
    """Ends of runs, in the order of the transactions that wrote them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def after(
        self, subscription_id: str, cursor: str, limit: int
    ) -> tuple[list[OutcomeRow], str]:
        """The ends behind a cursor, and the cursor behind them."""
        xid, _, execution_id = cursor.partition(".")
        if not xid or not await self._database.background.fetchval(_IS_OURS, xid):
            xid, execution_id = "0", "0"
        rows = await self._database.background.fetch(
            _OUTCOMES, id_of(subscription_id), xid, id_of(execution_id) or 0, limit
        )
        if rows:
            xid, execution_id = rows[-1]["xid"], str(rows[-1]["execution_id"])
        found = [_outcome(row) for row in rows if row["status"] is not None]
        return found, f"{xid}.{execution_id}"

    async def newest(self, subscription_id: str) -> str:
        """The cursor behind all that has ended by now."""
        del subscription_id  # transactions are of the whole database
        return f"{await self._database.background.fetchval(_NOW)}.0"

    async def counted(self, subscription_id: str, since: str) -> dict[str, int]:
        """How many runs of its messages began since a moment, by status."""
        rows = await self._database.background.fetch(
            _COUNTED, id_of(subscription_id), moment(since)
        )
        return {row["status"]: row["runs"] for row in rows}


def taken(row: SubscriptionRow) -> ListenerTaken:
    """Another subscription has the listener of this one."""
    return ListenerTaken(
        f"another subscription listens at `{row.listener}`", hint="choose another gateway_path"
    )


def _document(row: SubscriptionRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _ROW}


def _letter(letter: LetterRow) -> dict[str, Any]:
    return {name: getattr(letter, name) for name in _LETTERS}


def _one(row: asyncpg.Record | None) -> SubscriptionRow | None:
    return None if row is None else _row(row)


def _row(row: asyncpg.Record) -> SubscriptionRow:
    return SubscriptionRow(
        subscription_id=str(row["subscription_id"]),
        tenant_id=shown(row["tenant_id"]),
        path=shown(row["path"]),
        catalog_id=str(row["catalog_id"]),
        version=row["version"],
        state=row["state"],
        listener=shown_or_none(row["listener"]),
        last_event_type=row["last_event_type"] or "",
        last_event_id=text_of(row["last_event_id"]),
        last_seq=row["last_seq"],
        updated_at=rfc3339(row["updated_at"]),
        next_tick_at=told(row["next_tick_at"]),
        last_execution_id=text_of(row["last_execution_id"]),
        summary=value_of(row["summary"]) or {},
    )


def _outcome(row: asyncpg.Record) -> OutcomeRow:
    meta = value_of(row["meta"]) or {}
    return OutcomeRow(
        execution_id=str(row["execution_id"]),
        status=row["status"],
        error=value_of(row["error"]),
        subscription=meta.get("subscription") or {},
    )
