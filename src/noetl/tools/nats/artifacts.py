"""Keys and objects of a broker as artifacts (`nats-kv://bucket/key`, `nats-obj://bucket/name`).

The broker is that of the task's credential. Buckets of the platform are refused as they are to the
kind `nats`.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
from nats.js.api import ObjectMeta
from nats.js.errors import KeyNotFoundError, NotFoundError, ObjectDeletedError, ObjectNotFoundError

from noetl.blobs.base import JSON
from noetl.dsl.tasks import Nats
from noetl.tools.base import ToolError
from noetl.tools.nats.failures import translating
from noetl.tools.nats.places import bucket_of, invalid, key_of, place_of
from noetl.tools.places import MOST_BYTES, MOST_LISTED, described, missing, named
from noetl.tools.stored import UNKNOWN, about, payload, put_file, read_bytes, shown, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from nats.js.api import ObjectInfo
    from nats.js.client import JetStreamContext
    from nats.js.kv import KeyValue
    from nats.js.object_store import ObjectStore

    from noetl.tools.base import ToolContext
    from noetl.tools.nats.connections import Connections

MOST_VALUE_BYTES: Final = 1 << 20
"""What a key holds at most: a message of the broker."""
_TEXT: Final = "text/plain; charset=utf-8"
_MEDIA: Final = "Content-Type"
_GONE: Final = (ObjectNotFoundError, ObjectDeletedError)


class _Place:
    """What both schemes do."""

    def __init__(self, ctx: ToolContext, auth: Any, connections: Connections) -> None:  # noqa: ANN401 - what the author wrote
        self._ctx = ctx
        self._auth = auth
        self._connections = connections

    @asynccontextmanager
    async def _bucket(self, uri: str) -> AsyncIterator[tuple[JetStreamContext, str, str]]:
        """The broker, and the bucket and name of an address."""
        parts = urlsplit(uri)
        bucket, name = bucket_of(parts.netloc, self._ctx), unquote(parts.path.removeprefix("/"))
        place = await place_of(self._auth, {}, self._ctx)
        async with self._connections.use(place) as client:
            with translating(Nats(kind="nats", operation="kv_get", bucket=bucket), client):
                yield client.jetstream(), bucket, name


class KeyPlace(_Place):
    """Keys, each with its newest value."""

    async def do_head(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a value; a broker gives it with its bytes only."""
        del given
        raw = await self._value(uri)
        return described(uri, len(raw), sha256(raw).hexdigest(), _media_of(raw))

    async def do_get(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A value as data."""
        raw = await self._value(uri)
        media_type = str(given.get("content_type") or _media_of(raw))
        found = described(uri, len(raw), sha256(raw).hexdigest(), media_type)
        return {**found, "data": shown(raw, media_type)}

    async def do_put(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Write a value, whatever was there before."""
        source = named(given)
        if source is None:
            raw, media_type = payload(given)
        else:
            stat = await about(source, self._ctx)
            _must_fit(uri, stat.size)
            raw, media_type = await read_bytes(source, self._ctx), stat.media_type
        _must_fit(uri, len(raw))
        async with self._bucket(uri) as (js, bucket, name):
            await (await js.key_value(bucket)).put(key_of(name), raw)
        return described(uri, len(raw), sha256(raw).hexdigest(), media_type)

    async def do_delete(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Leave a mark that the key is gone; whether it was there."""
        del given
        async with self._bucket(uri) as (js, bucket, name):
            keys = await js.key_value(bucket)
            try:
                await keys.get(key_of(name))
            except KeyNotFoundError:
                return {"uri": uri, "deleted": False}
            await keys.delete(name)
        return {"uri": uri, "deleted": True}

    async def do_list(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keys that begin like the address."""
        del given
        async with self._bucket(uri) as (js, bucket, prefix):
            names = await _keys_of(await js.key_value(bucket))
        found = sorted(name for name in names if name.startswith(prefix))
        return _listed(uri, [{"uri": f"nats-kv://{bucket}/{name}"} for name in found])

    async def _value(self, uri: str) -> bytes:
        async with self._bucket(uri) as (js, bucket, name):
            keys = await js.key_value(bucket)
            try:
                return (await keys.get(key_of(name))).value or b""
            except KeyNotFoundError:
                raise missing(uri) from None


class StorePlace(_Place):
    """Objects: bytes of any size under a name."""

    async def do_head(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the broker tells of an object; its digest is one of the broker's own."""
        del given
        async with self._bucket(uri) as (js, bucket, name):
            info = await _info(await js.object_store(bucket), uri, name)
        return {**described(uri, info.size or 0, "", _told_type(info)), "digest": info.digest}

    async def do_get(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """An object as data; a large one is kept as a value of the run."""
        async with self._bucket(uri) as (js, bucket, name):
            store = await js.object_store(bucket)
            info = await _info(store, uri, name)
            media_type = str(given.get("content_type") or _told_type(info))
            with tempfile.TemporaryDirectory(prefix="noetl-") as folder:
                path = Path(folder) / "object"
                with await asyncio.to_thread(path.open, "wb") as file:
                    await store.get(name, writeinto=file)
                if (info.size or 0) > MOST_BYTES:
                    kept = await put_file(path, media_type, self._ctx)
                    found = described(uri, kept["bytes"], kept["sha256"], media_type)
                    return {**found, "ref": kept["ref"]}
                raw = await asyncio.to_thread(path.read_bytes)
        media_type = _media_of(raw) if media_type == UNKNOWN else media_type
        found = described(uri, len(raw), sha256(raw).hexdigest(), media_type)
        return {**found, "data": shown(raw, media_type)}

    async def do_put(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Write an object: what the input holds, or a stored value that it names."""
        source = named(given)
        with tempfile.TemporaryFile(prefix="noetl-") as file:
            if source is None:
                raw, media_type = payload(given)
                size, digest = len(raw), sha256(raw).hexdigest()
                file.write(raw)
            else:
                stat = await about(source, self._ctx)
                size, digest, media_type = stat.size, stat.sha256, stat.media_type
                async for chunk in stream(source, self._ctx):
                    await asyncio.to_thread(file.write, chunk)
            file.seek(0)
            async with self._bucket(uri) as (js, bucket, name):
                if not name:
                    raise invalid("input/uri", "names no object")
                meta = ObjectMeta(name=name, headers={_MEDIA: [media_type]})
                await (await js.object_store(bucket)).put(name, file, meta=meta)
        return described(uri, size, digest, media_type)

    async def do_delete(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Delete an object; whether there was one."""
        del given
        async with self._bucket(uri) as (js, bucket, name):
            try:
                await (await js.object_store(bucket)).delete(name)
            except _GONE:
                return {"uri": uri, "deleted": False}
        return {"uri": uri, "deleted": True}

    async def do_list(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Objects whose names begin like the address."""
        del given
        async with self._bucket(uri) as (js, bucket, prefix):
            store = await js.object_store(bucket)
            try:
                found = await store.list(ignore_deletes=True)
            except NotFoundError:  # an empty bucket says so
                found = []
        items = [
            {"uri": f"nats-obj://{bucket}/{info.name}", "size_bytes": info.size or 0}
            for info in sorted(found, key=lambda info: str(info.name))
            if not info.deleted and str(info.name).startswith(prefix)
        ]
        return _listed(uri, items)


async def _info(store: ObjectStore, uri: str, name: str) -> ObjectInfo:
    if not name:
        raise invalid("input/uri", "names no object")
    try:
        return await store.get_info(name)
    except _GONE:
        raise missing(uri) from None


async def _keys_of(bucket: KeyValue) -> list[str]:
    watcher = await bucket.watch(">", ignore_deletes=True, meta_only=True)
    names = []
    try:
        async for entry in watcher:
            if entry is None:  # those that come now are new
                break
            names.append(entry.key)
    finally:
        await watcher.stop()  # type: ignore[no-untyped-call]  # of the library
    return names


def _told_type(info: ObjectInfo) -> str:
    told = (info.headers or {}).get(_MEDIA) or UNKNOWN
    return str(told[0] if isinstance(told, list) else told)


def _media_of(raw: bytes) -> str:
    """What bytes are that nobody described: JSON, text, or neither."""
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    else:
        return JSON
    try:
        raw.decode()
    except UnicodeDecodeError:
        return UNKNOWN
    return _TEXT


def _must_fit(uri: str, size: int) -> None:
    if size > MOST_VALUE_BYTES:
        message = f"{uri}: a key holds {MOST_VALUE_BYTES} bytes at most; use nats-obj://"
        raise ToolError("storage_quota", "value_too_large", message)


def _listed(uri: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"uri": uri, "items": items[:MOST_LISTED], "count": len(items),
            "truncated": len(items) > MOST_LISTED}  # fmt: skip
