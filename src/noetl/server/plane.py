"""The control plane, wired: what routes and loops work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.server.admission import Admissions
from noetl.server.again import Repeats
from noetl.server.cache import Cache
from noetl.server.callbacks import Answers
from noetl.server.claims import Claims
from noetl.server.control import Controls
from noetl.server.detail import Details
from noetl.server.documents import Documents
from noetl.server.execute import Runs
from noetl.server.handout import HandOut
from noetl.server.ingest import Ingest
from noetl.server.large import Large
from noetl.server.programs import Programs
from noetl.server.reports import Intake
from noetl.server.signals import Signals
from noetl.server.turn import Tools
from noetl.server.workers import Workers

if TYPE_CHECKING:
    from noetl.server.parts import ServerParts


@dataclass(slots=True, kw_only=True)
class Plane:
    """Every part of the server that does work."""

    parts: ServerParts
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
    repeats: Repeats
    details: Details
    answers: Answers
    documents: Documents


def wire(parts: ServerParts) -> Plane:
    """Make the parts that follow from the given ones."""
    store, clock, ids = parts.store, parts.clock, parts.ids
    signals = Signals()
    programs = Programs(store.catalog)
    cache = Cache(store, programs)
    large = Large(parts.blobs, parts.inline_bytes)
    handout = HandOut(store.commands, parts.lease_s)
    tools = Tools(ids=ids, log=store.log, large=large)
    ingest = Ingest(store, cache, tools, clock, handout=handout, signals=signals)
    workers = Workers(clock)
    controls = Controls(ingest)
    admissions = Admissions(store.executions, programs, ingest)
    runs = Runs(
        store, ingest, programs, controls, admissions, clock=clock, ids=ids, kinds=parts.kinds
    )
    return Plane(
        parts=parts,
        signals=signals,
        programs=programs,
        cache=cache,
        large=large,
        handout=handout,
        ingest=ingest,
        workers=workers,
        claims=Claims(ingest, handout, store.commands, workers, clock),
        intake=Intake(ingest, store.commands, signals, workers),
        controls=controls,
        admissions=admissions,
        runs=runs,
        repeats=Repeats(store, programs, runs),
        details=Details(store, cache, large, workers, signals),
        answers=Answers(store, ingest),
        documents=Documents(store.catalog, programs, clock, ids),
    )
