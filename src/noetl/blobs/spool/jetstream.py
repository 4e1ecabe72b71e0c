"""Waiting messages in an object store of NATS JetStream, readable by every client of it.

An object is chunks under a subject of their own, and then a description under its name: before
the description is kept there is no object. A deleted one leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from noetl.blobs.base import InvalidKey, checked
from noetl.blobs.spool.base import Listed, Size, SpoolError, SpoolTaken
from noetl.blobs.spool.names import Names
from noetl.errors import NoetlError
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHUNK_BYTES: Final = 128 * 1024
AT_ONCE: Final = 32
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_ONLY_THIS: Final = {"Nats-Rollup": "sub"}


class Messages(Protocol):
    """The messages of a bucket; `noetl.bus.objects.NatsObjects` is one."""

    bucket: str

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> int | None:
        """Keep a message; its sequence, or none when a header expects another last one."""

    async def last(self, subject: str) -> tuple[int, bytes] | None:
        """The newest message of a subject with its sequence."""

    async def next(self, subject: str, seq: int) -> tuple[int, bytes] | None:
        """The first message of a subject from a sequence on."""

    async def subjects(self, pattern: str) -> Sequence[str]:
        """The subjects with messages that fall under a pattern, in no order."""

    async def purge(self, subject: str) -> None:
        """Forget all messages of a subject."""

    async def copies(self) -> int:
        """How many brokers keep each message."""


class _Options(msgspec.Struct, frozen=True):
    max_chunk_size: int = CHUNK_BYTES


class _Info(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description of an object, as every client writes it."""

    name: str
    bucket: str
    nuid: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    options: _Options | None = None


class JetStreamStore:
    """Objects of one bucket, below a prefix."""

    name = "nats_object"
    is_shared = True

    def __init__(self, messages: Messages, prefix: str = "") -> None:
        self._messages = messages
        self._prefix = f"{prefix}/" if prefix else ""
        self._start = f"$O.{messages.bucket}."
        self._names = Names()

    async def put_new(self, key: str, data: bytes) -> None:
        """Store an object that is not there."""
        with _failing():
            seq, there = await self._described(checked(key))
            if there is None and await self._store(key, data, {_EXPECTED: str(seq)}):
                return
        if await self.get(key) != data:
            raise SpoolTaken(f"{key}: something else lies there")

    async def put(self, key: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        with _failing():
            _, there = await self._described(checked(key))
            await self._store(key, data, {})
            if there is not None:
                await self._messages.purge(self._chunks(there.nuid))

    async def get(self, key: str) -> bytes | None:
        """The bytes."""
        with _failing():
            _, there = await self._described(checked(key))
            if there is None:
                return None
            data = await self._joined(there)
            if len(data) != there.size and (await self._described(key))[1] != there:
                return await self.get(key)  # another one took its place meanwhile
            return data

    async def list(self, folder: str, after: str = "", limit: int = 1000) -> Sequence[Listed]:
        """Objects directly in a folder, by key."""
        with _failing():
            subjects = None
            start = after.removeprefix(folder)
            if not self._names.has_behind(folder, start):
                subjects = await self._messages.subjects(f"{self._start}M.>")
            names = self._names.behind(
                folder, start, limit, lambda: self._in_folder(subjects or (), folder)
            )
            return await self._sized([folder + name for name in names])

    async def delete(self, key: str) -> None:
        """Forget an object: first that there is one, then its bytes."""
        with _failing():
            _, there = await self._described(checked(key))
            if there is not None:
                await self._messages.purge(self._name(key))
                await self._messages.purge(self._chunks(there.nuid))

    async def size(self, folder: str) -> Size:
        """What lies directly in a folder."""
        items = size_bytes = 0
        with _failing():
            subjects = await self._messages.subjects(f"{self._start}M.>")
            keys = [folder + name for name in self._in_folder(subjects, folder)]
            for start in range(0, len(keys), 1000):
                found = await self._sized(keys[start : start + 1000])
                items += len(found)
                size_bytes += sum(one.size for one in found)
        return Size(items, size_bytes)

    def _name(self, key: str) -> str:
        encoded = base64.urlsafe_b64encode((self._prefix + key).encode()).decode()
        return f"{self._start}M.{encoded}"

    def _chunks(self, nuid: str) -> str:
        return f"{self._start}C.{nuid}"

    def _in_folder(self, subjects: Sequence[str], folder: str) -> Iterator[str]:
        """The names of objects directly in a folder."""
        inside = self._prefix + folder
        for subject in subjects:
            encoded = subject[len(self._start) + 2 :]
            with suppress(ValueError):  # a name of somebody else, who encodes it otherwise
                name = base64.urlsafe_b64decode(encoded).decode()
                if name.startswith(inside) and "/" not in name[len(inside) :]:
                    yield name[len(inside) :]

    async def _described(self, key: str) -> tuple[int, _Info | None]:
        """The sequence of a description and what it says; of what is not there 0 and none."""
        found = await self._messages.last(self._name(key))
        if found is None:
            return 0, None
        try:
            info = msgspec.json.decode(found[1], type=_Info)
        except msgspec.MsgspecError:
            raise SpoolError(f"{key}: its description cannot be read") from None
        return found[0], None if info.deleted else info

    async def _store(self, key: str, data: bytes, headers: Mapping[str, str]) -> bool:
        """Keep chunks, then the description; false when that was expected to be another."""
        nuid = random_key()
        starts = range(0, len(data), CHUNK_BYTES)
        is_kept = False
        try:
            for start in starts:
                chunk = data[start : start + CHUNK_BYTES]
                await self._messages.publish(self._chunks(nuid), chunk)
            info = _Info(
                name=self._prefix + key,
                bucket=self._messages.bucket,
                nuid=nuid,
                size=len(data),
                chunks=len(starts),
                digest=f"SHA-256={base64.urlsafe_b64encode(sha256(data).digest()).decode()}",
                options=_Options(),
            )
            told = msgspec.json.encode(info)
            seq = await self._messages.publish(self._name(key), told, {**_ONLY_THIS, **headers})
            is_kept = seq is not None
        finally:
            if not is_kept:
                await self._discard(key, nuid)
        return is_kept

    async def _discard(self, key: str, nuid: str) -> None:
        """Chunks without a description; one whose answer was lost keeps them."""
        with suppress(NoetlError):
            _, there = await self._described(key)
            if there is None or there.nuid != nuid:
                await self._messages.purge(self._chunks(nuid))

    async def _joined(self, info: _Info) -> bytes:
        parts: list[bytes] = []
        seq = 1
        for _ in range(info.chunks):
            found = await self._messages.next(self._chunks(info.nuid), seq)
            if found is None:
                break
            parts.append(found[1])
            seq = found[0] + 1
        return b"".join(parts)

    async def _sized(self, keys: Sequence[str]) -> Sequence[Listed]:
        found: dict[str, _Info | None] = {}
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            told = await asyncio.gather(*map(self._described, some))
            found |= {key: info for key, (_, info) in zip(some, told, strict=True)}
        return [Listed(key, info.size) for key, info in found.items() if info is not None]


@contextmanager
def _failing() -> Iterator[None]:
    """Whatever the broker says means that nothing was stored."""
    try:
        yield
    except (SpoolError, SpoolTaken, InvalidKey):
        raise
    except NoetlError as fault:
        raise SpoolError(f"the broker did not keep it: {fault.message}", hint=fault.hint) from fault
