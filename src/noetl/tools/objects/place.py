"""Objects of buckets as artifacts (`s3://`, `gs://`)."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from noetl.blobs.packing import unpacked_stream
from noetl.tools.objects.kept import PACKED
from noetl.tools.objects.moving import put_stream, whole_or_stream
from noetl.tools.objects.store import failing, store_for
from noetl.tools.places import MOST_BYTES, MOST_LISTED, described, named
from noetl.tools.stored import UNKNOWN, Spool, about, payload, shown, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping

    from noetl.blobs.packing import Packing
    from noetl.tools.base import ToolContext

PART_BYTES: Final = 8 << 20
_CHUNK: Final = 1 << 20


class ObjectPlace:
    """Objects that a credential gives access to."""

    def __init__(self, ctx: ToolContext, auth: Any) -> None:  # noqa: ANN401 - what the author wrote
        self._ctx = ctx
        self._auth = auth

    async def do_head(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the store tells of an object; it knows no digest of ours."""
        del given
        store, key = await store_for(uri, self._auth, self._ctx)
        with failing(uri):
            found = await store.get_async(key, options={"head": True})
        return _described(uri, found)

    async def do_get(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """An object as data; a large one is kept as a value of the run."""
        del given
        store, key = await store_for(uri, self._auth, self._ctx)
        with failing(uri):
            found = await store.get_async(key)
            made = _described(uri, found)
            packing = cast("Packing", found.attributes.get(PACKED) or "none")
            chunks = unpacked_stream(_bytes(found.stream(min_chunk_size=_CHUNK)), packing)
            raw = bytearray()
            if made["size_bytes"] > MOST_BYTES:
                return {**made, **await self._spooled(raw, chunks, made["content_type"])}
            async for chunk in chunks:
                raw += chunk
                if len(raw) > MOST_BYTES:
                    return {**made, **await self._spooled(raw, chunks, made["content_type"])}
        whole = bytes(raw)
        data = shown(whole, made["content_type"])
        own = {"size_bytes": len(whole), "sha256": sha256(whole).hexdigest()}
        return {**made, **own, "data": data}

    async def _spooled(
        self, beginning: bytearray, rest: AsyncIterable[bytes], media_type: str
    ) -> dict[str, Any]:
        async with Spool(self._ctx) as spool:
            await spool.write(bytes(beginning))
            beginning.clear()
            async for chunk in rest:
                await spool.write(chunk)
            kept = await spool.store(media_type)
        return {"size_bytes": kept["bytes"], "sha256": kept["sha256"], "ref": kept["ref"]}

    async def do_put(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Put what the input holds, or a stored value that it names."""
        source = named(given)
        store, key = await store_for(uri, self._auth, self._ctx)
        body: bytes | AsyncIterable[bytes]
        if source is None:
            raw, media_type = payload(given)
            size, digest, body = len(raw), sha256(raw).hexdigest(), raw
        else:
            stat = await about(source, self._ctx)
            size, digest, media_type = stat.size, stat.sha256, stat.media_type
            body = await whole_or_stream(size, stream(source, self._ctx), PART_BYTES)
        attributes = {"Content-Type": media_type}
        await put_stream(store, key, body, uri, attributes=attributes, part_bytes=PART_BYTES)
        return described(uri, size, digest, media_type)

    async def do_delete(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Delete an object; whether there was one."""
        del given
        store, key = await store_for(uri, self._auth, self._ctx)
        with failing(uri):
            try:
                await store.head_async(key)
            except FileNotFoundError:
                return {"uri": uri, "deleted": False}
            await store.delete_async(key)
        return {"uri": uri, "deleted": True}

    async def do_list(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Objects whose keys begin like the address."""
        del given
        store, prefix = await store_for(uri, self._auth, self._ctx)
        bucket = "/".join(uri.split("/")[:3])
        items: list[dict[str, Any]] = []
        with failing(uri):
            async for one in _listed(store, prefix):
                items.append({"uri": f"{bucket}/{one['path']}", "size_bytes": one["size"]})
                if len(items) > MOST_LISTED:
                    break
        return {"uri": uri, "items": items[:MOST_LISTED], "count": min(len(items), MOST_LISTED),
                "truncated": len(items) > MOST_LISTED}  # fmt: skip


async def _bytes(chunks: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield bytes(chunk)


async def _listed(store: Any, prefix: str) -> AsyncIterator[Mapping[str, Any]]:  # noqa: ANN401 - a store of obstore
    folder = prefix.rpartition("/")[0] or None  # stores list whole folders
    async for page in store.list(folder):
        for one in page:
            if one["path"].startswith(prefix):
                yield one


def _described(uri: str, found: Any) -> dict[str, Any]:  # noqa: ANN401 - an answer of obstore
    media_type = str(found.attributes.get("Content-Type") or UNKNOWN)
    return {**described(uri, found.meta["size"], "", media_type), "etag": found.meta["e_tag"]}
