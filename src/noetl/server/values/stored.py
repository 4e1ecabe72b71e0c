"""Stored values by reference: who may have them, how long they stay, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from noetl.api.models import decoder_of
from noetl.api.results import MANIFEST, Manifest
from noetl.blobs.base import (
    JSON,
    BlobGone,
    InvalidKey,
    Stat,
    checked,
    most_bytes,
    store_word,
)
from noetl.blobs.naming import SCHEME, InvalidRef, parsed
from noetl.blobs.refs import PREVIEW_BYTES, preview, ref_of
from noetl.blobs.tiered import Tiers
from noetl.clock import rfc3339
from noetl.dsl.views import Reference
from noetl.edge.errors import BadMediaType, Expired, NoObjectStore, Unacceptable
from noetl.edge.moments import from_now
from noetl.server.values.manifests import joined
from noetl.server.values.spooled import Begun, Spooled
from noetl.store.stored import ResultRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence

    from noetl.api.results import Scope
    from noetl.blobs.base import Blobs
    from noetl.blobs.naming import Name
    from noetl.blobs.packing import Packing
    from noetl.blobs.tiered import Tier
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.access.owning import Owners
    from noetl.server.ingest.large import Large
    from noetl.server.metrics import ServerMetrics
    from noetl.store.stored import Results

    Bytes: TypeAlias = Callable[[int, int | None], AsyncIterator[bytes]]

LONGEST_TTL_S: Final = 10 * 366 * 86_400
MOST_PARTS: Final = 10_000
MOST_MANIFEST_BYTES: Final = 8 * 1024 * 1024
_ID: Final = 32
_BYTES: Final = "application/octet-stream"
_STORES: Final = {"kv": "kv", "db": "db"}
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How a value is to be kept."""

    name: str
    media_type: str = JSON
    scope: Scope = "execution"
    source_step: str | None = None
    ttl_s: int | None = None
    id: str = ""
    """The last part of its reference; its digest without one."""
    preview_bytes: int = PREVIEW_BYTES
    tier: Tier = "auto"
    packing: Packing = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The bytes of a reference, not read yet."""

    sha256: str
    """The digest of the bytes; of a manifest, that of the list of its parts, which decides them."""
    media_type: str
    size: int | None
    """None: it is known when the last byte was sent."""
    bytes: Bytes
    has_ranges: bool = True
    """Whether a part of it can be read alone."""


class Values:
    """Keeps values apart, and finds them again."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        blobs: Blobs,
        results: Results,
        large: Large,
        owners: Owners,
        *,
        clock: Clock,
        ids: Ids,
        metrics: ServerMetrics,
    ) -> None:
        self._blobs = blobs
        self._results = results
        self._large = large
        self._owners = owners
        self._clock = clock
        self._ids = ids
        self._metrics = metrics

    # ---------------------------------------------------------------------------- keep

    async def put(
        self, caller: Caller, execution_id: str, wish: Wish, data: bytes
    ) -> tuple[Reference, ResultRow]:
        """Keep bytes that are there as a whole; of JSON, facts are told with the reference."""
        execution_id = await self._owner(execution_id, wish)
        tenant_id = await self._may_put(execution_id, wish)
        if _plain(wish.media_type) == MANIFEST:
            made = await self._put_manifest(caller, execution_id, wish, data)
        else:
            made = await self._large.stored(
                execution_id, wish.name, data, wish.media_type, self._place(wish)
            )
            made = replace(made, scope=wish.scope, preview=preview(data, wish.preview_bytes))
        return made, await self._kept(execution_id, tenant_id, wish, made)

    async def put_parts(
        self, execution_id: str, wish: Wish, parts: AsyncIterable[bytes]
    ) -> tuple[Reference, ResultRow]:
        """Keep bytes as they come; those whose reference is not known yet wait for their end."""
        execution_id = await self._owner(execution_id, wish)
        tenant_id = await self._may_put(execution_id, wish)
        if not wish.id:
            async with Spooled() as spooled:
                body = await spooled.take(parts)
                wish = replace(wish, id=body.sha256[:_ID])
                return await self._put_stream(execution_id, tenant_id, wish, body.chunks())
        return await self._put_stream(execution_id, tenant_id, wish, parts)

    async def _put_stream(
        self, execution_id: str, tenant_id: str, wish: Wish, parts: AsyncIterable[bytes]
    ) -> tuple[Reference, ResultRow]:
        ref = ref_of(execution_id, wish.name, wish.id)
        begun, blobs = Begun(parts), self._place(wish)
        body = await blobs.put_stream(parsed(ref).key, begun.chunks(), media_type=wish.media_type)
        store = store_word(blobs.name, body.size)
        self._metrics.result_store_put.inc(store)
        made = Reference(
            ref=ref,
            store=store,
            size=body.size,
            sha256=body.sha256,
            media_type=wish.media_type,
            scope=wish.scope,
            preview=preview(begun.head, wish.preview_bytes),
        )
        return made, await self._kept(execution_id, tenant_id, wish, made)

    def most_bytes(self, wish: Wish) -> int:
        """How large a value may be that comes as it is."""
        return most_bytes(self._place(wish).name)

    def _place(self, wish: Wish) -> Blobs:
        """The store as the wish wants it; one without tiers keeps everything in one way."""
        if wish.tier == "auto" and wish.packing == "none":
            return self._blobs
        if isinstance(self._blobs, Tiers):
            return self._blobs.placing(wish.tier, wish.packing)
        if wish.tier == "object" and self._blobs.name == "db":
            raise NoObjectStore(
                "this server has no object store", hint="set NOETL_OBJECT_STORE_URL"
            )
        return self._blobs

    async def _owner(self, execution_id: str, wish: Wish) -> str:
        """The run that a value goes with: what is of a whole workflow is of its root."""
        if wish.scope != "workflow":
            return execution_id
        return await self._owners.root_of(execution_id)

    def store_of(self, size: int) -> str:
        """The word of the contract for where a value of this size lies."""
        return store_word(_STORES.get(self._blobs.name, "object"), size)

    async def _may_put(self, execution_id: str, wish: Wish) -> str:
        tenant_id, _ = await self._owners.of(execution_id)
        if wish.ttl_s is not None and not 1 <= wish.ttl_s <= LONGEST_TTL_S:
            raise _unfit("/ttl", f"is not in 1..{LONGEST_TTL_S}")
        try:
            checked(parsed(ref_of(execution_id, wish.name, wish.id or "0" * _ID)).key)
        except (InvalidRef, InvalidKey):
            raise _unfit("/name", "is not a name: segments between single slashes") from None
        try:
            checked("key", wish.media_type)
        except InvalidKey as fault:
            raise BadMediaType(fault.message) from None
        return tenant_id

    async def _put_manifest(
        self, caller: Caller, execution_id: str, wish: Wish, data: bytes
    ) -> Reference:
        manifest = _manifest(data)
        for place, part in enumerate(manifest.parts):
            name = parsed(part)
            if name.form == "manifest":
                raise _unfit(f"/data/parts/{place}", "a part is not a manifest itself")
            await self._must(caller, name)
        await self._stats([parsed(part).key for part in manifest.parts])
        data = _encode(manifest)
        digest = sha256(data).hexdigest()
        ref = ref_of(execution_id, wish.name, digest[:_ID], "manifest")
        await self._blobs.put(parsed(ref).key, data, media_type=MANIFEST)
        store = store_word(self._blobs.name, len(data))
        self._metrics.result_store_put.inc(store)
        return Reference(ref=ref, store=store, size=len(data), sha256=digest, media_type=MANIFEST)

    async def _kept(
        self, execution_id: str, tenant_id: str, wish: Wish, made: Reference
    ) -> ResultRow:
        row = ResultRow(
            key=parsed(made.ref).key,
            result_id=self._ids.new(),
            execution_id=execution_id,
            name=wish.name,
            scope=wish.scope,
            source_step=wish.source_step,
            content_type=made.media_type,
            size=made.size or 0,
            sha256=made.sha256 or "",
            tenant_id=tenant_id,
            created_at=self._now(),
            expires_at=None if wish.ttl_s is None else from_now(self._clock, wish.ttl_s),
        )
        await self._results.keep(row)
        return row

    # ------------------------------------------------------------------------- resolve

    async def resolved(self, caller: Caller, ref: str) -> Resolved:
        """The bytes of a reference; refused unless the caller may read the run."""
        try:
            name = parsed(ref)
            await self._must(caller, name)
            (stat,) = await self._stats([name.key])
            found = await self._opened(caller, name, stat)
        except Exception as refusal:
            self._count(refusal)
            raise
        self._metrics.result_store_resolve.inc("found")
        return found

    async def _opened(self, caller: Caller, name: Name, stat: Stat) -> Resolved:
        if name.form == "manifest":
            return await self._opened_manifest(caller, name, stat)
        return Resolved(
            sha256=stat.sha256,
            media_type=stat.media_type,
            size=stat.size,
            bytes=partial(self._blobs.get_stream, name.key),
        )

    async def _opened_manifest(self, caller: Caller, name: Name, stat: Stat) -> Resolved:
        manifest = _manifest(await self._blobs.get(name.key))
        names = [parsed(part) for part in manifest.parts]
        for one in {one.execution_id: one for one in names}.values():
            await self._must(caller, one)
        stats = await self._stats([one.key for one in names])
        is_concat = manifest.strategy == "concat"
        parts = [partial(self._blobs.get_stream, one.key) for one in names]
        return Resolved(
            sha256=stat.sha256,
            media_type=_joined_type(stats[0]) if is_concat else JSON,
            size=sum(one.size for one in stats) if is_concat else None,
            bytes=lambda _first, _last: joined(manifest.strategy, parts),
            has_ranges=False,
        )

    async def _must(self, caller: Caller, name: Name) -> None:
        """Refuse what is not there for the caller."""
        if not name.execution_id:
            # Kept messages and plug-ins have routes of their own, and owners that these know.
            raise BlobGone(f"nothing of the form {name.form!r} is stored here")
        if name.tenant_id and caller.is_bound and name.tenant_id != caller.tenant_id:
            raise BlobGone("nothing lies under that reference")
        await self._owners.must(caller, "result:read", name.execution_id)

    async def _stats(self, keys: Sequence[str]) -> list[Stat]:
        """What is known of keys; refused when the bytes of one are gone, or its time has passed."""
        if not keys:
            return []
        rows, now = await self._results.found(keys), self._now()
        found = []
        for key in keys:
            row = rows.get(key)
            if row is not None and row.expires_at is not None and row.expires_at <= now:
                raise Expired(f"{SCHEME}{key} has expired")
            stat = _stat(row) if row is not None else await self._blobs.head(key)
            if stat is None:
                raise BlobGone(f"nothing lies under {SCHEME}{key}")
            found.append(stat)
        return found

    def _count(self, refusal: Exception) -> None:
        outcomes: dict[type[Exception], str] = {
            InvalidRef: "bad_ref", BlobGone: "gone", Expired: "expired",
        }  # fmt: skip
        outcome = outcomes.get(type(refusal))
        if outcome is not None:
            self._metrics.result_store_resolve.inc(outcome)

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _manifest(data: bytes) -> Manifest:
    if len(data) > MOST_MANIFEST_BYTES:
        raise _unfit("/data", f"a manifest has at most {MOST_MANIFEST_BYTES} bytes")
    try:
        made = decoder_of(Manifest).decode(data)
    except msgspec.DecodeError as fault:
        raise _unfit("/data", f"is no manifest: {fault}") from None
    if not 1 <= len(made.parts) <= MOST_PARTS:
        raise _unfit("/data/parts", f"a manifest has 1..{MOST_PARTS} parts")
    return made


def _stat(row: ResultRow) -> Stat:
    return Stat(key=row.key, size=row.size, sha256=row.sha256, media_type=row.content_type)


def _joined_type(first: Stat) -> str:
    """What bytes that follow each other are; two values of JSON are no JSON."""
    return _BYTES if _plain(first.media_type) == JSON else first.media_type


def _plain(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _unfit(pointer: str, message: str) -> Unacceptable:
    errors = ({"pointer": pointer, "code": "validation_failed"},)
    return Unacceptable(f"{pointer}: {message}", errors=errors)
