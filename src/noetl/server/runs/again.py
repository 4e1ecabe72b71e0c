"""Runs that repeat another one: from its start, or from a point of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.edge.errors import Unacceptable, UnknownExecution
from noetl.engine import events as ev
from noetl.engine.fork import VersionConflict
from noetl.engine.snapshot import as_data
from noetl.ids import parse
from noetl.server.access.entry import LOCAL, free_pool, must
from noetl.server.access.keys import WINDOW_S, digest_of
from noetl.server.ingest.wanted import Wanted, of_tenant
from noetl.server.runs.positions import place_of, settled
from noetl.server.runs.starts import answering, must_be_of_services

if TYPE_CHECKING:
    from noetl.api.executions import Fork, Rerun, Started
    from noetl.engine.program import Program
    from noetl.server.access.entry import Caller
    from noetl.server.ingest.cache import Cache
    from noetl.server.ingest.programs import Programs
    from noetl.server.runs.execute import Runs
    from noetl.store.base import CatalogEntry, Store

_SAME: Final = (None, "same")
_NOT_CTX: Final = ("workload", "steps", "execution", "iter")


class StepsMissing(VersionConflict):
    """Steps that the run has touched do not exist in the version that is to go on."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"the version has no step {', '.join(names)}")
        self.errors = tuple(
            {"pointer": f"/steps/{name}", "code": "version_conflict"} for name in names
        )


class Repeats:
    """Reruns and forks."""

    def __init__(self, store: Store, cache: Cache, programs: Programs, runs: Runs) -> None:
        self._store = store
        self._cache = cache
        self._programs = programs
        self._runs = runs

    async def rerun(
        self, execution_id: str, body: Rerun, caller: Caller = LOCAL, *, key: str | None = None
    ) -> Started:
        """Start the same playbook again, with the same workload unless another is given."""
        must_be_of_services(body, caller)
        start = await self._start_of(execution_id)
        entry = await self._version(start, body.version)
        wanted = _like(start, entry, caller, body.pool)
        wanted.rerun_of = execution_id
        wanted.execution_id = None if body.execution_id is None else parse(body.execution_id)
        wanted.added = dict(body.added)
        wanted.secrets_of = execution_id
        if body.payload is None:
            wanted.workload = start.workload
        else:
            wanted.payload = body.payload
        if body.request is not None:
            answering(wanted, body.request, caller)
        _once(wanted, f"rerun:{execution_id}", body, key)
        return await self._runs.start(wanted)

    async def fork(
        self, execution_id: str, body: Fork, caller: Caller = LOCAL, *, key: str | None = None
    ) -> Started:
        """Start a run in the state that another one had."""
        row = await self._store.executions.get(execution_id)
        if row is None:
            raise UnknownExecution(f"there is no execution {execution_id}")
        start = await self._start_of(execution_id)
        entry = await self._version(start, body.version)
        wanted = _like(start, entry, caller)
        log = self._store.log
        seq = await place_of(
            log, row, seq=body.from_seq, event_id=_id(body.from_event_id), step=body.from_step
        )
        before = await self._cache.read(execution_id, await settled(log, row, seq))
        snapshot = as_data(before.state)
        program = await self._programs.get(entry.catalog_id)
        missing = [name for name in snapshot["steps"] if name not in program.steps]
        if missing:
            raise StepsMissing(missing)
        source = {"execution_id": execution_id, "seq": seq}
        wanted.forked_from = source
        wanted.secrets_of = execution_id
        if body.payload is None:
            wanted.workload = start.workload
        else:
            wanted.payload = body.payload
        wanted.restored = ev.StateRestored(
            source=source, snapshot=snapshot, overrides=_overrides(body, program)
        )
        _once(wanted, f"fork:{execution_id}", body, key)
        return await self._runs.start(wanted)

    async def _start_of(self, execution_id: str) -> ev.PlaybookStarted:
        first = await self._store.log.read(execution_id, 0, 1)
        event = first[0].event if first else None
        if not isinstance(event, ev.PlaybookStarted):
            raise UnknownExecution(f"there is no execution {execution_id}")
        return event

    async def _version(self, start: ev.PlaybookStarted, version: str | int | None) -> CatalogEntry:
        same = await self._runs.entry(start.catalog_id)
        if version in _SAME:
            return same
        return await self._runs.resolve(same.tenant_id, start.path, None, version)


def _like(
    start: ev.PlaybookStarted, entry: CatalogEntry, caller: Caller, pool: str | None = None
) -> Wanted:
    """A wish for a run of the same tenant and pool, if the caller may have one."""
    must(caller, "execution:run", entry.path)
    free_pool(caller, pool or start.pool)
    return Wanted(
        entry=entry,
        catalog_id=entry.catalog_id,
        pool=pool or start.pool,
        priority=start.priority,
        labels=start.labels,
        trigger={"kind": "api"},
        created_by=caller.account,
        tenant_id=start.tenant_id,
        is_metered=caller is not LOCAL,
    )


def _id(event_id: str | int | None) -> str | None:
    return None if event_id is None else parse(event_id)


def _once(wanted: Wanted, scope: str, body: Rerun | Fork, key: str | None) -> None:
    """Under a key one run is started; another wish under the same key is refused."""
    if key is not None:
        account = of_tenant(wanted.tenant_id, wanted.created_by)
        wanted.dedup = (f"{scope}:{account}", f"idempotency:{key}", WINDOW_S)
        wanted.is_exact = True
        wanted.digest = digest_of(body)


def _overrides(body: Fork, program: Program) -> dict[str, Any]:
    """What the caller changes in the state that is taken over."""
    for name in body.set:
        if name.partition(".")[0] in _NOT_CTX:
            raise Unacceptable(f"`set` writes to `ctx`, not to `{name}`", hint="ctx.<name>")
    unknown = [name for name in body.results if name not in program.steps]
    if unknown:
        raise Unacceptable(
            f"the version has no step {', '.join(unknown)}",
            errors=tuple(
                {"pointer": f"/results/{name}", "code": "validation_failed"} for name in unknown
            ),
        )
    made: dict[str, Any] = {
        "workload": True if body.payload is not None else None,
        "ctx": {name.removeprefix("ctx."): value for name, value in body.set.items()},
        "results": body.results,
    }
    return {name: value for name, value in made.items() if value}
