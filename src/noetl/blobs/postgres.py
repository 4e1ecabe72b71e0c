"""Large bytes in the database: what a small installation needs no object store for.

Values up to 64 MiB lie in `noetl.result`, one row each. The database comes from whoever opened it;
this module knows its questions only.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from noetl.blobs.base import (
    CHUNK_BYTES,
    JSON,
    LARGEST_ROW_BYTES,
    BlobDamaged,
    BlobGone,
    Stat,
    checked,
)
from noetl.clock import SystemClock
from noetl.errors import NoetlError
from noetl.ids import Ids

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Sequence

LARGEST_BYTES: Final = LARGEST_ROW_BYTES
_READ_BYTES: Final = 4 * CHUNK_BYTES
_LARGEST_ID: Final = (1 << 63) - 1
# What is put again stays with its run until somebody says otherwise; else it might be collected as
# expired before that.
STAYS: Final = """expires_at = null,
    scope = case when result.scope = 'step' then 'execution' else result.scope end"""
_PUT: Final = f"""
with old as (select object_key from noetl.result where ref = $4)
insert into noetl.result (result_id, execution_id, name, scope, source_step, ref, body,
    content_type, bytes, sha256)
values ($1, $2, $3, 'execution', $3, $4, $5, $6, $7, $8)
on conflict (ref) do update set body = excluded.body, object_key = null,
    content_type = excluded.content_type, bytes = excluded.bytes, sha256 = excluded.sha256,
    {STAYS}
returning (select object_key from old) as object_key"""  # noqa: S608 - made of constants
_GET: Final = "select body, bytes, sha256, content_type from noetl.result where ref = $1"
_HEAD: Final = "select bytes, sha256, content_type from noetl.result where ref = $1"
_PART: Final = """
select substring(body from $3 for $4) from noetl.result where ref = $1 and sha256 = $2"""
_DELETE: Final = "delete from noetl.result where ref = $1"
_LISTED: Final = """
select ref from noetl.result
where starts_with(ref, $1) and ref collate "C" > $2
order by ref collate "C" limit $3"""
_LISTED_OF: Final = """
select ref from noetl.result
where execution_id = $4 and starts_with(ref, $1) and ref collate "C" > $2
order by ref collate "C" limit $3"""


class BlobTooLarge(NoetlError):
    """More bytes than a row of the database is meant for."""

    code = "body_too_large"
    status: ClassVar[int] = 413


class Row(Protocol):
    """A row by the names of its columns."""

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401 - of any column
        """The value of a column."""


class Database(Protocol):
    """What is asked of a database."""

    async def fetch(self, sql: str, /, *args: object) -> Sequence[Row]:
        """All rows."""

    async def fetchrow(self, sql: str, /, *args: object) -> Row | None:
        """The first row."""

    async def fetchval(self, sql: str, /, *args: object) -> Any:  # noqa: ANN401 - of any column
        """The first column of the first row."""

    async def execute(self, sql: str, /, *args: object) -> object:
        """The command's tag."""


class PostgresBlobs:
    """Objects as rows, dropped with the execution that their key names."""

    def __init__(self, database: Database, ids: Ids | None = None) -> None:
        self._database = database
        self._ids = ids or Ids(SystemClock())

    @property
    def name(self) -> str:
        """The word for this store in references."""
        return "db"

    async def put(self, key: str, data: bytes, *, media_type: str = JSON) -> None:
        """Keep bytes, all of them or none; what was there before is replaced."""
        await self._keep(checked(key, media_type), data, media_type)

    async def get(self, key: str) -> bytes:
        """All bytes; `BlobGone` when there are none, `BlobDamaged` when they are not the same."""
        row = await self._database.fetchrow(_GET, checked(key))
        if row is None:
            raise BlobGone(f"{key}: nothing lies there")
        data = bytes(row["body"])
        _compare(stat_of(key, row), len(data), sha256(data).digest())
        return data

    async def put_stream(
        self, key: str, chunks: AsyncIterable[bytes], *, media_type: str = JSON
    ) -> Stat:
        """Keep bytes once all have come; nothing is kept when their source fails."""
        checked(key, media_type)
        data = bytearray()
        async for chunk in chunks:
            data += chunk
            _check_size(key, len(data))
        return await self._keep(key, bytes(data), media_type)

    async def get_stream(
        self, key: str, first: int = 0, last: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in chunks; damage is raised at the latest after the last one."""
        stat = await self.head(key)
        if stat is None:
            raise BlobGone(f"{key}: nothing lies there")
        digest, size = sha256(), first
        end = stat.size if last is None else min(last + 1, stat.size)
        while size < end:
            part = await self._part(stat, size, end)
            digest.update(part)
            size += len(part)
            for start in range(0, len(part), CHUNK_BYTES):
                yield part[start : start + CHUNK_BYTES]
            if not part:
                break
        if first == 0 and last is None:
            _compare(stat, size, digest.digest())

    async def head(self, key: str) -> Stat | None:
        """What lies under a key."""
        row = await self._database.fetchrow(_HEAD, checked(key))
        return None if row is None else stat_of(key, row)

    async def delete(self, key: str) -> None:
        """Forget a key; one that is not there is forgotten already."""
        await self._database.execute(_DELETE, checked(key))

    async def listed(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys that begin with a text, in order; those of one run are found by its id."""
        wanted = (prefix, max(after, prefix[:-1]), limit)
        execution_id, _ = origin(f"{prefix}-/-")
        if execution_id is None:
            rows = await self._database.fetch(_LISTED, *wanted)
        else:
            rows = await self._database.fetch(_LISTED_OF, *wanted, execution_id)
        return [row["ref"] for row in rows]

    async def replaced(self, key: str, data: bytes, media_type: str) -> str | None:
        """Keep bytes in their row; the object that held them before, if one did."""
        _check_size(key, len(data))
        execution_id, step = origin(key)
        row = await self._database.fetchrow(
            _PUT,
            int(self._ids.new()),
            execution_id,
            step,
            key,
            data,
            media_type,
            len(data),
            sha256(data).digest(),
        )
        return None if row is None else row["object_key"]

    async def _keep(self, key: str, data: bytes, media_type: str) -> Stat:
        await self.replaced(key, data, media_type)
        digest = sha256(data).hexdigest()
        return Stat(key=key, size=len(data), sha256=digest, media_type=media_type)

    async def _part(self, stat: Stat, start: int, end: int) -> bytes:
        digest, size = bytes.fromhex(stat.sha256), min(_READ_BYTES, end - start)
        part = await self._database.fetchval(_PART, stat.key, digest, start + 1, size)
        if part is None:
            raise BlobGone(f"{stat.key}: it was replaced or deleted while it was read")
        return bytes(part)


def origin(key: str) -> tuple[int | None, str | None]:
    """The execution and step that a key names: `execution/<id>/<what>/<step>/<digest>`; or none."""
    match key.split("/"):
        case ["execution", number, _, *step, _] if (
            _is_number(number) and int(number) <= _LARGEST_ID
        ):
            return int(number), "/".join(step)
    return None, None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def stat_of(key: str, row: Row) -> Stat:
    """What a row tells of its bytes."""
    return Stat(
        key=key,
        size=row["bytes"],
        sha256=bytes(row["sha256"]).hex(),
        media_type=row["content_type"],
    )


def _check_size(key: str, size: int) -> None:
    if size > LARGEST_BYTES:
        raise BlobTooLarge(
            f"{key}: more than {LARGEST_BYTES // (1024 * 1024)} MiB",
            hint="set NOETL_OBJECT_STORE_URL, or write it to an object store in the step",
        )


def _compare(stat: Stat, size: int, digest: bytes) -> None:
    if (size, digest.hex()) != (stat.size, stat.sha256):
        raise BlobDamaged(f"{stat.key}: the bytes are not those that were put")
