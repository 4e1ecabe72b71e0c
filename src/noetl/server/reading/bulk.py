"""One thing done with many runs: each is judged and steered on its own, many at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Control, Rerun
from noetl.api.reading import Bulked, BulkResult
from noetl.edge.errors import Unacceptable
from noetl.errors import NoetlError
from noetl.server.access.caller import must
from noetl.store.base import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.reading import Bulk
    from noetl.server.access.caller import Caller
    from noetl.server.access.quota import Quotas
    from noetl.server.runs.again import Repeats
    from noetl.server.runs.control import Controls
    from noetl.store.base import ExecutionRow, Store

MOST: Final = 10_000
AT_ONCE: Final = 64
"""Runs that are steered at the same time; their commits are shared."""
_PAGE: Final = 200
_PERMISSIONS: Final = {"rerun": "execution:run"}
_CONTROL: Final = "execution:control"


class Bulks:
    """Steers many runs."""

    def __init__(self, store: Store, controls: Controls, repeats: Repeats, quotas: Quotas) -> None:
        self._executions = store.executions
        self._controls = controls
        self._repeats = repeats
        self._quotas = quotas

    async def do(
        self, body: Bulk, caller: Caller, found: Listing | Sequence[str], by: str, key: str | None
    ) -> Bulked:
        """Do it with the runs of a list, or with those that are named."""
        if not 1 <= body.limit <= MOST:
            raise Unacceptable(f"`limit` is not in 1..{MOST}")
        runs, has_more = await self._runs(found, body.limit, caller)
        results: list[BulkResult] = []
        if body.dry_run:
            results = [
                BulkResult(execution_id=run, outcome="matched", status=status)
                for run, _, status in runs
            ]
        for start in range(0, 0 if body.dry_run else len(runs), AT_ONCE):
            chunk = runs[start : start + AT_ONCE]
            results += await asyncio.gather(
                *(self._one(body, caller, run, path, by, key) for run, path, _ in chunk)
            )
        failed = sum(item.outcome == "error" for item in results)
        return Bulked(
            action=body.action,
            dry_run=body.dry_run,
            matched=len(runs),
            done=0 if body.dry_run else len(results) - failed,
            failed=failed,
            has_more=has_more,
            results=tuple(results),
        )

    async def _runs(
        self, found: Listing | Sequence[str], limit: int, caller: Caller
    ) -> tuple[list[tuple[str, str, str]], bool]:
        """Which runs are meant, before anything is done: what is done must not change that."""
        rows: list[tuple[str, str, str]] = []
        if not isinstance(found, Listing):
            for start in range(0, min(len(found), limit), _PAGE):
                named = tuple(found[start : min(start + _PAGE, limit)])
                listing = Listing(execution_ids=named, limit=_PAGE, is_ascending=True)
                page = await self._executions.listed(listing)
                rows += [
                    _named(row)
                    for row in page
                    if not caller.is_bound or row.tenant_id == caller.tenant_id
                ]
            return rows, len(found) > limit
        after: str | None = None
        while len(rows) <= limit:
            listing = msgspec.structs.replace(found, limit=_PAGE, after=after, is_ascending=True)
            page = await self._executions.listed(listing)
            rows += map(_named, page)
            if len(page) < _PAGE:
                break
            after = page[-1].execution_id
        return rows[:limit], len(rows) > limit

    async def _one(  # noqa: PLR0913, PLR0917 - one run, and all that the request says
        self, body: Bulk, caller: Caller, run: str, path: str, by: str, key: str | None
    ) -> BulkResult:
        try:
            must(caller, _PERMISSIONS.get(body.action, _CONTROL), path)
            return await self._done(body, caller, run, by, key)
        except NoetlError as refusal:
            error: dict[str, Any] = {"code": refusal.code, "detail": refusal.message,
                                     "retryable": refusal.retryable}  # fmt: skip
            return BulkResult(execution_id=run, outcome="error", error=error)

    async def _done(
        self, body: Bulk, caller: Caller, run: str, by: str, key: str | None
    ) -> BulkResult:
        control = Control(reason=body.reason)
        if body.action == "rerun":
            self._quotas.pace(caller)
            started = await self._repeats.rerun(run, Rerun(), caller, key=key)
            return BulkResult(execution_id=run, outcome="ok", started=started.execution_id)
        if body.action == "cancel":
            told = await self._controls.cancel(run, control, by, key=key)
        elif body.action == "pause":
            told = await self._controls.pause(run, control, by, key=key)
        else:
            told = await self._controls.resume(run, control, by, key=key)
        return BulkResult(execution_id=run, outcome="ok", status=told.status)


def _named(row: ExecutionRow) -> tuple[str, str, str]:
    return row.execution_id, row.path, row.status
