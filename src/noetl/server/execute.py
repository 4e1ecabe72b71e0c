"""Starting runs: what is asked for is resolved, checked and merged, then one post begins it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Control, Started
from noetl.clock import rfc3339
from noetl.dsl.playbook.inputs import input_schema
from noetl.dsl.template import TemplateFailure, render
from noetl.dsl.workload import effective
from noetl.engine import events as ev
from noetl.engine.scope import job_of
from noetl.ids import parse
from noetl.server import requirements
from noetl.server.errors import Conflict, RaceLost, Unacceptable, UnknownExecution, UnknownPath
from noetl.server.locks import Locks
from noetl.server.moments import from_now
from noetl.server.posts import Post, Stamped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.api.executions import Execute
    from noetl.clock import Clock
    from noetl.dsl.playbook import Playbook
    from noetl.dsl.playbook.document import Concurrency
    from noetl.engine.program import Program
    from noetl.engine.state import State
    from noetl.ids import Ids
    from noetl.server.admission import Admissions
    from noetl.server.control import Controls
    from noetl.server.ingest import Ingest
    from noetl.server.programs import Programs
    from noetl.store.base import CatalogEntry, Store

MOST_DEPTH: Final = 32
MOST_PRIORITY: Final = 9
MOST_KEY: Final = 512
MOST_WINDOW_S: Final = 2_592_000
DEFAULT_POOL: Final = "shared"
_POOL: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class ChildDepth(Unacceptable):
    """Runs that start runs, deeper than is allowed."""

    code = "child_depth"


@dataclass(slots=True, kw_only=True)
class Wanted:
    """A run to start, whoever asks for it."""

    path: str | None = None
    catalog_id: str | None = None
    version: str | int | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] | None = None
    """Taken as it is, without the defaults of the playbook."""
    execution_id: str | None = None
    pool: str | None = None
    priority: int = 5
    parent_execution_id: str | None = None
    parent_key: str | None = None
    depth: int = 0
    trace: dict[str, Any] | None = None
    dedup: tuple[str, str, int] | None = None
    """Scope, key and window in seconds."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    trigger: dict[str, Any] = field(default_factory=dict)
    rerun_of: str | None = None
    forked_from: dict[str, Any] | None = None
    restored: ev.StateRestored | None = None


class Runs:
    """Starts runs."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        store: Store,
        ingest: Ingest,
        programs: Programs,
        controls: Controls,
        admissions: Admissions,
        *,
        clock: Clock,
        ids: Ids,
        kinds: frozenset[str] | None = None,
    ) -> None:
        self._kinds = kinds
        self._store = store
        self._ingest = ingest
        self._programs = programs
        self._controls = controls
        self._admissions = admissions
        self._clock = clock
        self._ids = ids
        self._locks = Locks()

    async def execute(self, body: Execute, account: str = "local") -> Started:
        """Start a run for a caller."""
        parent = None if body.parent_execution_id is None else parse(body.parent_execution_id)
        wanted = Wanted(
            path=body.path,
            catalog_id=body.catalog_id,
            version=body.version,
            payload=body.payload,
            execution_id=None if body.execution_id is None else parse(body.execution_id),
            pool=body.execution_pool,
            priority=body.priority,
            parent_execution_id=parent,
            trace=body.trace,
            labels=body.labels,
            trigger=body.trigger or {"kind": "api"},
        )
        if parent is not None:
            await self._under(wanted, parent)
        if body.dedup is not None:
            scope = parent or f"api:{account}"
            wanted.dedup = (scope, body.dedup.key, body.dedup.window_secs)
        return await self.start(wanted)

    async def _under(self, wanted: Wanted, parent: str) -> None:
        row = await self._store.executions.get(parent)
        if row is None:
            raise UnknownExecution(f"there is no execution {parent}")
        if row.completed_at is not None:
            raise Conflict(f"the parent is {row.status}", code="already_terminal")
        first = (await self._store.log.read(parent, 0, 1))[0].event
        if isinstance(first, ev.PlaybookStarted):
            wanted.depth = first.depth + 1
            wanted.trace = wanted.trace or first.trace

    async def start(self, wanted: Wanted) -> Started:
        """Start a run, once per dedup key."""
        _check(wanted)
        entry = await self.resolve(wanted.path, wanted.catalog_id, wanted.version)
        if wanted.dedup is None:
            return await self._begin(wanted, entry)
        scope, key, _ = wanted.dedup
        async with self._locks.of(scope, key):
            found = await self._started_as(scope, key, entry)
            if found is not None:
                return found
            try:
                return await self._begin(wanted, entry)
            except RaceLost:
                again = await self._started_as(scope, key, entry)
                if again is None:
                    raise
                return again

    async def _started_as(self, scope: str, key: str, entry: CatalogEntry) -> Started | None:
        now = rfc3339(self._clock.now())
        execution_id = await self._store.executions.started_as(scope, key, now)
        return None if execution_id is None else await self._duplicate(execution_id, entry)

    async def _duplicate(self, execution_id: str, entry: CatalogEntry) -> Started:
        row = await self._store.executions.get(execution_id)
        return Started(
            execution_id=execution_id,
            status="duplicate",
            commands_generated=0,
            catalog_id=entry.catalog_id if row is None else row.catalog_id,
            path=entry.path if row is None else row.path,
            version=entry.version if row is None else row.version,
        )

    async def resolve(
        self, path: str | None, catalog_id: str | None, version: str | int | None = None
    ) -> CatalogEntry:
        """The document that is meant."""
        if (path is None) == (catalog_id is None):
            raise Unacceptable("name either `path` or `catalog_id`")
        if catalog_id is not None:
            found = await self._store.catalog.get(parse(catalog_id))
        else:
            name, _, tagged = str(path).partition("@")
            number = version_of(version if version is not None else tagged or None)
            found = await self._store.catalog.resolve(name, number)
        if found is None:
            shown = f"{path or catalog_id}" + ("" if version is None else f" version {version}")
            raise UnknownPath(f"the catalog has no {shown}", hint="register it first")
        return found

    async def _begin(self, wanted: Wanted, entry: CatalogEntry) -> Started:
        if wanted.execution_id is not None:
            taken = await self._store.executions.get(wanted.execution_id)
            if taken is not None:
                return await self._duplicate(wanted.execution_id, entry)
        program = self._programs.of(entry)
        execution_id = wanted.execution_id or self._ids.new()
        pool = wanted.pool or _pool_of(program.playbook)
        workload, warnings = _workload(wanted, program.playbook, _about(execution_id, entry, pool))
        requirements.check(program.playbook, self._kinds)
        start = ev.PlaybookStarted(
            execution_id=execution_id,
            path=entry.path,
            version=entry.version,
            catalog_id=entry.catalog_id,
            workload=workload,
            pool=pool,
            priority=wanted.priority,
            trigger=wanted.trigger,
            parent_execution_id=wanted.parent_execution_id,
            parent_key=wanted.parent_key,
            depth=wanted.depth,
            dedup_key=wanted.dedup[1] if wanted.dedup else None,
            rerun_of=wanted.rerun_of,
            forked_from=wanted.forked_from,
            warnings=warnings,
            labels=dict(wanted.labels),
            trace=wanted.trace,
        )
        rule = _concurrency(program.playbook)
        if rule is None or wanted.restored is not None:
            return await self._append(wanted, program, start)
        return await self._within(wanted, program, start, rule)

    async def _within(
        self, wanted: Wanted, program: Program, start: ev.PlaybookStarted, rule: Concurrency
    ) -> Started:
        """Start within the limit of a concurrency key, or do what the playbook says."""
        key = f"{start.path}:{_rendered_key(rule, start)}"
        async with self._admissions.held(key):
            running, queued = await self._admissions.counted(key)
            is_full = len(running) >= rule.limit
            if is_full and rule.on_limit == "reject":
                raise Conflict(
                    f"{len(running)} runs of `{key}` are under way", code="concurrency_limit"
                )
            if is_full and rule.on_limit == "cancel_previous":
                for row in running[: len(running) - rule.limit + 1]:
                    await self._controls.cancel(
                        row.execution_id, Control(reason="superseded"), "concurrency"
                    )
            is_queued = rule.on_limit == "queue" and (is_full or bool(queued))
            start = msgspec.structs.replace(start, concurrency_key=key, is_queued=is_queued)
            started = await self._append(wanted, program, start)
        if is_queued:  # the run before may have ended while this one was written
            await self._admissions.admit(key)
        return started

    async def _append(self, wanted: Wanted, program: Program, start: ev.PlaybookStarted) -> Started:
        def make(state: State) -> Iterator[Stamped]:
            if state.is_started:
                raise RaceLost(f"execution {start.execution_id} has begun already")
            yield Stamped(start, has_more=wanted.restored is not None)
            if wanted.restored is not None:
                yield Stamped(wanted.restored)

        dedup = None
        if wanted.dedup is not None:
            scope, key, window_s = wanted.dedup
            dedup = (scope, key, from_now(self._clock, window_s))
        post = Post(start.execution_id, make, program=program, dedup=dedup)
        await self._ingest.post(post)
        return Started(
            execution_id=start.execution_id,
            status="started",
            commands_generated=post.generated,
            catalog_id=start.catalog_id,
            path=start.path,
            version=start.version,
        )


def version_of(version: str | int | None) -> int | None:
    """A version as a number; none for the newest."""
    if version is None or version in {"latest", ""}:
        return None
    if isinstance(version, int) and not isinstance(version, bool) and version > 0:
        return version
    if isinstance(version, str) and version.isascii() and version.isdigit() and int(version) > 0:
        return int(version)
    raise Unacceptable(f"`{version}` is not a version", hint="`latest` or a whole number")


def _check(wanted: Wanted) -> None:
    if wanted.depth > MOST_DEPTH:
        raise ChildDepth(
            f"runs start runs {wanted.depth} deep", code="child_depth", hint=f"at most {MOST_DEPTH}"
        )
    if wanted.pool is not None and not _POOL.fullmatch(wanted.pool):
        raise Unacceptable(f"`{wanted.pool}` is not a pool", code="pool_invalid")
    if not 0 <= wanted.priority <= MOST_PRIORITY:
        raise Unacceptable(f"priority {wanted.priority} is not in 0..{MOST_PRIORITY}")
    if wanted.dedup is not None:
        _, key, window_s = wanted.dedup
        if not 1 <= len(key) <= MOST_KEY or not 1 <= window_s <= MOST_WINDOW_S:
            raise Unacceptable(
                "`dedup` is out of bounds",
                hint=f"a key has 1..{MOST_KEY} characters, a window 1..{MOST_WINDOW_S} s",
            )


def _workload(
    wanted: Wanted, playbook: Playbook, about: dict[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    if wanted.workload is not None:
        return wanted.workload, ()
    if playbook.inputs:
        from noetl.dsl.conformity import faults  # noqa: PLC0415 - a validator that few starts need

        spec = playbook.executor.spec if playbook.executor else None
        schema = input_schema(playbook.inputs, strict=bool(spec and spec.strict_inputs))
        found = faults(schema, wanted.payload)
        if found:
            raise Unacceptable(
                f"the payload does not fit the inputs of {playbook.path}",
                code="invalid_input",
                errors=tuple(dict(item) for item in found),
            )
    try:
        return effective(playbook, wanted.payload, about)
    except TemplateFailure as fault:
        raise Unacceptable(f"`workload`: {fault.message}", code="invalid_input") from None


def _about(execution_id: str, entry: CatalogEntry, pool: str) -> dict[str, Any]:
    execution = {
        "id": execution_id,
        "path": entry.path,
        "version": entry.version,
        "catalog_id": entry.catalog_id,
        "pool": pool,
    }
    return {
        "execution": execution,
        "execution_id": execution_id,
        "job": job_of(execution_id),
    }


def _pool_of(playbook: Playbook) -> str:
    spec = playbook.executor.spec if playbook.executor else None
    return (spec.pool if spec else None) or DEFAULT_POOL


def _concurrency(playbook: Playbook) -> Concurrency | None:
    spec = playbook.executor.spec if playbook.executor else None
    return spec.concurrency if spec else None


def _rendered_key(rule: Concurrency, start: ev.PlaybookStarted) -> str:
    scope = {**start.workload, "workload": start.workload, "execution_id": start.execution_id}
    try:
        return str(render(rule.key_, scope))
    except TemplateFailure as fault:
        raise Unacceptable(f"`concurrency.key`: {fault.message}", code="invalid_input") from None
