"""Waiting messages as files: one file each, on the disk before its writer goes on.

A file is written beside its place, synced, renamed, and its folder is synced. Writers at the same
time are one group: their files are synced together, and each folder once. A crash leaves a file
that ends with `.tmp`, which nobody reads and the next start removes.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.blobs.base import checked
from noetl.blobs.spool.base import Listed, Size, SpoolError, SpoolLocked, SpoolTaken
from noetl.blobs.spool.names import Names
from noetl.blobs.spool.together import Together
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

MOST_AT_ONCE: Final = 256
"""Writers of one group."""
THREADS: Final = 4
UNFINISHED: Final = ".tmp"
_LOCK: Final = "lock"
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(slots=True)
class _Write:
    """A file on its way."""

    path: Path
    data: bytes
    is_new: bool
    done: asyncio.Future[None]
    beside: Path = field(init=False)
    is_placed: bool = False
    fault: Exception | None = None

    def __post_init__(self) -> None:
        self.beside = self.path.with_name(f"{random_key()}{UNFINISHED}")


async def _go_on(step: str) -> None:
    """Nothing happens between the steps of a write."""


class DiskStore:
    """Objects below one folder."""

    name = "local_disk"
    is_shared = False

    def __init__(self, root: Path, reached: Callable[[str], Awaitable[None]] = _go_on) -> None:
        """`reached` is told of each step of a write: `begun`, `synced`, `placed`, `kept`."""
        self._root = root
        self._reached = reached
        self._waiting: list[_Write] = []
        self._writer: asyncio.Task[None] | None = None
        self._reads = Together(_read)
        self._removals = Together(_remove)
        self._names = Names()
        self._locks: list[int] = []

    async def hold(self, folder: str) -> None:
        """Use the folder of a subscription (it ends with `/`), and nobody else may.

        `SpoolLocked` when another process does. What crashes left behind is removed.
        """
        await asyncio.to_thread(self._hold, self._root / checked(folder.rstrip("/")))

    async def close(self) -> None:
        """Finish what is being written, and let go."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        while self._locks:
            os.close(self._locks.pop())

    async def put_new(self, key: str, data: bytes) -> None:
        """Store an object that is not there."""
        await self._write(key, data, is_new=True)

    async def put(self, key: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        await self._write(key, data, is_new=False)

    async def get(self, key: str) -> bytes | None:
        """The bytes."""
        return await self._reads.of(self._path(key))

    async def list(self, folder: str, after: str = "", limit: int = 1000) -> Sequence[Listed]:
        """Objects directly in a folder, by key."""
        return await asyncio.to_thread(self._list, folder, after, limit)

    async def delete(self, key: str) -> None:
        """Forget an object; after a power cut it may be there again."""
        await self._removals.of(self._path(key))

    async def size(self, folder: str) -> Size:
        """What lies directly in a folder."""
        return await asyncio.to_thread(self._size, folder)

    def _path(self, key: str) -> Path:
        return self._root / checked(key)

    async def _write(self, key: str, data: bytes, *, is_new: bool) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(self._path(key), data, is_new, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all(), name="spool-disk")
        await done

    async def _write_all(self) -> None:
        """Write group after group, until nobody waits."""
        try:
            while self._waiting:
                group = self._waiting[:MOST_AT_ONCE]
                del self._waiting[:MOST_AT_ONCE]
                try:
                    await self._write_group(group)
                except Exception as fault:  # noqa: BLE001 - the border: whoever waits is told
                    for write in group:
                        write.fault = write.fault or fault
                for write in group:
                    _tell(write)
        finally:
            self._writer = None

    async def _write_group(self, group: Sequence[_Write]) -> None:
        await self._reached("begun")
        share = -(-len(group) // THREADS)
        parts = [group[start : start + share] for start in range(0, len(group), share)]
        await asyncio.gather(*(asyncio.to_thread(_write_beside, part) for part in parts))
        await self._reached("synced")
        await asyncio.to_thread(_place, group)
        await self._reached("placed")
        await asyncio.to_thread(_sync_folders, group)
        await self._reached("kept")

    def _hold(self, folder: Path) -> None:
        try:
            _make_folder(folder)
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BaseException:
                os.close(lock)
                raise
            self._locks.append(lock)
            for left in folder.glob(f"*/*{UNFINISHED}"):
                left.unlink(missing_ok=True)
        except BlockingIOError:
            raise SpoolLocked(
                f"another process uses the spool {folder}",
                hint="Stop it first, or give this one a folder of its own.",
            ) from None
        except OSError as fault:
            raise _failed(fault) from fault

    def _list(self, folder: str, after: str, limit: int) -> Sequence[Listed]:
        place = self._root / folder
        start = after.removeprefix(folder)
        found: list[Listed] = []
        try:
            for name in self._names.behind(folder, start, limit, lambda: _names_in(place)):
                with suppress(FileNotFoundError):  # it was deleted meanwhile
                    found.append(Listed(folder + name, (place / name).stat().st_size))
        except OSError as fault:
            raise _failed(fault) from fault
        return found

    def _size(self, folder: str) -> Size:
        items = size_bytes = 0
        for name in _names_in(self._root / folder):
            with suppress(FileNotFoundError):
                size_bytes += (self._root / folder / name).stat().st_size
                items += 1
        return Size(items, size_bytes)


def _tell(write: _Write) -> None:
    if write.done.done():
        return  # whoever asked went away
    if write.fault is None:
        write.done.set_result(None)
    elif isinstance(write.fault, OSError):
        write.done.set_exception(_failed(write.fault))
    else:
        write.done.set_exception(write.fault)


def _write_beside(group: Sequence[_Write]) -> None:
    """Write files beside their places; those that are there are on the disk."""
    for write in group:
        try:
            _write_synced(write.beside, write.data)
        except OSError as fault:
            write.fault = fault
            _remove(write.beside)


def _write_synced(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, _FILE_MODE)
    except FileNotFoundError:
        _make_folder(path.parent)
        handle = os.open(path, flags, _FILE_MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)


def _place(group: Sequence[_Write]) -> None:
    """Put files in their places; of two under one key, the first that is there stays."""
    for write in group:
        if write.fault is not None:
            continue
        try:
            there = _read(write.path) if write.is_new else None
            if there is None:
                write.beside.rename(write.path)
                write.is_placed = True
                continue
            if there != write.data:
                write.fault = SpoolTaken(f"{write.path.name}: something else lies there")
        except (OSError, SpoolError) as fault:
            write.fault = fault
        _remove(write.beside)


def _sync_folders(group: Sequence[_Write]) -> None:
    for folder in {write.path.parent for write in group if write.fault is None}:
        try:
            _sync_folder(folder)
        except OSError as fault:
            for write in group:
                if write.path.parent == folder and write.fault is None:
                    write.fault = fault
                    if write.is_new and write.is_placed:
                        _remove(write.path)  # its writer is told that it is not stored


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each for its owner only, and for good."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for made in reversed(missing):
        made.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        _sync_folder(made.parent)


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        raise _failed(fault) from fault
    with os.fdopen(handle, "rb") as file:
        return file.read()


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except NotADirectoryError:
        return
    except OSError as fault:
        raise _failed(fault) from fault


def _names_in(folder: Path) -> Iterator[str]:
    """The files of a folder, in no order; there may be more than one wants in memory."""
    try:
        found = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with found:
        for one in found:
            if not one.name.endswith(UNFINISHED) and one.is_file(follow_symlinks=False):
                yield one.name


def _failed(fault: OSError) -> SpoolError:
    if fault.errno in _FULL:
        return SpoolError("the disk of the spool is full", hint="Make room; it goes on by itself.")
    return SpoolError(f"the disk of the spool does not do it: {fault.strerror}")
