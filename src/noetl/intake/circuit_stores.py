"""Where circuits and leases are kept, so that they outlive a process and processes share them."""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.bus.base import BusGone
from noetl.bus.keys import KeyChanged
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from noetl.api.client import Client
    from noetl.bus.keys import Entry, Keys

    Look = Callable[[], Awaitable[None]]

LEASES: Final = "drain"
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_CONFLICT: Final = "revision_conflict"
_SERVER_ERROR: Final = 500
_BUSY: Final = 429
_MODE: Final = 0o600


class Changed(NoetlError):
    """Somebody else has written the document first."""

    code = _CONFLICT
    status: ClassVar[int] = 409


class StoreGone(NoetlError):
    """Nobody can say what the document is."""

    code = "circuit_store_unreachable"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 503


@dataclass(frozen=True, slots=True)
class Document:
    """A small JSON object, and the revision that whoever changes it must know."""

    state: dict[str, Any]
    revision: int


class CircuitStore(Protocol):
    """Documents by key; every call may fail with `StoreGone`."""

    async def get(self, key: str) -> Document | None:
        """The newest one."""

    async def put(
        self, key: str, state: dict[str, Any], revision: int | None, ttl_s: float | None = None
    ) -> int:
        """Write one that still has this revision, or that is not there yet; else `Changed`."""

    async def delete(self, key: str, revision: int) -> None:
        """Forget one that still has this revision."""

    async def follow(self, keys: Sequence[str], look: Look, every_s: float) -> None:
        """Look now, whenever one of them was written, and every so often; until cancelled."""


def circuit_key(path: str, downstream: str) -> str:
    """The key of a breaker: `<subscription>.<downstream>`."""
    told = _token(path)
    # A subscription of this name shares no key with the leases of others.
    return f"{_hex(told[0]) + told[1:] if told == LEASES else told}.{_token(downstream)}"


def lease_key(path: str) -> str:
    """The key of the lease of whoever drains a subscription."""
    return f"{LEASES}.{_token(path)}"


def _token(text: str) -> str:
    return _FOREIGN.sub(lambda found: _hex(found[0]), text) or "="


def _hex(letter: str) -> str:
    return "".join(f"={byte:02x}" for byte in letter.encode(errors="surrogatepass"))


class KeysStore:
    """In the bucket `circuits` of a bus."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def get(self, key: str) -> Document | None:
        """The newest one."""
        try:
            entry = await self._keys.get(key)
        except BusGone as fault:
            raise StoreGone(fault.message) from fault
        return None if entry is None else Document(_object(entry.value), entry.revision)

    async def put(
        self, key: str, state: dict[str, Any], revision: int | None, ttl_s: float | None = None
    ) -> int:
        """Write one."""
        value = json.dumps(state).encode()
        try:
            if revision is None:
                return await self._keys.create(key, value, ttl_s)
            return await self._keys.update(key, value, revision, ttl_s)
        except KeyChanged as fault:
            raise Changed(fault.message) from fault
        except BusGone as fault:
            raise StoreGone(fault.message) from fault

    async def delete(self, key: str, revision: int) -> None:
        """Forget one."""
        try:
            await self._keys.delete(key, revision)
        except KeyChanged as fault:
            raise Changed(fault.message) from fault
        except BusGone as fault:
            raise StoreGone(fault.message) from fault

    async def follow(self, keys: Sequence[str], look: Look, every_s: float) -> None:
        """Look when the bus tells of a change; a word that was lost costs `every_s`."""
        while True:
            try:
                async with AsyncExitStack() as stack:
                    told = [await stack.enter_async_context(self._keys.watch(key)) for key in keys]
                    await _woken(told, look, every_s)
            except BusGone:
                await look()
                await asyncio.sleep(every_s)


async def _woken(told: Iterable[AsyncIterator[Entry]], look: Look, every_s: float) -> None:
    heard = asyncio.Event()

    async def listen(words: AsyncIterator[Entry]) -> None:
        async for _ in words:
            heard.set()

    async with asyncio.TaskGroup() as tasks:
        for words in told:
            tasks.create_task(listen(words))
        while True:
            heard.clear()
            await look()
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await heard.wait()


async def _often(look: Look, every_s: float) -> None:
    while True:
        await look()
        await asyncio.sleep(every_s)


class ServerStore:
    """At the server, for processes that reach no bus; it forgets nothing by itself."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, key: str) -> Document | None:
        """The newest one."""
        try:
            found = await self._client.circuit(key)
        except (NoAnswer, Refused) as fault:
            raise _of_server(fault) from fault
        return None if found is None else Document(found.state, found.revision)

    async def put(
        self, key: str, state: dict[str, Any], revision: int | None, ttl_s: float | None = None
    ) -> int:
        """Write one."""
        del ttl_s
        try:
            return (await self._client.put_circuit(key, state, revision)).revision
        except (NoAnswer, Refused) as fault:
            raise _of_server(fault) from fault

    async def delete(self, key: str, revision: int) -> None:
        """Forget one."""
        try:
            await self._client.delete_circuit(key, revision)
        except (NoAnswer, Refused) as fault:
            raise _of_server(fault) from fault

    async def follow(self, keys: Sequence[str], look: Look, every_s: float) -> None:
        """Look every so often: the server tells nobody of circuits."""
        del keys
        await _often(look, every_s)


def _of_server(fault: NoAnswer | Refused) -> Changed | StoreGone:
    return (Changed if fault.code == _CONFLICT else StoreGone)(fault.message)


class FileStore:
    """In one file of this machine, for one process at a time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._turn = asyncio.Lock()

    async def get(self, key: str) -> Document | None:
        """The newest one."""
        async with self._turn:
            return (await asyncio.to_thread(self._read)).get(key)

    async def put(
        self, key: str, state: dict[str, Any], revision: int | None, ttl_s: float | None = None
    ) -> int:
        """Write one."""
        del ttl_s
        async with self._turn:
            return await asyncio.to_thread(self._change, key, state, revision)

    async def delete(self, key: str, revision: int) -> None:
        """Forget one."""
        async with self._turn:
            await asyncio.to_thread(self._change, key, None, revision)

    async def follow(self, keys: Sequence[str], look: Look, every_s: float) -> None:
        """Look every so often; the only process that writes is this one."""
        del keys
        await _often(look, every_s)

    def _change(self, key: str, state: dict[str, Any] | None, revision: int | None) -> int:
        kept = self._read()
        found = kept.get(key)
        if (found.revision if found else None) != revision:
            raise Changed(f"{key} was written by somebody else")
        number = (revision or 0) + 1
        if state is None:
            kept.pop(key, None)
        else:
            kept[key] = Document(state, number)
        self._write(kept)
        return number

    def _read(self) -> dict[str, Document]:
        try:
            told = json.loads(self._file.read_bytes())
            return {key: Document(one["state"], one["revision"]) for key, one in told.items()}
        except FileNotFoundError:
            return {}
        except OSError as fault:
            raise StoreGone(f"{self._file.name} cannot be read: {fault.strerror}") from fault
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}  # half a file cannot be: somebody else wrote it, and a circuit begins anew

    def _write(self, kept: dict[str, Document]) -> None:
        told = {key: {"state": one.state, "revision": one.revision} for key, one in kept.items()}
        beside = self._file.with_name(f"{self._file.name}.tmp")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
            with os.fdopen(handle, "wb") as opened:
                opened.write(json.dumps(told, indent=1).encode())
                opened.flush()
                os.fsync(opened.fileno())
            beside.replace(self._file)
            folder = os.open(self._file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as fault:
            raise StoreGone(f"{self._file.name} cannot be written: {fault.strerror}") from fault


def _object(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
