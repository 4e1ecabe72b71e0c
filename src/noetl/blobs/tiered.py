"""Large bytes by their size: small ones in the database, larger ones in an object store.

A row of the database names every object. The object is written before its row, so a row never
names what is not there; an object without a row was left by a crash, and is collected later.
"""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, runtime_checkable

from noetl.blobs.base import (
    CHUNK_BYTES,
    JSON,
    OBJECTS,
    SMALL_BYTES,
    BlobDamaged,
    BlobGone,
    Stat,
    checked,
)
from noetl.blobs.measured import Measured
from noetl.blobs.packing import SUFFIXES, packed_stream, packing_of, part_of, unpacked_stream
from noetl.blobs.postgres import STAYS, PostgresBlobs, origin, stat_of
from noetl.ids import EPOCH

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Sequence

    from noetl.blobs.base import Blobs
    from noetl.blobs.packing import Packing
    from noetl.blobs.postgres import Database
    from noetl.ids import Ids

NO_RUN: Final = "0"
_SHIFT: Final = 22
_PLACED: Final = """
select bytes, sha256, content_type, object_key from noetl.result where ref = $1"""
_TENANT: Final = "select tenant_id from noetl.execution where execution_id = $1"
_PLACE: Final = f"""
with old as (select object_key from noetl.result where ref = $4)
insert into noetl.result (result_id, execution_id, name, scope, source_step, ref, object_key,
    content_type, bytes, sha256, tenant_id)
values ($1, $2, $3, 'execution', $3, $4, $5, $6, $7, $8, $9)
on conflict (ref) do update set body = null, object_key = excluded.object_key,
    content_type = excluded.content_type, bytes = excluded.bytes, sha256 = excluded.sha256,
    {STAYS}
returning (select object_key from old) as object_key"""  # noqa: S608 - made of constants
_STAY: Final = f"""
update noetl.result set {STAYS}
where ref = $1 and object_key = $2 returning true"""  # noqa: S608 - as above
_FORGET: Final = "delete from noetl.result where ref = $1 returning object_key"
_KNOWN: Final = "select object_key from noetl.result where object_key = any($1::text[])"
_OF_RUNS: Final = """
select object_key from noetl.result
where execution_id = any($1::bigint[]) and object_key is not null
    and coalesce(scope, 'execution') <> 'permanent'"""


Tier = Literal["auto", "row", "object"]
"""Where a value is to lie: by its size, or wherever its author wants it."""


class _Place(NamedTuple):
    """What a row tells of its bytes, and the object that holds them; none: they are in the row."""

    stat: Stat
    object_key: str | None


class Unnamed(NamedTuple):
    """A page of objects that no row names."""

    keys: Sequence[str]
    scanned: int
    after: str
    """Where to go on; empty: nowhere."""


@runtime_checkable
class Tiers(Protocol):
    """What a store in tiers does besides: it looks after objects whose rows are gone."""

    def placing(self, tier: Tier, packing: Packing = "none") -> Blobs:
        """The same store for values that are to lie somewhere."""

    async def objects_of(self, execution_ids: Sequence[str]) -> list[str]:
        """The objects that are to go with runs."""

    async def unnamed(self, before: datetime, after: str, limit: int) -> Unnamed:
        """Objects that no row names and that are older than a moment."""

    async def drop(self, object_keys: Sequence[str]) -> None:
        """Delete objects that no row names any more."""


class TieredBlobs:
    """Objects of both kinds, named by the rows of one database."""

    def __init__(  # noqa: PLR0913 - where its parts lie, and how new values do
        self,
        database: Database,
        large: Blobs,
        ids: Ids,
        env: str,
        *,
        tier: Tier = "auto",
        packing: Packing = "none",
    ) -> None:
        self._database = database
        self._small = PostgresBlobs(database, ids)
        self._large = large
        self._ids = ids
        self._env = env
        self._tier = tier
        self._packing = packing

    @property
    def name(self) -> str:
        """The word for this store in references."""
        return {"auto": "object", "row": "db", "object": OBJECTS}[self._tier]

    def placing(self, tier: Tier, packing: Packing = "none") -> TieredBlobs:
        """The same store for values that are to lie somewhere."""
        return TieredBlobs(
            self._database, self._large, self._ids, self._env, tier=tier, packing=packing
        )

    def _is_small(self, size: int) -> bool:
        return {"auto": size <= SMALL_BYTES, "row": True, "object": False}[self._tier]

    async def put(self, key: str, data: bytes, *, media_type: str = JSON) -> None:
        """Keep bytes, all of them or none; what was there before is replaced."""
        checked(key, media_type)
        if self._is_small(len(data)):
            await self._keep_small(key, data, media_type)
            return
        found = await self._placed(key)
        if found is not None and found.object_key:
            told = (found.stat.sha256, found.stat.media_type)
            is_same = told == (sha256(data).hexdigest(), media_type)
            if is_same and await self._stays(key, found.object_key):
                return
        object_key = await self._object_key(key)
        if self._packing == "none":
            await self._large.put(object_key, data, media_type=media_type)
        else:
            parts = packed_stream(_pieces(data), self._packing)
            await self._large.put_stream(object_key, parts, media_type=media_type)
        digest = sha256(data).hexdigest()
        stat = Stat(key=key, size=len(data), sha256=digest, media_type=media_type)
        await self._keep_large(stat, object_key)

    async def get(self, key: str) -> bytes:
        """All bytes; `BlobGone` when there are none, `BlobDamaged` when they are not the same."""
        found = await self._placed(checked(key))
        if found is None:
            raise BlobGone(f"{key}: nothing lies there")
        if found.object_key is None:
            return await self._small.get(key)
        if packing_of(found.object_key) == "none":
            return await self._large.get(found.object_key)
        return b"".join([part async for part in self._unpacked(found)])

    async def put_stream(
        self, key: str, chunks: AsyncIterable[bytes], *, media_type: str = JSON
    ) -> Stat:
        """Keep bytes as they come; no more of a long one than its beginning is in memory."""
        checked(key, media_type)
        beginning, rest = bytearray(), chunks.__aiter__()
        if self._tier == "row":
            return await self._small_stream(key, rest, media_type)
        async for chunk in rest:
            beginning += chunk
            if not self._is_small(len(beginning)):
                break
        else:
            if self._is_small(len(beginning)):
                data = bytes(beginning)
                await self._keep_small(key, data, media_type)
                digest = sha256(data).hexdigest()
                return Stat(key=key, size=len(data), sha256=digest, media_type=media_type)
        object_key = await self._object_key(key)
        seen = Measured(_following(bytes(beginning), rest))
        parts = seen.chunks()
        if self._packing != "none":
            parts = packed_stream(parts, self._packing)
        await self._large.put_stream(object_key, parts, media_type=media_type)
        digest = seen.digest.hexdigest()
        stat = Stat(key=key, size=seen.size, sha256=digest, media_type=media_type)
        await self._keep_large(stat, object_key)
        return stat

    async def _small_stream(self, key: str, chunks: AsyncIterator[bytes], media_type: str) -> Stat:
        """Keep bytes in their row, however many; the row has a limit of its own."""
        before = await self._placed(key)
        stat = await self._small.put_stream(key, chunks, media_type=media_type)
        if before is not None and before.object_key:
            await self._large.delete(before.object_key)
        return stat

    async def get_stream(
        self, key: str, first: int = 0, last: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in chunks; damage is raised at the latest after the last one."""
        found = await self._placed(checked(key))
        if found is None:
            raise BlobGone(f"{key}: nothing lies there")
        if found.object_key is None:
            stream = self._small.get_stream(key, first, last)
        elif packing_of(found.object_key) == "none":
            stream = self._large.get_stream(found.object_key, first, last)
        elif first == 0 and last is None:
            stream = self._unpacked(found)
        else:
            stream = part_of(self._unpacked(found), first, last)
        async with aclosing(stream) as parts:  # type: ignore[type-var]  # both are generators
            async for part in parts:
                yield part

    async def _unpacked(self, found: _Place) -> AsyncIterator[bytes]:
        """The bytes of a packed object, compared with what its row tells of them."""
        object_key, stat = found.object_key or "", found.stat
        packed = self._large.get_stream(object_key)
        digest = sha256()
        async for part in unpacked_stream(packed, packing_of(object_key), stat.size):
            digest.update(part)
            yield part
        if digest.hexdigest() != stat.sha256:
            raise BlobDamaged(f"{stat.key}: the bytes are not those that were put")

    async def head(self, key: str) -> Stat | None:
        """What lies under a key."""
        return await self._small.head(key)

    async def delete(self, key: str) -> None:
        """Forget a key; one that is not there is forgotten already."""
        row = await self._database.fetchrow(_FORGET, checked(key))
        if row is not None and row["object_key"]:
            await self._large.delete(row["object_key"])

    async def listed(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys that begin with a text, in order."""
        return await self._small.listed(prefix, after=after, limit=limit)

    # ------------------------------------------------------------------- beside the contract

    async def objects_of(self, execution_ids: Sequence[str]) -> list[str]:
        """The objects that are to go with runs."""
        rows = await self._database.fetch(_OF_RUNS, [int(one) for one in execution_ids])
        return [row["object_key"] for row in rows]

    async def unnamed(self, before: datetime, after: str, limit: int) -> Unnamed:
        """Objects that no row names and that are older than a moment, and where to go on.

        Their names tell their age: the last part is an id, and ids are made of time.
        """
        prefix = f"{self._env}/"
        page = await self._large.listed(prefix, after=after, limit=limit)
        youngest = int((before - EPOCH).total_seconds() * 1000) << _SHIFT
        old = [key for key in page if _number(key) < youngest]
        rows = await self._database.fetch(_KNOWN, old) if old else ()
        known = {row["object_key"] for row in rows}
        lost = [key for key in old if key not in known]
        return Unnamed(lost, len(page), page[-1] if len(page) == limit else "")

    async def drop(self, object_keys: Sequence[str]) -> None:
        """Delete objects that no row names any more."""
        for object_key in object_keys:
            await self._large.delete(object_key)

    # ----------------------------------------------------------------------------- the rows

    async def _placed(self, key: str) -> _Place | None:
        row = await self._database.fetchrow(_PLACED, key)
        return None if row is None else _Place(stat_of(key, row), row["object_key"])

    async def _keep_small(self, key: str, data: bytes, media_type: str) -> None:
        before = await self._small.replaced(key, data, media_type)
        if before is not None:
            await self._large.delete(before)

    async def _keep_large(self, stat: Stat, object_key: str) -> None:
        """Name an object; the row that names equal bytes already stays, and the new ones go."""
        found = await self._placed(stat.key)
        same = found.object_key if found is not None and found.stat == stat else None
        if same and await self._stays(stat.key, same):
            await self._large.delete(object_key)
            return
        execution_id, step = origin(stat.key)
        try:
            row = await self._database.fetchrow(
                _PLACE,
                int(self._ids.new()),
                execution_id,
                step,
                stat.key,
                object_key,
                stat.media_type,
                stat.size,
                bytes.fromhex(stat.sha256),
                object_key.split("/")[1],
            )
        except Exception:
            await self._large.delete(object_key)
            raise
        if row is not None and row["object_key"]:
            await self._large.delete(row["object_key"])

    async def _stays(self, key: str, object_key: str) -> bool:
        """Let equal bytes stay that are there already; false when they are just going."""
        return bool(await self._database.fetchval(_STAY, key, object_key))

    async def _object_key(self, key: str) -> str:
        """`<env>/<tenant>/<yyyymmdd>/<run>/<id>`: where the next object lies."""
        execution_id, _ = origin(key)
        tenant = None
        if execution_id is not None:
            tenant = await self._database.fetchval(_TENANT, execution_id)
        made = self._ids.new()
        born = datetime.fromtimestamp((int(made) >> _SHIFT) / 1000 + EPOCH.timestamp(), UTC)
        run = NO_RUN if execution_id is None else str(execution_id)
        end = SUFFIXES[self._packing]
        return checked(f"{self._env}/{tenant or 'default'}/{born:%Y%m%d}/{run}/{made}{end}")


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _following(beginning: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for start in range(0, len(beginning), CHUNK_BYTES):
        yield beginning[start : start + CHUNK_BYTES]
    async for chunk in rest:
        yield chunk


def _number(object_key: str) -> int:
    """The id that an object's name ends with; of a strange one, one that is never old."""
    text = object_key.rpartition("/")[2].partition(".")[0]
    return int(text) if text.isascii() and text.isdigit() else 1 << 63
