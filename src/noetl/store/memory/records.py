"""All sealed records of a memory, for the rotation of the key that wraps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.store.secrets import SealedRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.store.memory.tables import Tables
    from noetl.store.secrets import SecretTable


class MemoryRecords:
    """Records by table, each under its key."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables.secrets

    async def page(
        self, table: SecretTable, *, after: str | None = None, limit: int = 100
    ) -> list[SealedRecord]:
        """Records in a fixed order, those behind a key."""
        found = sorted((_rank(table, one.key), one.key, one) for one in self._all(table))
        least = None if after is None else _rank(table, after)
        kept = [one for rank, _, one in found if least is None or rank > least]
        return kept[:limit]

    async def swap(
        self, table: SecretTable, changes: Sequence[tuple[SealedRecord, str]]
    ) -> list[str]:
        """Replace records by others, where they are still the same."""
        known = {one.key: one.record for one in self._all(table)}
        done = []
        for before, record in changes:
            if known.get(before.key) == before.record:
                self._write(table, before.key, record)
                done.append(before.key)
        return done

    def _all(self, table: SecretTable) -> Iterator[SealedRecord]:
        if table == "credential":
            for name, row in self._tables.credentials.items():
                yield SealedRecord(key=name, record=row.data_encrypted)
        elif table == "keychain":
            for name, value in self._tables.keychain.items():
                yield SealedRecord(key=name, record=value.data_encrypted)
        else:
            for run, records in self._tables.inputs.items():
                for name, record in records.items():
                    yield SealedRecord(key=f"{run}/{name}", record=record)

    def _write(self, table: SecretTable, key: str, record: str) -> None:
        if table == "credential":
            row = self._tables.credentials[key]
            self._tables.credentials[key] = msgspec.structs.replace(row, data_encrypted=record)
        elif table == "keychain":
            value = self._tables.keychain[key]
            self._tables.keychain[key] = msgspec.structs.replace(value, data_encrypted=record)
        else:
            run, _, name = key.partition("/")
            self._tables.inputs[run][name] = record


def _rank(table: SecretTable, key: str) -> tuple[int, str]:
    """Where a key stands: ids by their number, other texts by their letters."""
    if table == "keychain":
        return 0, key
    number, _, name = key.partition("/")
    return int(number), name
