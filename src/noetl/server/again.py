"""Runs that repeat another one: from its start, or from a point of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.engine import events as ev
from noetl.engine.fork import must_fit, position, snapshot_at
from noetl.ids import parse
from noetl.server.errors import UnknownExecution
from noetl.server.wanted import Wanted

if TYPE_CHECKING:
    from noetl.api.executions import Fork, Rerun, Started
    from noetl.engine.events import Recorded
    from noetl.server.execute import Runs
    from noetl.server.programs import Programs
    from noetl.store.base import CatalogEntry, Store

_PAGE: Final = 1_000
_SAME: Final = (None, "same")


class Repeats:
    """Reruns and forks."""

    def __init__(self, store: Store, programs: Programs, runs: Runs) -> None:
        self._store = store
        self._programs = programs
        self._runs = runs

    async def rerun(self, execution_id: str, body: Rerun, account: str = "local") -> Started:
        """Start the same playbook again, with the same workload unless another is given."""
        start = await self._start_of(execution_id)
        entry = await self._version(start, body.version)
        wanted = _like(start, entry, account)
        wanted.rerun_of = execution_id
        if body.payload is None:
            wanted.workload = start.workload
        else:
            wanted.payload = body.payload
        return await self._runs.start(wanted)

    async def fork(self, execution_id: str, body: Fork, account: str = "local") -> Started:
        """Start a run in the state that another one had."""
        start = await self._start_of(execution_id)
        log = await self._log(execution_id)
        seq = position(
            log, seq=body.from_seq, event_id=_id(body.from_event_id), step=body.from_step
        )
        snapshot = snapshot_at(await self._programs.get(start.catalog_id), log, seq)
        entry = await self._version(start, body.version)
        must_fit(snapshot, await self._programs.get(entry.catalog_id))
        source = {"execution_id": execution_id, "seq": seq}
        wanted = _like(start, entry, account)
        wanted.forked_from = source
        if body.payload is None:
            wanted.workload = start.workload
        else:
            wanted.payload = body.payload
        overrides: dict[str, Any] = {
            "workload": True if body.payload is not None else None,
            "ctx": {key.removeprefix("ctx."): value for key, value in body.set.items()},
            "results": body.results,
        }
        wanted.restored = ev.StateRestored(
            source=source,
            snapshot=snapshot,
            overrides={key: value for key, value in overrides.items() if value},
        )
        return await self._runs.start(wanted)

    async def _start_of(self, execution_id: str) -> ev.PlaybookStarted:
        first = await self._store.log.read(execution_id, 0, 1)
        event = first[0].event if first else None
        if not isinstance(event, ev.PlaybookStarted):
            raise UnknownExecution(f"there is no execution {execution_id}")
        return event

    async def _log(self, execution_id: str) -> list[Recorded]:
        log: list[Recorded] = []
        while page := await self._store.log.read(execution_id, len(log), _PAGE):
            log.extend(page)
        return log

    async def _version(self, start: ev.PlaybookStarted, version: str | int | None) -> CatalogEntry:
        if version in _SAME:
            return await self._runs.resolve(None, start.catalog_id)
        return await self._runs.resolve(start.path, None, version)


def _id(event_id: str | int | None) -> str | None:
    return None if event_id is None else parse(event_id)


def _like(start: ev.PlaybookStarted, entry: CatalogEntry, account: str) -> Wanted:
    return Wanted(
        catalog_id=entry.catalog_id,
        pool=start.pool,
        priority=start.priority,
        labels=start.labels,
        trigger={"kind": "api"},
        created_by=account,
    )
