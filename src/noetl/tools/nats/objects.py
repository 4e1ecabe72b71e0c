"""Objects of a bucket: bytes of any size under a name."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nats.js.errors import ObjectDeletedError, ObjectNotFoundError

from noetl.sources.base import body_of, bytes_of
from noetl.tools.base import ToolError, remedied
from noetl.tools.nats.places import bucket_of, named
from noetl.tools.stored import UNKNOWN, blobs_of, key_for, put_file

if TYPE_CHECKING:
    from nats.js.api import ObjectInfo
    from nats.js.client import JetStreamContext
    from nats.js.object_store import ObjectStore

    from noetl.dsl.tasks import Nats
    from noetl.tools.base import ToolContext

INLINE_BYTES: Final = 65_536
_GONE: Final = (ObjectNotFoundError, ObjectDeletedError)


async def get(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """The object: its value when it is small, else a reference to its bytes."""
    store, name = await _store(config, ctx, js), _name(config)
    try:
        info = await store.get_info(name)
    except _GONE:
        return {"status": "not_found", "value": None, "bucket": config.bucket, "object": name}
    about = {"status": "success", **_told(info)}
    if (info.size or 0) <= INLINE_BYTES:
        found = await store.get(name)
        read = body_of(found.data or b"")
        return about | {"value": read.pop("data"), **read}
    with tempfile.TemporaryDirectory(prefix="noetl-") as folder:
        path = Path(folder) / "object"
        with await asyncio.to_thread(path.open, "wb") as file:
            await store.get(name, writeinto=file)
        kept = await put_file(path, UNKNOWN, ctx)
    return about | {"value": None, **kept}


async def put(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Write an object from a value, or from the bytes of a reference."""
    store, name = await _store(config, ctx, js), _name(config)
    if config.ref is None:
        value = config.data if config.value is None else config.value
        return {"status": "success", **_told(await store.put(name, bytes_of(value)))}
    blobs, key = blobs_of(ctx), key_for(config.ref)
    if await blobs.head(key) is None:
        raise remedied(ToolError("not_found", "result_gone", f"{config.ref} is gone"))
    with tempfile.TemporaryFile(prefix="noetl-") as file:
        async for chunk in blobs.get_stream(key):
            await asyncio.to_thread(file.write, chunk)
        file.seek(0)
        return {"status": "success", **_told(await store.put(name, file))}


async def delete(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Delete an object; one that is not there is no failure."""
    store, name = await _store(config, ctx, js), _name(config)
    try:
        await store.delete(name)
    except _GONE:
        return {"status": "not_found", "bucket": config.bucket, "object": name, "deleted": False}
    return {"status": "success", "bucket": config.bucket, "object": name, "deleted": True}


async def info(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """What is known of an object without its bytes."""
    store, name = await _store(config, ctx, js), _name(config)
    try:
        return {"status": "success", **_told(await store.get_info(name))}
    except _GONE:
        return {"status": "not_found", "bucket": config.bucket, "object": name}


async def every(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """The objects of a bucket by their names."""
    from nats.js.errors import NotFoundError  # noqa: PLC0415 - an empty bucket says so

    store = await _store(config, ctx, js)
    try:
        found = await store.list(ignore_deletes=True)
    except NotFoundError:
        found = []
    objects = sorted((_told(item) for item in found if not item.deleted), key=_by_name)
    made = {"status": "success", "bucket": config.bucket}
    return made | {"objects": objects, "count": len(objects)}


async def _store(config: Nats, ctx: ToolContext, js: JetStreamContext) -> ObjectStore:
    return await js.object_store(bucket_of(config.bucket, ctx))


def _name(config: Nats) -> str:
    return named(config.object or config.key_, "object")


def _told(info: ObjectInfo) -> dict[str, Any]:
    return {
        "bucket": info.bucket,
        "object": info.name,
        "size": info.size or 0,
        "digest": info.digest,
        "modified": info.mtime,
    }


def _by_name(told: dict[str, Any]) -> str:
    return str(told["object"])
