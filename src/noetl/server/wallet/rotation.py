"""Rotation: the keys of all records come under the current version of the key that wraps them.

What a record holds stays as it is. A rotation that ends early is begun anew: records that are
current are passed over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from noetl.api.credentials import KeyStatus, KeyVersion, Rotated, TableRotation
from noetl.edge.errors import Unacceptable
from noetl.errors import NoetlError
from noetl.secrets.kek.base import RecordDamaged, WalletError
from noetl.secrets.wallet import version_of
from noetl.store.secrets import SECRET_TABLES

if TYPE_CHECKING:
    from noetl.api.credentials import RotateKek
    from noetl.clock import Clock
    from noetl.server.metrics import ServerMetrics
    from noetl.server.wallet.box import Box
    from noetl.store.secrets import Records, SealedRecord, SecretTable

MOST_AT_ONCE: Final = 1_000
MOST_BATCHES: Final = 100_000
_PAGE: Final = 1_000
_BESIDE: Final = 16
"""How many records a key service is asked about at once."""
_LONG_S: Final = 40.0
"""A request ends after a while; the next one goes on."""
_FAILED: Final = ("parse_error", "failed_unwrap", "failed_wrap", "failed_write")
_Version = tuple[str, str, str]


class Rotation:
    """Wraps records anew, and tells what wraps them."""

    def __init__(self, records: Records, box: Box, metrics: ServerMetrics, clock: Clock) -> None:
        self._records = records
        self._box = box
        self._metrics = metrics
        self._clock = clock

    async def rotate(self, body: RotateKek) -> Rotated:
        """Bring every record under the current version, table by table."""
        if not 1 <= body.batch_size <= MOST_AT_ONCE:
            raise Unacceptable(f"`batch_size` is not in 1..{MOST_AT_ONCE}")
        if not 1 <= body.max_batches <= MOST_BATCHES:
            raise Unacceptable(f"`max_batches` is not in 1..{MOST_BATCHES}")
        current = await self._box.wallet.current()
        until = self._clock.monotonic() + _LONG_S
        tables: dict[str, TableRotation] = {}
        for table in SECRET_TABLES:
            one = _Table(
                self._records, self._box, self._metrics, self._clock,
                table=table, current=current, until=until,
            )  # fmt: skip
            tables[table] = await one.run(body.batch_size, body.max_batches)
        return Rotated(tables=tables, is_done=all(one.is_done for one in tables.values()))

    async def status(self) -> KeyStatus:
        """Which version wraps now, and how many records each version has wrapped."""
        provider, key_id, version = current = await self._box.wallet.current()
        tables: dict[str, tuple[KeyVersion, ...]] = {}
        unreadable: dict[str, int] = {}
        for table in SECRET_TABLES:
            found, unreadable[table] = await self._counted(table)
            tables[table] = tuple(
                KeyVersion(
                    provider=one[0],
                    key_id=one[1],
                    version=one[2],
                    rows=rows,
                    is_current=one == current,
                )
                for one, rows in sorted(found.items())
            )
        return KeyStatus(
            provider=provider, key_id=key_id, version=version, tables=tables, unreadable=unreadable
        )

    async def _counted(self, table: SecretTable) -> tuple[Counter[_Version], int]:
        found: Counter[_Version] = Counter()
        unreadable, after = 0, None
        while page := await self._records.page(table, after=after, limit=_PAGE):
            for one in page:
                try:
                    found[version_of(one.record)] += 1
                except RecordDamaged:
                    unreadable += 1
            after = page[-1].key
        return found, unreadable


class _Table:
    """The rotation of one table."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        records: Records,
        box: Box,
        metrics: ServerMetrics,
        clock: Clock,
        *,
        table: SecretTable,
        current: _Version,
        until: float,
    ) -> None:
        self._records = records
        self._wallet = box.wallet
        self._metrics = metrics
        self._clock = clock
        self._until = until
        self._table = table
        self._current = current
        self._count: Counter[str] = Counter()

    async def run(self, batch_size: int, max_batches: int) -> TableRotation:
        """Go through the table; one batch is one write."""
        last: str | None = None
        is_done, batches = False, 0
        while not is_done and batches < max_batches and self._clock.monotonic() < self._until:
            page = await self._records.page(self._table, after=last, limit=batch_size)
            batches += await self._batch(page)  # what is current already costs next to nothing
            last = page[-1].key if page else last
            is_done = len(page) < batch_size
        return TableRotation(
            processed=self._count["processed"],
            rewrapped=self._count["rewrapped"],
            skipped=self._count["skipped"],
            failed={name: self._count[name] for name in _FAILED},
            last_id=last,
            is_done=is_done,
        )

    async def _batch(self, page: list[SealedRecord]) -> bool:
        """Wrap the keys of some records anew; whether there was anything to do."""
        changes: list[tuple[SealedRecord, str]] = []
        for start in range(0, len(page), _BESIDE):
            part = page[start : start + _BESIDE]
            made = await asyncio.gather(*(self._rewrapped(one) for one in part))
            changes += [(one, fresh) for one, fresh in zip(part, made, strict=True) if fresh]
        if changes:
            await self._write(changes)
        return bool(changes)

    async def _rewrapped(self, one: SealedRecord) -> str | None:
        self._count["processed"] += 1
        try:
            fresh = await self._wallet.rewrap(one.record, self._current)
        except WalletError as fault:
            self._tell(fault.failure or "failed_unwrap")
            return None
        if fresh is None:
            self._tell("skipped")
        return fresh

    async def _write(self, changes: list[tuple[SealedRecord, str]]) -> None:
        try:
            done = await self._records.swap(self._table, changes)
        except NoetlError:
            self._tell("failed_write", len(changes))
            return
        self._tell("rewrapped", len(done))
        # The rest was written anew meanwhile, and so is current.
        self._tell("skipped", len(changes) - len(done))

    def _tell(self, status: str, count: int = 1) -> None:
        if count:
            self._count[status] += count
            self._metrics.wallet_rotate.inc(self._table, status, by=count)
