"""Where artifacts lie: with the runs that made them, or as files under the data roots.

What is put comes from the input, or from a stored value that the input names beside the address:
then its bytes pass through, however many they are. What is got and too large to be data is kept
as a value of the run, and its reference told.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from noetl.blobs.refs import execution_of
from noetl.tools.base import ToolError
from noetl.tools.roots import inside, place_for
from noetl.tools.stored import (
    UNKNOWN,
    about,
    blobs_of,
    covered_bytes,
    key_for,
    payload,
    put_bytes,
    put_file,
    read_bytes,
    shown,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

    from noetl.tools.base import ToolContext

MOST_BYTES: Final = 64 << 20
"""So much is data; more of it is a reference."""
MOST_LISTED: Final = 10_000
_REFS: Final = "noetl"


class Place(Protocol):
    """Where artifacts of one scheme lie; each call is given the address and the task's input."""

    async def do_head(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of an artifact."""

    async def do_get(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """An artifact as data, or as the reference of a copy."""

    async def do_put(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keep what the input holds or names."""

    async def do_delete(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Forget an artifact; whether there was one."""

    async def do_list(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Artifacts below an address."""


def named(given: Mapping[str, Any]) -> str | None:
    """The stored value that is to be put somewhere else."""
    found = given.get("result_ref")
    if isinstance(found, Mapping):
        found = found.get("ref") or found.get("_ref")
    return str(found) if found and given.get("uri") else None


def described(uri: str, size: int, digest: str, media_type: str) -> dict[str, Any]:
    """What every action tells of an artifact."""
    return {"uri": uri, "size_bytes": size, "sha256": digest, "content_type": media_type}


def missing(uri: str) -> ToolError:
    """The error of an artifact that is not there."""
    return ToolError("not_found", "no_such_artifact", f"{uri} does not exist")


def _about(uri: str, raw: bytes, media_type: str) -> dict[str, Any]:
    return described(uri, len(raw), hashlib.sha256(raw).hexdigest(), media_type)


# ---------------------------------------------------------------------------- by reference


class Runs:
    """Objects of runs; those of others can be read, not changed."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._blobs = blobs_of(ctx)

    async def do_head(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a value."""
        del given
        stat = await self._blobs.head(key_for(uri))
        if stat is None:
            raise missing(uri)
        return described(uri, stat.size, stat.sha256, stat.media_type)

    async def do_get(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A value; a large one is a reference already."""
        found = await self.do_head(uri, given)
        if found["size_bytes"] > MOST_BYTES:
            return {**found, "ref": uri}
        raw = await read_bytes(uri, self._ctx)
        return {**found, "data": shown(raw, found["content_type"])}

    async def do_put(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a value; without an address it is named by its content."""
        source = named(given)
        if source is not None:
            stat = await about(source, self._ctx)
            made = await self._blobs.put_stream(
                self._own(uri), stream(source, self._ctx), media_type=stat.media_type
            )
            return described(uri, made.size, made.sha256, made.media_type)
        raw, media_type = payload(given)
        if not uri:  # named by its content: a repeated put is the same object
            stored = await put_bytes(raw, media_type, self._ctx)
            size, digest = stored["bytes"], stored["sha256"]
            return described(stored["ref"], size, digest, stored["content_type"])
        raw = await asyncio.to_thread(covered_bytes, raw, media_type, self._ctx)
        await self._blobs.put(self._own(uri), raw, media_type=media_type)
        return _about(uri, raw, media_type)

    async def do_delete(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Forget a value of this run."""
        del given
        key = self._own(uri)
        was_there = await self._blobs.head(key) is not None
        await self._blobs.delete(key)
        return {"uri": uri, "deleted": was_there}

    async def do_list(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Values of this run."""
        del given
        own = f"execution/{self._ctx.execution_id}/"
        prefix = uri.removeprefix(f"{_REFS}://") or own
        if not prefix.startswith(own):
            raise self._foreign(uri)
        found = [f"{_REFS}://{key}" for key in await self._blobs.listed(prefix)]
        return {"uri": uri, "items": [{"uri": name} for name in found[:MOST_LISTED]],
                "count": len(found), "truncated": len(found) > MOST_LISTED}  # fmt: skip

    def _own(self, uri: str) -> str:
        key = key_for(uri)
        if execution_of(uri) != self._ctx.execution_id:
            raise self._foreign(uri)
        return key

    def _foreign(self, uri: str) -> ToolError:
        return ToolError("storage_access", "foreign_artifact", f"{uri} belongs to another run")


# ---------------------------------------------------------------------------- files


class Files:
    """Files under the data roots."""

    def __init__(self, ctx: ToolContext, roots: tuple[Path, ...]) -> None:
        self._ctx = ctx
        self._roots = roots

    async def do_head(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a file."""
        del given
        size, digest = await asyncio.to_thread(_measured, self._file(uri))
        return described(uri, size, digest, _media_of(uri))

    async def do_get(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """A file; a large one is kept as a value of the run."""
        place, media_type = self._file(uri), _media_of(uri)
        if place.stat().st_size > MOST_BYTES:
            kept = await put_file(place, str(given.get("content_type") or media_type), self._ctx)
            found = described(uri, kept["bytes"], kept["sha256"], kept["content_type"])
            return {**found, "ref": kept["ref"]}
        raw = await asyncio.to_thread(place.read_bytes)
        return {**_about(uri, raw, media_type), "data": shown(raw, media_type)}

    async def do_put(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Write a file whole: a reader sees the old one or the new one."""
        source = named(given)
        place = place_for(_path_of(uri), self._roots)
        if source is not None:
            stat = await about(source, self._ctx)
            size, digest = await _written(place, stream(source, self._ctx))
            return described(uri, size, digest, stat.media_type)
        raw, media_type = payload(given)
        size, digest = await _written(place, _one(raw))
        return described(uri, size, digest, media_type)

    async def do_delete(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Remove a file."""
        del given
        place = inside(_path_of(uri), self._roots)
        was_there = place.is_file()
        place.unlink(missing_ok=True)
        return {"uri": uri, "deleted": was_there}

    async def do_list(self, uri: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Files below a folder."""
        del given
        folder = inside(_path_of(uri), self._roots)
        if not folder.is_dir():
            raise missing(uri)
        found = await asyncio.to_thread(_files_in, folder)
        items = [{"uri": path.as_uri(), "size_bytes": path.stat().st_size}
                 for path in found[:MOST_LISTED]]  # fmt: skip
        return {"uri": uri, "items": items, "count": len(found),
                "truncated": len(found) > MOST_LISTED}  # fmt: skip

    def _file(self, uri: str) -> Path:
        place = inside(_path_of(uri), self._roots)
        if not place.is_file():
            raise missing(uri)
        return place


def _path_of(uri: str) -> str:
    parts = urlsplit(uri)
    return unquote(f"{parts.netloc}{parts.path}")


def _media_of(uri: str) -> str:
    return mimetypes.guess_type(_path_of(uri))[0] or UNKNOWN


def _measured(place: Path) -> tuple[int, str]:
    with place.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


async def _one(raw: bytes) -> AsyncIterator[bytes]:
    yield raw


async def _written(place: Path, chunks: AsyncIterable[bytes]) -> tuple[int, str]:
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=".noetl-")
    digest, size = hashlib.sha256(), 0
    try:
        with os.fdopen(handle, "wb") as file:
            async for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                await asyncio.to_thread(file.write, chunk)
        await asyncio.to_thread(Path(name).replace, place)
    except BaseException:
        os.unlink(name)  # noqa: PTH108 - at once: whoever cancels does not wait for a thread
        raise
    return size, digest.hexdigest()


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
