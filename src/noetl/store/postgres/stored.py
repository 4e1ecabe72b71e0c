"""What is known of bytes that lie apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import shown, shown_or_none, stored, value_of, written
from noetl.store.postgres.values import id_of, moment, text_of, told
from noetl.store.stored import Forgotten, HeldRow, RequestRow, ResultRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from noetl.store.postgres.database import Database

_KEEP: Final = """
insert into noetl.result (result_id, tenant_id, execution_id, name, scope, source_step, ref,
    object_key, content_type, bytes, sha256, created_at, expires_at)
values ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10, $11, $12)
on conflict (ref) do update set tenant_id = excluded.tenant_id, name = excluded.name,
    scope = excluded.scope, source_step = excluded.source_step, expires_at = excluded.expires_at"""
_FOUND: Final = """
select result_id, tenant_id, execution_id, name, scope, source_step, ref, content_type, bytes,
    sha256, created_at, expires_at
from noetl.result where ref = any($1::text[])"""
# Two questions, each with an index of its own. A row that is written to meanwhile is looked at once
# more before it is deleted.
_FORGET_EXPIRED: Final = """
with over as (
    (select ref, result_id from noetl.result where expires_at <= $1 order by expires_at limit $2)
    union
    (select ref, result_id from noetl.result
    where scope = 'step' and exists (
        select 1 from noetl.execution run
        where run.execution_id = result.execution_id and run.completed_at is not null)
    limit $2)
    order by result_id limit $2),
gone as (
    delete from noetl.result using over
    where result.ref = over.ref and (result.expires_at <= $1 or result.scope = 'step')
    returning result.ref, result.object_key, result.result_id)
select ref, object_key from gone order by result_id"""
_DELETE: Final = """
with gone as (delete from noetl.result where ref = any($1::text[]) returning 1)
select count(*) from gone"""
_OWNERLESS: Final = """
select given.id from unnest($1::bigint[]) given (id)
where not exists (select 1 from noetl.execution run where run.execution_id = given.id)"""
_FIRST: Final = """
insert into noetl.request_result
    (request_id, execution_id, sha256, created_at, expires_at, body, media_type)
values ($1, $2, $3, $4, $5, $7, $8)
on conflict (request_id) do update set execution_id = excluded.execution_id,
    sha256 = excluded.sha256, created_at = excluded.created_at, expires_at = excluded.expires_at,
    body = excluded.body, media_type = excluded.media_type
    where request_result.expires_at <= $6
returning *"""
_REQUEST: Final = """
select * from noetl.request_result
where request_id = $1 and (expires_at is null or expires_at > $2)"""
_HOLD: Final = """
insert into noetl.callback_held (execution_id, step, job_name, body, expires_at)
values ($1, $2, $3, $4, $5) on conflict do nothing returning true"""
_WAITING: Final = "select * from noetl.callback_held order by expires_at limit $1"
_DROP: Final = """
delete from noetl.callback_held where execution_id = $1 and step = $2 and job_name = $3
returning true"""
_MARK: Final = """
update noetl.execution set unexported = $2 where execution_id = any($1::bigint[])
returning execution_id"""
_UNEXPORTED: Final = """
select execution_id from noetl.execution where execution_id = any($1::bigint[]) and unexported"""


class PostgresResults:
    """The columns of `noetl.result` beside the bytes; what the blobs write has a row, too."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, row: ResultRow) -> None:
        """Say whose a value is."""
        await self._database.execute(
            _KEEP,
            id_of(row.result_id),
            row.tenant_id,
            id_of(row.execution_id),
            stored(row.name),
            row.scope,
            None if row.source_step is None else stored(row.source_step),
            row.key,
            row.content_type,
            row.size,
            bytes.fromhex(row.sha256),
            moment(row.created_at),
            moment(row.expires_at),
        )

    async def found(self, keys: Sequence[str]) -> dict[str, ResultRow]:
        """Rows by key."""
        rows = await self._database.fetch(_FOUND, list(keys))
        return {row["ref"]: _result(row) for row in rows}

    async def forget_expired(self, now: str, limit: int = 1000) -> list[Forgotten]:
        """Forget values whose time has passed, or whose step's run has ended, in one step."""
        rows = await self._database.background.fetch(_FORGET_EXPIRED, moment(now), limit)
        return [Forgotten(row["ref"], row["object_key"]) for row in rows]

    async def delete(self, keys: Sequence[str]) -> int:
        """Forget rows, and the bytes that lie in them."""
        return int(await self._database.fetchval(_DELETE, list(keys)))

    async def ownerless(self, execution_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that there are not."""
        rows = await self._database.background.fetch(_OWNERLESS, _ids(execution_ids))
        return frozenset(str(row["id"]) for row in rows)


class PostgresRequests:
    """Results of clients' requests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def first(self, row: RequestRow, now: str) -> RequestRow:
        """Keep the result of a request; the one that counts."""
        made = await self._database.fetchrow(
            _FIRST,
            stored(row.request_id),
            id_of(row.execution_id),
            bytes.fromhex(row.sha256),
            moment(row.created_at),
            moment(row.expires_at),
            moment(now),
            row.body,
            None if row.media_type is None else stored(row.media_type),
        )
        if made is not None:
            return _request(made)
        found = await self.get(row.request_id, now)
        return row if found is None else found  # its time has passed between the two statements

    async def get(self, request_id: str, now: str) -> RequestRow | None:
        """The result of a request, unless its time has passed."""
        row = await self._database.fetchrow(_REQUEST, stored(request_id), moment(now))
        return None if row is None else _request(row)


class PostgresHeld:
    """Callbacks that wait."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, row: HeldRow) -> bool:
        """Keep a callback; false when one of that job is kept already."""
        body, until = written(row.body), moment(row.expires_at)
        return bool(await self._database.fetchval(_HOLD, *_held_key(row), body, until))

    async def waiting(self, limit: int = 1000) -> list[HeldRow]:
        """Callbacks that wait."""
        return [_held(row) for row in await self._database.background.fetch(_WAITING, limit)]

    async def drop(self, row: HeldRow) -> bool:
        """Forget a callback."""
        return bool(await self._database.fetchval(_DROP, *_held_key(row)))


class PostgresExports:
    """Runs that hold data."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def mark(self, execution_ids: Sequence[str], *, is_unexported: bool) -> list[str]:
        """Say of runs whether they hold data."""
        rows = await self._database.fetch(_MARK, _ids(execution_ids), is_unexported)
        known = {str(row["execution_id"]) for row in rows}
        return [run for run in dict.fromkeys(execution_ids) if run in known]

    async def unexported(self, execution_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that do."""
        rows = await self._database.background.fetch(_UNEXPORTED, _ids(execution_ids))
        return frozenset(str(row["execution_id"]) for row in rows)


def _ids(texts: Sequence[str]) -> list[int | None]:
    return [id_of(text) for text in texts]


def _held_key(row: HeldRow) -> tuple[int | None, str, str]:
    return id_of(row.execution_id), stored(row.step), stored(row.job_name)


def _result(row: asyncpg.Record) -> ResultRow:
    return ResultRow(
        key=row["ref"],
        result_id=str(row["result_id"]),
        execution_id=text_of(row["execution_id"]),
        name=shown(row["name"] or ""),
        scope=row["scope"] or "execution",
        source_step=shown_or_none(row["source_step"]),
        content_type=row["content_type"],
        size=row["bytes"],
        sha256=bytes(row["sha256"]).hex(),
        tenant_id=row["tenant_id"],
        created_at=told(row["created_at"]) or "",
        expires_at=told(row["expires_at"]),
    )


def _request(row: asyncpg.Record) -> RequestRow:
    return RequestRow(
        request_id=shown(row["request_id"]),
        sha256=bytes(row["sha256"]).hex(),
        execution_id=text_of(row["execution_id"]),
        created_at=told(row["created_at"]) or "",
        expires_at=told(row["expires_at"]),
        body=row["body"],
        media_type=shown_or_none(row["media_type"]),
    )


def _held(row: asyncpg.Record) -> HeldRow:
    return HeldRow(
        execution_id=str(row["execution_id"]),
        step=shown(row["step"]),
        job_name=shown(row["job_name"]),
        body=value_of(row["body"]),
        expires_at=told(row["expires_at"]) or "",
    )
