"""Bytes between object stores and runs: never more than some parts of them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.tools.base import ToolError
from noetl.tools.objects.store import failing
from noetl.tools.stored import UNKNOWN, Spool, part_of, shown, text_or_base64

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Mapping

    from noetl.tools.base import ToolContext

INLINE_BYTES: Final = 64 * 1024
AT_ONCE: Final = 2
_CHUNK: Final = 1 << 20


async def got(
    store: Any,  # noqa: ANN401 - a store of obstore
    key: str,
    uri: str,
    ctx: ToolContext,
    part: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """An object, or a part of it: as data when it is small, else as a reference."""
    options: dict[str, Any] | None = None
    if part is not None:
        first, last = part_of(part)
        options = {"range": {"offset": first} if last is None else (first, last + 1)}
    with failing(uri):
        found = await store.get_async(key, options=options)
        start, end = found.range
        own = {str(name): value for name, value in found.attributes.items()}
        media_type = str(own.pop("Content-Type", None) or UNKNOWN)
        made: dict[str, Any] = {
            "uri": uri,
            "size": found.meta["size"],
            "etag": found.meta["e_tag"],
            "content_type": media_type,
            "metadata": own,
        }
        if end - start <= INLINE_BYTES:
            raw = bytes(await found.bytes_async())
            is_whole = part is None
            return {**made, "data": shown(raw, media_type) if is_whole else text_or_base64(raw)}
        async with Spool(ctx) as spool:
            async for chunk in found.stream(min_chunk_size=_CHUNK):
                await spool.write(bytes(chunk))
            kept = await spool.store(media_type)
    return {**made, "ref": kept["ref"], "sha256": kept["sha256"]}


async def whole_or_stream(
    size: int, chunks: AsyncIterable[Any], part_bytes: int
) -> bytes | AsyncIterable[Any]:
    """Bytes of one part as a whole, which is one request; more of them as they come."""
    if size > part_bytes:
        return chunks
    return b"".join([bytes(chunk) async for chunk in chunks])


async def put_stream(  # noqa: PLR0913 - what a put says
    store: Any,  # noqa: ANN401 - a store of obstore
    key: str,
    body: bytes | AsyncIterable[Any],
    uri: str,
    *,
    attributes: Mapping[str, str],
    part_bytes: int,
    is_new: bool = False,
) -> str | None:
    """Put bytes under a key; the tag of the new object.

    The store itself refuses a second object for bytes of one part. Of more it is asked before: the
    library ends an upload in parts without a condition, and its conditional copy of an object
    forgets what the object is (`Content-Type`, metadata).
    """
    more: dict[str, Any] = {}
    if isinstance(body, bytes):
        more = {"use_multipart": False, "mode": "create" if is_new else "overwrite"}
    elif is_new:
        await _must_be_new(store, key, uri)
    with failing(uri):
        made = await store.put_async(
            key, body, attributes=dict(attributes), chunk_size=part_bytes,
            max_concurrency=AT_ONCE, **more,
        )  # fmt: skip
    tag: str | None = made["e_tag"]
    return tag


async def _must_be_new(store: Any, key: str, uri: str) -> None:  # noqa: ANN401 - a store of obstore
    with failing(uri):
        try:
            await store.head_async(key)
        except FileNotFoundError:
            return
    message = f"{uri} exists already, and `if_none_match` wants it new"
    raise ToolError("client_error", "already_exists", message)
