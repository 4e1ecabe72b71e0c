"""Plays the cases of tests: the real server, engine and worker on virtual time, mocked tools."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from noetl.api.problems import Refused
from noetl.clock import LoopClock
from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.dsl.plugins import STORED
from noetl.engine.fold import fold
from noetl.engine.program import prepare
from noetl.engine.scope import scope_of
from noetl.engine.state import State
from noetl.ids import Ids
from noetl.local.journal import Journal
from noetl.local.keychain import StandIns
from noetl.local.launch import Job, finish, start
from noetl.local.mocks import Mocks
from noetl.local.parts import Parts
from noetl.local.references import Loader
from noetl.local.run import stack
from noetl.local.verdicts import Played, Verdict, faults_of
from noetl.local.virtual import Stalled
from noetl.local.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path

    from noetl.dsl.documents.testcase import Case
    from noetl.local.run import Stack
    from noetl.local.workshop import Workshop

# Every test begins at the same moment, so that two runs of it tell the same times.
MIDNIGHT: Final = datetime(2026, 1, 1, tzinfo=UTC)
CASE_S: Final = 60.0
"""Real seconds that a case may take; virtual ones cost nothing and are not limited."""
LEASE_S: Final = 15.0
LONG_LEASE_S: Final = 3_600.0
"""Where no worker is lost; a beat every five seconds of a virtual day would take real ones."""
CEILING_S: Final = 366 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The playbook under test."""

    file: str
    text: str
    folder: Path
    """Where its sub-playbooks lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One case of one suite."""

    subject: Subject
    case: Case
    folder: Path
    """Where the files of the suite lie."""
    log: Path
    """Where the events of a case that failed are kept."""

    @property
    def line(self) -> int:
        """Where the case is written."""
        return self.case.place.span.line


async def play(trial: Trial, shop: Workshop, limit_s: float = CASE_S) -> Verdict:
    """Run one case and compare; a fault of the run itself is a fault of the case."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    watch = Watch()
    watch.is_kept = True
    try:
        played = await _limited(_played(trial, shop, watch), limit_s)
        faults = faults_of(trial.case, played)
    except Refused as refusal:
        played, faults = None, (f"refused: {refusal.code}: {refusal.message}",)
    except (TimeoutError, Stalled):
        played, faults = None, (f"the case did not end within {limit_s:g} s ({_where(watch)})",)
    if faults and watch.events:
        _keep(trial.log, watch)
    return Verdict(
        name=trial.case.name,
        line=trial.line,
        faults=faults,
        duration_ms=(loop.time() - before) * 1000,
        run=watch.runs.root,
        events_file=trial.log if faults and watch.events else None,
    )


async def _limited(playing: Coroutine[Any, Any, Played], limit_s: float) -> Played:
    """Time is up by the clock on the wall, whatever the loop says."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(playing)
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        loop.call_soon_threadsafe(task.cancel)

    timer = threading.Timer(limit_s, stop)
    timer.daemon = True
    timer.start()
    try:
        return await task
    except asyncio.CancelledError:
        if is_late.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


async def _played(trial: Trial, shop: Workshop, watch: Watch) -> Played:
    case, subject = trial.case, trial.subject
    mocks = Mocks(case.mocks, trial.folder, allow=frozenset(case.allow))
    clock = LoopClock(asyncio.get_running_loop(), MIDNIGHT)
    job = Job(file=subject.file, text=subject.text, payload=dict(case.payload))
    async with shop.tools(subject.folder, clock) as tools:
        parts = Parts(
            watch=watch,
            folder=subject.folder,
            tools=mocks.over(tools),
            on_worker=mocks.steps,
            secrets=StandIns,
            is_complete=False,
            clock=clock,
            ids=Ids(clock, machine=1),
            ceiling_s=CEILING_S,
            lease_s=LEASE_S if mocks.may_crash else LONG_LEASE_S,
        )
        async with stack(parts, subject.text) as running:
            mocks.crash = running.crew.crash
            await start(running, job)
            finished = await finish(running, job, asyncio.Event())
            scope, ctx = await _seen(running, subject.text, finished.run.execution_id)
    return Played(
        run=finished.run, ctx=ctx, calls=mocks.calls, unmocked=mocks.unmocked, scope=scope
    )


async def _seen(
    running: Stack, text: str, execution_id: str
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """What the conditions of a test may read: the state at the end, its large values fetched."""
    events = [item for item in running.watch.events if item.execution_id == execution_id]
    state = State(program=prepare(read(text, Playbook, plugins=STORED)))
    for item in events:
        fold(state, item)
    loader = Loader(running.client, most_bytes=1 << 30)
    ctx = await loader.whole(state.ctx)
    for step in state.steps.values():
        if step.result is not None and step.result.reference is not None:
            await loader.whole(step.result.reference)
    return scope_of(state, resolved=loader.known, ctx=ctx), ctx


def _where(watch: Watch) -> str:
    run = watch.runs.root
    if run is None:
        return "it has not begun"
    waiting = [name for name, step in run.steps.items() if step.status == "RUNNING"]
    return f"waiting in: {', '.join(waiting) or 'nothing'}"


def _keep(path: Path, watch: Watch) -> None:
    path.unlink(missing_ok=True)
    journal = Journal(path)
    journal.commit(watch.events)
    journal.close()
