"""Large values that could not be stored yet: files beside the outbox, sent before their reports."""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.problems import Refused
from noetl.errors import NoetlError
from noetl.ids import random_key
from noetl.worker.patience import is_passing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from noetl.api.client import Client
    from noetl.worker.sending import Item

STORE: Final = "worker"
"""The word for this place in references; no reader ever sees one of them."""
_APART: Final = "_ref"
_MODE: Final = 0o600


class Undeliverable(NoetlError):
    """A large value that cannot be stored any more."""

    code = "result_lost"


class Parcels:
    """The files of one worker."""

    def __init__(self, folder: Path, client: Client) -> None:
        self._folder = folder
        self._client = client

    async def keep(self, raw: bytes, wishes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Write a value down; the reference that stands for it until it is delivered."""
        name = random_key()  # equal values of two reports are two files
        await asyncio.to_thread(self._write, name, raw)
        digest = sha256(raw).hexdigest()
        told = {"store": STORE, "file": name, "sha256": digest, "size": len(raw)}
        return {**told, "wishes": dict(wishes)} if wishes else told

    async def delivered(self, item: Item) -> Item:
        """The report with its large values stored at the server."""
        for holder, name, marker in _kept(item):
            reference = await self._store(item, marker)
            item = _with(item, (holder, name), reference, str(marker["file"]))
        return item

    async def forget(self, items: Iterable[Item]) -> None:
        """These reports were answered: their files are needed no more."""
        names = {name for item in items for name in item.parcels}
        if names:
            await asyncio.to_thread(self._remove, names)

    def clear(self) -> None:
        """No report names any file."""
        if self._folder.is_dir():
            self._remove({file.name for file in self._folder.iterdir()})

    async def _store(self, item: Item, marker: dict[str, Any]) -> dict[str, Any]:
        try:
            raw = await asyncio.to_thread((self._folder / str(marker["file"])).read_bytes)
        except OSError as fault:
            raise Undeliverable(f"the result was lost on this worker: {fault}") from fault
        if sha256(raw).hexdigest() != marker["sha256"]:
            raise Undeliverable("the result was damaged on this worker")
        report = item.report
        try:
            return await self._client.put_result(
                str(report.execution_id),
                report.step,
                raw,
                "application/json",
                **marker.get("wishes", {}),
            )
        except Refused as fault:
            if is_passing(fault):
                raise
            raise Undeliverable(f"the result could not be stored: {fault.message}") from fault

    def _write(self, name: str, raw: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = self._folder / f".{name}"
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(file, "wb") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        unfinished.rename(self._folder / name)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)


def _kept(item: Item) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where a report names a file: the field, the key in it, what is known of the file."""
    payload = item.report.payload
    if not isinstance(payload, dict):
        return
    whole, checkpoint = payload.get("reference"), payload.get("checkpoint")
    if isinstance(whole, dict) and whole.get("store") == STORE:
        yield "reference", "", whole
    if isinstance(checkpoint, dict):
        apart = checkpoint.get(_APART)
        if isinstance(apart, dict) and apart.get("store") == STORE:
            yield "checkpoint", _APART, apart


def _with(item: Item, place: tuple[str, str], reference: dict[str, Any], file: str) -> Item:
    holder, name = place
    value = {name: reference} if name else reference
    payload = {**item.report.payload, holder: value}
    return item.told(msgspec.structs.replace(item.report, payload=payload), file)
