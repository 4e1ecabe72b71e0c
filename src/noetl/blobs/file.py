"""Large bytes as files: one file per object, readable by its owner only.

A file begins with its label. It is written beside its place, synced, and renamed; a crash leaves a
hidden file that nobody reads.
"""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Final

from noetl.blobs.base import CHUNK_BYTES, JSON, BlobGone, Stat, checked
from noetl.blobs.label import LABEL_BYTES, compare, label_of, read_label
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator
    from pathlib import Path

_END: Final = "+"
"""Ends the name of a file; no key holds it, so a key may be the beginning of another."""
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class FileBlobs:
    """Objects below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def name(self) -> str:
        """The word for this store in references."""
        return "disk"

    async def put(self, key: str, data: bytes, *, media_type: str = JSON) -> None:
        """Keep bytes, all of them or none; what was there before is replaced."""
        checked(key, media_type)
        await asyncio.to_thread(self._put, key, data, media_type)

    async def get(self, key: str) -> bytes:
        """All bytes; `BlobGone` when there are none, `BlobDamaged` when they are not the same."""
        return await asyncio.to_thread(self._get, checked(key))

    async def put_stream(
        self, key: str, chunks: AsyncIterable[bytes], *, media_type: str = JSON
    ) -> Stat:
        """Keep bytes as they come; nothing is kept when their source fails."""
        checked(key, media_type)
        writing = await asyncio.to_thread(_Writing, self._path(key), key, media_type)
        try:
            async for chunk in chunks:
                await asyncio.to_thread(writing.write, chunk)
            return await asyncio.to_thread(writing.finish)
        finally:
            writing.discard()

    async def get_stream(
        self, key: str, first: int = 0, last: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in chunks; damage is raised at the latest after the last one."""
        file, stat = await asyncio.to_thread(self._open, checked(key))
        end = stat.size if last is None else min(last + 1, stat.size)
        digest, size = sha256(), first
        try:
            file.seek(LABEL_BYTES + first)
            while chunk := await asyncio.to_thread(_read, file, size, end, is_all=last is None):
                digest.update(chunk)
                size += len(chunk)
                yield chunk
        finally:
            file.close()
        if first == 0 and last is None:
            compare(stat, size, digest.hexdigest())

    async def head(self, key: str) -> Stat | None:
        """What lies under a key."""
        return await asyncio.to_thread(self._head, checked(key))

    async def delete(self, key: str) -> None:
        """Forget a key; one that is not there is forgotten already."""
        path = self._path(checked(key))
        await asyncio.to_thread(path.unlink, missing_ok=True)

    async def listed(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys that begin with a text, in order."""
        found = await asyncio.to_thread(self._listed, prefix)
        return [key for key in found if key > after][:limit]

    def _path(self, key: str) -> Path:
        return self._root / (key + _END)

    def _put(self, key: str, data: bytes, media_type: str) -> None:
        writing = _Writing(self._path(key), key, media_type)
        try:
            writing.write(data)
            writing.finish()
        finally:
            writing.discard()

    def _get(self, key: str) -> bytes:
        file, stat = self._open(key)
        with file:
            data = file.read()
        compare(stat, len(data), sha256(data).hexdigest())
        return data

    def _open(self, key: str) -> tuple[BinaryIO, Stat]:
        try:
            handle = os.open(self._path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise BlobGone(f"{key}: nothing lies there") from None
        file = os.fdopen(handle, "rb")
        try:
            return file, read_label(key, file.read(LABEL_BYTES))
        except BaseException:
            file.close()
            raise

    def _head(self, key: str) -> Stat | None:
        try:
            file, stat = self._open(key)
        except BlobGone:
            return None
        file.close()
        return stat

    def _listed(self, prefix: str) -> list[str]:
        found = []
        for folder, _, names in os.walk(self._root):
            inside = os.path.relpath(folder, self._root)
            start = "" if inside == "." else inside + "/"
            found += [
                start + name.removesuffix(_END)
                for name in names
                if name.endswith(_END) and not name.startswith(".")
            ]
        return sorted(key for key in found if key.startswith(prefix))


class _Writing:
    """A file beside its place, until it is complete."""

    def __init__(self, path: Path, key: str, media_type: str) -> None:
        self._path = path
        self._key = key
        self._media_type = media_type
        self._digest = sha256()
        self._size = 0
        _make_folder(path.parent)
        self._beside = path.with_name(f".{random_key()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._beside, flags, _FILE_MODE), "wb")
        self._file.write(bytes(LABEL_BYTES))

    def write(self, chunk: bytes) -> None:
        """Add bytes."""
        self._digest.update(chunk)
        self._size += len(chunk)
        self._file.write(chunk)

    def finish(self) -> Stat:
        """Put the file in its place, for good."""
        stat = Stat(
            key=self._key,
            size=self._size,
            sha256=self._digest.hexdigest(),
            media_type=self._media_type,
        )
        self._file.seek(0)
        self._file.write(label_of(stat))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._beside.replace(self._path)
        _sync_folder(self._path.parent)
        return stat

    def discard(self) -> None:
        """Remove what is not in its place."""
        self._file.close()
        self._beside.unlink(missing_ok=True)


def _read(file: BinaryIO, at: int, end: int, *, is_all: bool) -> bytes:
    """The next chunk; of the whole, also bytes that should not be there, so that they are found."""
    return file.read(CHUNK_BYTES if is_all else min(CHUNK_BYTES, max(0, end - at)))


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each for its owner only."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
