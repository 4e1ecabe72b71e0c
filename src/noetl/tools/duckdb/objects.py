"""Objects as files: fetched before a database reads them, sent when it has written them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.objects.store import failing, store_for

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.tools.base import ToolContext

PART_BYTES: Final = 8 << 20
AT_ONCE: Final = 2


async def fetched(uri: str, auth: Any, path: Path, ctx: ToolContext) -> int:  # noqa: ANN401 - an alias or a map
    """Copy an object to a file; how many bytes it has."""
    store, key = await store_for(uri, auth, ctx)
    size = 0
    with failing(uri):
        found = await store.get_async(key)
        file = await asyncio.to_thread(path.open, "wb")
        try:
            async for chunk in found.stream(min_chunk_size=PART_BYTES):
                await asyncio.to_thread(file.write, chunk)
                size += len(chunk)
        finally:
            await asyncio.to_thread(file.close)
    return size


async def sent(path: Path, uri: str, auth: Any, ctx: ToolContext) -> None:  # noqa: ANN401 - an alias or a map
    """Copy a file to an object, which is seen when its last byte is there."""
    store, key = await store_for(uri, auth, ctx)
    with failing(uri):
        await store.put_async(key, path, chunk_size=PART_BYTES, max_concurrency=AT_ONCE)
