"""All stored values of a run, and those that belong to no run: listed, deleted, collected."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from noetl.api.callbacks import Collected
from noetl.api.results import ResultItem, ResultPage, ResultsDeleted
from noetl.blobs.base import BlobGone
from noetl.blobs.naming import SCHEME, parsed
from noetl.blobs.tiered import Tiers
from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable
from noetl.ids import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from noetl.api.callbacks import Collect
    from noetl.blobs.base import Blobs
    from noetl.clock import Clock
    from noetl.edge.cursor import Cursors
    from noetl.server.values.stored import Values
    from noetl.store.stored import Results

MOST_COLLECTED: Final = 100_000
LONGEST_GRACE_S: Final = 10 * 366 * 86_400
_PAGE: Final = 1_000
_RUNS: Final = "execution/"


class Inventory:
    """Walks over stored values, a page at a time."""

    def __init__(
        self, blobs: Blobs, results: Results, values: Values, cursors: Cursors, clock: Clock
    ) -> None:
        self._objects = blobs if isinstance(blobs, Tiers) else None
        self._blobs = blobs
        self._results = results
        self._values = values
        self._cursors = cursors
        self._clock = clock

    async def page(self, execution_id: str, limit: int, cursor: str | None) -> ResultPage:
        """Stored values of a run, by reference."""
        filters = {"of": "results", "execution_id": execution_id}
        after = "" if cursor is None else str(self._cursors.decode(cursor, filters))
        keys = await self._blobs.listed(f"{_RUNS}{execution_id}/", after=after, limit=limit + 1)
        page, has_more = keys[:limit], len(keys) > limit
        rows = await self._results.found(page)
        items = []
        for key in page:
            row = rows.get(key)
            stat = None if row is not None else await self._blobs.head(key)
            if row is None and stat is None:
                continue  # deleted meanwhile
            size = row.size if row is not None else stat.size if stat is not None else 0
            items.append(
                ResultItem(
                    ref=SCHEME + key,
                    name=parsed(SCHEME + key).name,
                    scope="execution" if row is None else row.scope,
                    source_step=None if row is None else row.source_step,
                    store=self._values.store_of(size),
                    size=size,
                    sha256=row.sha256 if row is not None else stat.sha256 if stat else "",
                    content_type=row.content_type if row else stat.media_type if stat else "",
                    created_at=None if row is None else row.created_at,
                    expires_at=None if row is None else row.expires_at,
                )
            )
        following = self._cursors.encode(filters, page[-1]) if has_more else None
        return ResultPage(items=tuple(items), next_cursor=following)

    async def delete(
        self, execution_id: str, ref: str | None = None, name: str | None = None
    ) -> ResultsDeleted:
        """Delete one value by its reference, those of a name, or all of a run."""
        if ref is not None and name is not None:
            raise Unacceptable("`ref` and `name` exclude each other")
        if ref is not None:
            count = await self._delete_one(execution_id, ref)
        else:
            count = await self._delete_all(execution_id, name)
        return ResultsDeleted(execution_id=execution_id, results_deleted=count)

    async def _delete_one(self, execution_id: str, ref: str) -> int:
        found = parsed(ref)
        if found.execution_id != execution_id or await self._blobs.head(found.key) is None:
            raise BlobGone(f"the run has no value {ref[:200]}")
        await self._delete([found.key])
        return 1

    async def _delete_all(self, execution_id: str, name: str | None) -> int:
        count, after = 0, ""
        while True:
            prefix = f"{_RUNS}{execution_id}/"
            page = await self._blobs.listed(prefix, after=after, limit=_PAGE)
            wanted = [key for key in page if name in {None, parsed(SCHEME + key).name}]
            await self._delete(wanted)
            count += len(wanted)
            if len(page) < _PAGE:
                return count
            after = page[-1]

    async def collect(self, body: Collect) -> Collected:
        """Remove objects of runs that there are not: what was written before a commit that failed.

        A run that is younger than the grace may be about to begin.
        """
        _must_be_within("grace_seconds", body.grace_seconds, 0, LONGEST_GRACE_S)
        _must_be_within("limit", body.limit, 1, MOST_COLLECTED)
        born = self._clock.now() - timedelta(seconds=body.grace_seconds)
        youngest = int((born - EPOCH).total_seconds() * 1000) << 22
        left, removed = await self._unnamed(body, born)
        scanned, orphans, after = left, removed, ""
        while orphans < body.limit:
            page = await self._blobs.listed(_RUNS, after=after, limit=_PAGE)
            of_runs = {key: run for key, run in _owned(page) if int(run) < youngest}
            gone = await self._results.ownerless(sorted(set(of_runs.values())))
            lost = [key for key, run in of_runs.items() if run in gone]
            lost = await self._mortal(lost)
            lost = lost[: body.limit - orphans]
            if not body.dry_run:
                await self._delete(lost)
            scanned, orphans = scanned + len(page), orphans + len(lost)
            if len(page) < _PAGE:
                break
            after = page[-1]
        return Collected(
            scanned=scanned,
            orphans=orphans,
            removed=0 if body.dry_run else orphans,
            dry_run=body.dry_run,
        )

    async def _mortal(self, keys: list[str]) -> list[str]:
        """Those of the keys that nobody wants to stay when their runs are gone."""
        if not keys:
            return keys
        rows = await self._results.found(keys)
        return [key for key in keys if key not in rows or rows[key].scope != "permanent"]

    async def _unnamed(self, body: Collect, born: datetime) -> tuple[int, int]:
        """Objects that were written and never named, because the row was not committed."""
        objects = self._objects
        if objects is None:
            return 0, 0
        scanned, found, after = 0, 0, ""
        while found < body.limit:
            page = await objects.unnamed(born, after, _PAGE)
            lost = list(page.keys[: body.limit - found])
            if not body.dry_run:
                await objects.drop(lost)
            scanned, found = scanned + page.scanned, found + len(lost)
            if not page.after:
                break
            after = page.after
        return scanned, found

    async def expire(self, limit: int = _PAGE) -> int:
        """Delete values whose time has passed, and those of steps whose runs have ended."""
        now = rfc3339(self._clock.now())
        count = 0
        while gone := await self._results.forget_expired(now, limit):
            await self.drop([one.object_key for one in gone if one.object_key is not None])
            count += len(gone)
            if len(gone) < limit:
                break
        return count

    async def forgotten(self, execution_ids: Sequence[str]) -> Sequence[str]:
        """The objects that are to be dropped when runs were forgotten."""
        return [] if self._objects is None else await self._objects.objects_of(execution_ids)

    async def drop(self, object_keys: Sequence[str]) -> None:
        """Delete bytes that lay beside rows that are gone."""
        if self._objects is not None:
            await self._objects.drop(object_keys)
            return
        for start in range(0, len(object_keys), 100):
            await asyncio.gather(*map(self._blobs.delete, object_keys[start : start + 100]))

    async def _delete(self, keys: list[str]) -> None:
        for start in range(0, len(keys), 100):
            part = keys[start : start + 100]
            await asyncio.gather(*map(self._blobs.delete, part))
            await self._results.delete(part)


def _owned(keys: list[str]) -> Iterator[tuple[str, str]]:
    """Keys with the runs that they name."""
    for key in keys:
        run = key.split("/", 2)[1]
        if run.isascii() and run.isdigit():
            yield key, run


def _must_be_within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise Unacceptable(
            f"`{name}` is not in {least}..{most}",
            errors=({"pointer": f"/{name}", "code": "validation_failed"},),
        )
