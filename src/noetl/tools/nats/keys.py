"""Keys of a bucket, each with its newest value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError

from noetl.sources.base import body_of, bytes_of
from noetl.tools.base import ToolError, remedied
from noetl.tools.nats.places import bucket_of, invalid, key_of, pattern_of

if TYPE_CHECKING:
    from nats.js.client import JetStreamContext
    from nats.js.kv import KeyValue

    from noetl.dsl.tasks import Nats
    from noetl.tools.base import ToolContext

_TTL: Final = "Nats-TTL"
_LAST: Final = "Nats-Expected-Last-Subject-Sequence"
_NO_TTL: Final = 10166
_LEAST_TTL_S: Final = 1.0


async def get(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """The value of a key; one that is not there is no failure."""
    bucket, key = await _bucket(config, ctx, js), key_of(config.key_)
    try:
        entry = await bucket.get(key, config.revision)
    except KeyNotFoundError:
        return _about(config) | {"status": "not_found", "value": None, "revision": None}
    read = body_of(entry.value or b"")
    value = {"value": read.pop("data"), **read}
    return _about(config) | value | {"status": "success", "revision": entry.revision}


async def put(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Write a value, whatever was there before."""
    await _bucket(config, ctx, js)
    return await _written(config, js, {})


async def create(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Write a value where there is none."""
    bucket, key = await _bucket(config, ctx, js), key_of(config.key_)
    ttl = None if config.ttl is None else _seconds(config)
    try:
        revision = await bucket.create(key, bytes_of(_value(config)), msg_ttl=ttl)
    except KeyWrongLastSequenceError:
        message = f"the key {key} of the bucket {config.bucket} is there already"
        raise remedied(ToolError("client_error", "key_exists", message)) from None
    return _about(config) | {"status": "success", "revision": revision}


async def update(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Write a value in place of one revision."""
    await _bucket(config, ctx, js)
    if config.revision is None:
        raise invalid("revision", "is needed by this operation")
    return await _written(config, js, {_LAST: str(config.revision)})


async def delete(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Leave a mark that the key is gone; its history stays."""
    bucket = await _bucket(config, ctx, js)
    await bucket.delete(key_of(config.key_), config.revision)
    return _about(config) | {"status": "success"}


async def purge(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """Forget a key and its history."""
    bucket = await _bucket(config, ctx, js)
    await bucket.purge(key_of(config.key_))
    return _about(config) | {"status": "success"}


async def keys(config: Nats, ctx: ToolContext, js: JetStreamContext) -> dict[str, Any]:
    """The names of keys, in their order."""
    bucket = await _bucket(config, ctx, js)
    asked, sifted = pattern_of(config.pattern)
    watcher = await bucket.watch(asked, ignore_deletes=True, meta_only=True)
    names = []
    try:
        async for entry in watcher:
            if entry is None:  # those that come now are new
                break
            if sifted.fullmatch(entry.key):
                names.append(entry.key)
    finally:
        await watcher.stop()  # type: ignore[no-untyped-call]  # of the library
    names.sort()
    return {"status": "success", "bucket": config.bucket, "keys": names, "count": len(names)}


async def _bucket(config: Nats, ctx: ToolContext, js: JetStreamContext) -> KeyValue:
    return await js.key_value(bucket_of(config.bucket, ctx))


async def _written(config: Nats, js: JetStreamContext, headers: dict[str, str]) -> dict[str, Any]:
    key = key_of(config.key_)
    if config.ttl is not None:
        headers[_TTL] = f"{round(_seconds(config) * 1000)}ms"
    subject = f"$KV.{config.bucket}.{key}"
    try:
        done = await js.publish(subject, bytes_of(_value(config)), headers=headers)
    except APIError as fault:
        if fault.err_code == _NO_TTL:
            message = f"the bucket {config.bucket} does not allow a ttl of its keys"
            raise remedied(ToolError("config", "ttl_not_enabled", message)) from None
        if _LAST in headers and "wrong last sequence" in str(fault.description):
            message = f"the key {key} of the bucket {config.bucket} has another revision by now; "
            message += "read it again, and write with its revision"
            raise ToolError("client_error", "revision_conflict", message) from None
        raise
    return _about(config) | {"status": "success", "revision": done.seq}


def _value(config: Nats) -> Any:  # noqa: ANN401 - any JSON
    return config.data if config.value is None else config.value


def _seconds(config: Nats) -> float:
    ttl = float(config.ttl)
    if ttl < _LEAST_TTL_S:
        raise invalid("ttl", "is one second at least")
    return ttl


def _about(config: Nats) -> dict[str, Any]:
    return {"bucket": config.bucket, "key": config.key_}
