"""Starting runs: what is asked for is resolved, checked and merged, then one post begins it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from noetl.api.executions import Control, Started
from noetl.clock import rfc3339
from noetl.edge.errors import Conflict, RaceLost, Unacceptable, UnknownPath
from noetl.edge.moments import from_now
from noetl.engine import events as ev
from noetl.ids import parse
from noetl.server.ingest.posts import Post, Stamped
from noetl.server.ingest.wanted import (
    about,
    check,
    concurrency_of,
    dedup_of,
    digest_of_wish,
    keys_of,
    must_be_runnable,
    of_tenant,
    pool_of,
    rendered_key,
    version_of,
    workload_of,
)
from noetl.server.runs import requirements
from noetl.server.runs.admission import START_TIMER
from noetl.server.runs.backlog import wish_of
from noetl.store.locks import Locks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from noetl.clock import Clock
    from noetl.engine.program import Program
    from noetl.engine.state import State
    from noetl.ids import Ids
    from noetl.server.access.quota import Quotas
    from noetl.server.ingest.programs import Programs
    from noetl.server.ingest.queue import Ingest
    from noetl.server.ingest.tracing import Spans
    from noetl.server.ingest.wanted import Sender, Wanted
    from noetl.server.runs.admission import Admissions
    from noetl.server.runs.backlog import Backlog
    from noetl.server.runs.control import Controls
    from noetl.server.runs.inputs import SecretInputs
    from noetl.store.base import CatalogEntry, Store


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
        kinds: Callable[[], Awaitable[frozenset[str] | None]],
        quotas: Quotas,
        backlog: Backlog,
        inputs: SecretInputs,
    ) -> None:
        self.inputs = inputs
        self._quotas = quotas
        self._backlog = backlog
        self.kinds = kinds
        self._store = store
        self._ingest = ingest
        self._programs = programs
        self._controls = controls
        self._admissions = admissions
        self._clock = clock
        self._ids = ids
        self._locks = Locks()
        self.spans: Spans | None = None

    async def start(self, wanted: Wanted) -> Started:
        """Start a run, once per dedup key."""
        if self.spans is None:
            return await self._start(wanted)
        return await self.spans.execute(wanted, self._start)

    async def _start(self, wanted: Wanted) -> Started:
        check(wanted)
        entry = wanted.entry
        if entry is None:
            entry = await self.resolve(
                wanted.tenant_id, wanted.path, wanted.catalog_id, wanted.version
            )
        must_be_runnable(entry, is_drain=wanted.is_drain)
        keys = keys_of(wanted)
        if not keys:
            return await self._begin(wanted, entry)
        async with AsyncExitStack() as held:
            for scope, key, _ in keys:
                await held.enter_async_context(self._locks.of(scope, key))
            found = None if wanted.is_free else await self._started_as(wanted, entry)
            if found is not None:
                return found
            try:
                return await self._begin(wanted, entry)
            except RaceLost:
                again = await self._started_as(wanted, entry)
                if again is None:
                    raise
                return again

    async def held(self, keys: list[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Those of these scopes and keys that have started a run: one look for many wishes."""
        if not keys:
            return frozenset()
        return await self._store.keys.held(keys, rfc3339(self._clock.now()))

    async def _started_as(self, wanted: Wanted, entry: CatalogEntry) -> Started | None:
        """The run that was started under a key of a wish; another wish is a conflict."""
        now = rfc3339(self._clock.now())
        found = None
        for scope, key, _ in keys_of(wanted):
            found = found or await self._store.executions.started_as(scope, key, now)
        if found is None:
            return None
        execution_id, digest = found
        must_match = wanted.is_exact or wanted.execution_id == execution_id
        if must_match and digest and digest != digest_of_wish(wanted):
            raise Conflict(
                f"execution {execution_id} was started under the same key with another request",
                code="dedup_conflict",
                hint="use a new key for a new request",
            )
        return await self._duplicate(execution_id, entry)

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
        self,
        tenant_id: str,
        path: str | None,
        catalog_id: str | None,
        version: str | int | None = None,
    ) -> CatalogEntry:
        """The document that is meant, in the catalog of a tenant."""
        if (path is None) == (catalog_id is None):
            raise Unacceptable("name either `path` or `catalog_id`")
        if catalog_id is not None:
            return await self.entry(catalog_id, tenant_id)
        name, _, tagged = str(path).partition("@")
        number = version_of(version if version is not None else tagged or None)
        found = await self._store.catalog.resolve(tenant_id, name, number)
        if found is None:
            shown = f"{path}" + ("" if version is None else f" version {version}")
            raise UnknownPath(f"the catalog has no {shown}", hint="register it first")
        return found

    async def entry(self, catalog_id: str, tenant_id: str | None = None) -> CatalogEntry:
        """One version, archived or not; of this tenant, when one is named."""
        found = await self._store.catalog.get(parse(catalog_id))
        if (
            found is None
            or found.removed_at is not None
            or tenant_id not in {None, found.tenant_id}
        ):
            raise UnknownPath(f"the catalog has no {catalog_id}", hint="register it first")
        return found

    async def _begin(self, wanted: Wanted, entry: CatalogEntry) -> Started:
        quotas, tenant_id = self._quotas, wanted.tenant_id
        if wanted.is_metered:
            await quotas.enter(tenant_id)
        try:
            started = await self._with_room(wanted, entry)
        finally:
            if wanted.is_metered:
                quotas.leave(tenant_id)
        if started.status == "started":
            quotas.begun(tenant_id)
        return started

    async def _with_room(self, wanted: Wanted, entry: CatalogEntry) -> Started:
        if not wanted.gives_way:
            return await self._begun(wanted, entry)
        pool = wanted.pool or pool_of(self._programs.of(entry).playbook)
        with self._backlog.entered(pool, wish_of(wanted)):
            return await self._begun(wanted, entry)

    async def _begun(self, wanted: Wanted, entry: CatalogEntry) -> Started:
        if wanted.execution_id is not None:
            taken = await self._store.executions.get(wanted.execution_id)
            if taken is not None:
                return await self._duplicate(wanted.execution_id, entry)
        program = self._programs.of(entry)
        execution_id = wanted.execution_id or self._ids.new()
        pool = wanted.pool or pool_of(program.playbook)
        await self.inputs.filled(wanted)
        workload, warnings = workload_of(wanted, program, about(execution_id, entry, pool))
        if program.playbook.executor is not None:
            requirements.check(program.playbook, await self.kinds())
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
            replay_of=wanted.replay_of,
            forked_from=wanted.forked_from,
            warnings=warnings,
            labels=dict(wanted.labels),
            trace=wanted.trace,
            created_by=wanted.created_by,
            tenant_id=wanted.tenant_id,
            request=wanted.request,
            subscription=wanted.subscription,
            is_queued=wanted.start_at is not None,
        )
        rule = concurrency_of(program.playbook)
        if wanted.restored is not None:
            return await self._append(wanted, program, start)
        if rule is not None:
            key = of_tenant(wanted.tenant_id, f"{start.path}:{rendered_key(rule, start)}")
            return await self._within(wanted, program, start, (key, rule.limit, rule.on_limit))
        if wanted.queue is not None:
            return await self._within(wanted, program, start, (wanted.queue, 1, "queue"))
        return await self._append(wanted, program, start)

    async def _within(
        self,
        wanted: Wanted,
        program: Program,
        start: ev.PlaybookStarted,
        rule: tuple[str, int, str],
    ) -> Started:
        """Start within the limit of a concurrency key, or do what its rule says."""
        key, limit, on_limit = rule
        if wanted.start_at is not None:  # the key is asked for when its time has come
            return await self._append(
                wanted, program, msgspec.structs.replace(start, concurrency_key=key)
            )
        async with self._admissions.held(key):
            running, queued = await self._admissions.counted(key)
            is_full = len(running) >= limit
            if is_full and on_limit == "reject":
                raise Conflict(
                    f"{len(running)} runs of `{key}` are under way", code="concurrency_limit"
                )
            if is_full and on_limit == "cancel_previous":
                for row in running[: len(running) - limit + 1]:
                    await self._supersede(row.execution_id)
            is_queued = on_limit == "queue" and (is_full or bool(queued))
            start = msgspec.structs.replace(start, concurrency_key=key, is_queued=is_queued)
            started = await self._append(wanted, program, start)
        if is_queued:  # the run before may have ended while this one was written
            await self._admissions.admit(key)
        return started

    async def _supersede(self, execution_id: str) -> None:
        try:
            await self._controls.cancel(execution_id, Control(reason="superseded"), "concurrency")
        except Conflict as refusal:  # it has ended meanwhile
            if refusal.code != "already_terminal":
                raise

    async def _append(self, wanted: Wanted, program: Program, start: ev.PlaybookStarted) -> Started:
        def make(state: State) -> Iterator[Stamped]:
            if state.is_started:
                raise RaceLost(f"execution {start.execution_id} has begun already")
            yield Stamped(start, has_more=bool(wanted.restored or wanted.start_at or wanted.told))
            for place, (name, facts) in enumerate(wanted.told, 1):
                told = {**facts, "execution_id": start.execution_id}
                is_last = place == len(wanted.told) and wanted.start_at is None
                yield Stamped(ev.OF_SUBSCRIPTIONS[name](facts=told), has_more=not is_last)
            if wanted.restored is not None:
                yield Stamped(wanted.restored)
            if wanted.start_at is not None:
                yield Stamped(
                    ev.TimerSet(timer_key=START_TIMER, kind="start", due_at=wanted.start_at)
                )

        post = Post(
            start.execution_id, make, program=program, gives_way=wanted.gives_way, pool=start.pool
        )
        if (dedup := dedup_of(wanted)) is not None:
            scope, key, window_s = dedup
            post.dedup = (scope, key, from_now(self._clock, window_s))
            post.dedup_digest = digest_of_wish(wanted)
        if wanted.replay is not None:
            scope, key, window_s = wanted.replay
            post.replay = (scope, key, from_now(self._clock, window_s))
        await self.inputs.keep(wanted, start.execution_id)
        sender: Sender = wanted.sender or self._ingest
        await sender.post(post)
        return Started(
            execution_id=start.execution_id,
            status="started",
            commands_generated=post.generated,
            catalog_id=start.catalog_id,
            path=start.path,
            version=start.version,
        )
