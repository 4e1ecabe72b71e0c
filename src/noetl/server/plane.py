"""The control plane, wired: what routes and loops work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.server.access import Access
from noetl.server.admission import Admissions
from noetl.server.again import Repeats
from noetl.server.batch import Batches
from noetl.server.cache import Cache
from noetl.server.callbacks import Answers
from noetl.server.claims import Claims
from noetl.server.control import Controls
from noetl.server.cursor import Cursors
from noetl.server.detail import Details
from noetl.server.documents import Documents
from noetl.server.execute import Runs
from noetl.server.handout import HandOut
from noetl.server.history import History
from noetl.server.ingest import Ingest
from noetl.server.large import Large
from noetl.server.listing import Lists
from noetl.server.metrics import ServerMetrics
from noetl.server.noted import Notes
from noetl.server.programs import Programs
from noetl.server.reports import Intake
from noetl.server.schedules import Timetables
from noetl.server.signals import Signals
from noetl.server.starts import Starts
from noetl.server.stream import Streams
from noetl.server.turn import Tools
from noetl.server.workers import Workers
from noetl.server.writing import Writer

if TYPE_CHECKING:
    from noetl.server.parts import ServerParts


@dataclass(slots=True, kw_only=True)
class Plane:
    """Every part of the server that does work."""

    parts: ServerParts
    access: Access
    metrics: ServerMetrics
    signals: Signals
    programs: Programs
    cache: Cache
    large: Large
    handout: HandOut
    ingest: Ingest
    workers: Workers
    claims: Claims
    intake: Intake
    controls: Controls
    admissions: Admissions
    runs: Runs
    starts: Starts
    batches: Batches
    repeats: Repeats
    details: Details
    lists: Lists
    history: History
    streams: Streams
    answers: Answers
    timetables: Timetables
    documents: Documents


def wire(parts: ServerParts) -> Plane:
    """Make the parts that follow from the given ones."""
    store, clock, ids = parts.store, parts.clock, parts.ids
    signals = Signals()
    programs = Programs(store.catalog, max_attempts=parts.max_attempts)
    cache = Cache(store, programs)
    metrics = ServerMetrics()
    large = Large(parts.blobs, parts.inline_bytes, metrics)
    handout = HandOut(store.commands, clock, parts.lease_s)
    tools = Tools(ids=ids, log=store.log, large=large, clock=clock, metrics=metrics)
    writer = Writer(
        store.executions,
        clock,
        ids,
        signals=signals,
        notes=Notes(metrics),
        publishes=parts.publishes,
    )
    ingest = Ingest(
        store,
        cache,
        tools,
        clock,
        handout=handout,
        signals=signals,
        writer=writer,
    )
    workers = Workers(store, clock, ids)
    controls = Controls(ingest)
    admissions = Admissions(store.executions, programs, ingest, store.roles)

    async def kinds() -> frozenset[str] | None:
        return parts.kinds if parts.kinds is not None else await workers.kinds()

    runs = Runs(store, ingest, programs, controls, admissions, clock=clock, ids=ids, kinds=kinds)
    starts = Starts(parts, runs, programs)
    cursors = Cursors(parts.cursor_key, clock)
    timetables = Timetables(store.schedules, clock, ids)
    return Plane(
        parts=parts,
        access=Access(parts),
        metrics=metrics,
        signals=signals,
        programs=programs,
        cache=cache,
        large=large,
        handout=handout,
        ingest=ingest,
        workers=workers,
        claims=Claims(ingest, handout, store, workers, clock),
        intake=Intake(ingest, store.commands, signals, workers, metrics),
        controls=controls,
        admissions=admissions,
        runs=runs,
        starts=starts,
        batches=Batches(starts, runs, programs, ingest),
        repeats=Repeats(store, programs, runs),
        details=Details(store, cache, large, workers, signals),
        lists=Lists(store, cursors),
        history=History(store, large, cursors),
        streams=Streams(parts, signals),
        answers=Answers(store, ingest),
        timetables=timetables,
        documents=Documents(store.catalog, programs, timetables, clock, ids),
    )
