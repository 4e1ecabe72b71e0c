"""The control plane, wired: what routes and loops work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from noetl.edge.cursor import Cursors
from noetl.server.access.entry import Access
from noetl.server.access.owning import Owners
from noetl.server.access.quota import Quotas
from noetl.server.auditing.audit import Audits
from noetl.server.auditing.chain import Chain
from noetl.server.fleet.callbacks import Answers
from noetl.server.fleet.claims import Claims
from noetl.server.fleet.containers import Containers
from noetl.server.fleet.reports import Intake
from noetl.server.fleet.workers import Workers
from noetl.server.identity.desk import Desk
from noetl.server.ingest.handout import HandOut
from noetl.server.ingest.large import Large
from noetl.server.ingest.noted import Notes
from noetl.server.ingest.programs import Programs
from noetl.server.ingest.queue import Ingest
from noetl.server.ingest.turn import Tools
from noetl.server.ingest.writing import Writer
from noetl.server.library.documents import Documents
from noetl.server.library.registration import Registration
from noetl.server.library.suites import Suites
from noetl.server.library.trials import Trials
from noetl.server.metrics import ServerMetrics
from noetl.server.operations.advance import Refreshes
from noetl.server.operations.foreign import RunCache
from noetl.server.operations.imports import Imports
from noetl.server.operations.publications import Publications
from noetl.server.operations.scheduled import Scheduled
from noetl.server.operations.schedules import Timetables
from noetl.server.operations.stats import Stats
from noetl.server.operations.upkeep import Retention
from noetl.server.pushed.desk import Pushed
from noetl.server.reading.bulk import Bulks
from noetl.server.reading.detail import Details
from noetl.server.reading.feed import Feed
from noetl.server.reading.graph import Graphs
from noetl.server.reading.history import History
from noetl.server.reading.listing import Lists
from noetl.server.reading.replay import Replays
from noetl.server.reading.stream import Streams
from noetl.server.reading.timeline import Timelines
from noetl.server.reading.why import Reasons
from noetl.server.runs.admission import Admissions
from noetl.server.runs.again import Repeats
from noetl.server.runs.backlog import Backlog
from noetl.server.runs.batch import Batches
from noetl.server.runs.control import Controls
from noetl.server.runs.execute import Runs
from noetl.server.runs.inputs import SecretInputs
from noetl.server.runs.messages import Messages
from noetl.server.runs.starts import Starts
from noetl.server.signals import Signals
from noetl.server.subscriptions.desk import SubscriptionDesk
from noetl.server.subscriptions.documents import Specs
from noetl.server.subscriptions.ending import Endings
from noetl.server.subscriptions.letters import LetterDesk
from noetl.server.subscriptions.logs import SubscriptionLogs
from noetl.server.subscriptions.posted import Posts
from noetl.server.subscriptions.redriving import Redriving
from noetl.server.subscriptions.ticking import Ticking
from noetl.server.values.deposits import Deposits
from noetl.server.values.inventory import Inventory
from noetl.server.values.stored import Values
from noetl.server.values.variables import Vars
from noetl.server.wallet.box import Box
from noetl.server.wallet.desk import SecretDesk, credentials_of
from noetl.server.wallet.inputs import RunSecrets
from noetl.server.wallet.probes import Probes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.blobs.base import Blobs
    from noetl.dsl.plugins import Plugins
    from noetl.server.ingest.cache import Cache
    from noetl.server.ingest.tracing import Spans
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
    feed: Feed
    graphs: Graphs
    timelines: Timelines
    reasons: Reasons
    replays: Replays
    bulks: Bulks
    answers: Answers
    variables: Vars
    values: Values
    inventory: Inventory
    deposits: Deposits
    containers: Containers
    timetables: Timetables
    scheduled: Scheduled
    publications: Publications
    imports: Imports
    refreshes: Refreshes
    retention: Retention
    stats: Stats
    documents: Documents
    desk: Desk
    trials: Trials
    registration: Registration
    owners: Owners
    audits: Audits
    chain: Chain
    quotas: Quotas
    secrets: SecretDesk
    subscriptions: SubscriptionDesk
    ticking: Ticking
    letters: LetterDesk
    redriving: Redriving
    pushed: Pushed
    endings: Endings
    cursors: Cursors
    spans: Spans | None = None
    """Tells a tracer; none when there is none."""


def wire(parts: ServerParts) -> Plane:
    """Make the parts that follow from the given ones."""
    store, clock, ids = parts.store, parts.clock, parts.ids
    signals = Signals(clock)
    programs = Programs(store.catalog, max_attempts=parts.max_attempts)
    cache = RunCache(store, programs)
    metrics = ServerMetrics()
    quotas = Quotas(store, clock)
    audits = Audits(store.audit, clock, ids, metrics)
    spans, blobs = _traced(parts, cache)
    large = Large(blobs, parts.inline_bytes, metrics)
    handout = HandOut(store.commands, clock, parts.lease_s)
    tools = Tools(ids=ids, log=store.log, large=large, clock=clock, metrics=metrics)
    writer = Writer(
        store.executions,
        clock,
        ids,
        signals=signals,
        notes=Notes(metrics, quotas),
        publishes=parts.publishes,
        spans=spans,
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
    workers = Workers(store, clock, ids, parts.bus)
    controls = Controls(ingest, store, cache)
    admissions = Admissions(store.executions, programs, ingest, store.roles)

    async def plugins() -> Plugins:
        return parts.plugins if parts.plugins is not None else await workers.plugins()

    async def kinds() -> frozenset[str] | None:
        return parts.kinds if parts.kinds is not None else await workers.kinds()

    backlog = Backlog(handout.pending, clock, parts.backlog_max)
    run_secrets = RunSecrets(store.execution_secrets, Box(parts.wallet, parts.seen))
    runs = Runs(
        store, ingest, programs, controls, admissions,
        clock=clock, ids=ids, kinds=kinds, quotas=quotas, backlog=backlog,
        inputs=SecretInputs(run_secrets),
    )  # fmt: skip
    runs.spans = spans
    ticking, subscriptions = _subscriptions(parts, signals, runs)
    logs, specs = subscriptions.logs, subscriptions.specs
    starts = Starts(
        parts, runs, programs, quotas, audits, backlog, Messages(logs, specs, store.deliveries)
    )
    cursors = Cursors(parts.cursor_key, clock)
    owners = Owners(store.executions, signals.recent, logs.named)
    values = Values(blobs, store.results, large, owners, clock=clock, ids=ids, metrics=metrics)
    letters = LetterDesk(subscriptions, store.letters, values, cursors)
    inventory = Inventory(blobs, store.results, values, cursors, clock)
    timetables = Timetables(store.schedules, clock, ids)
    documents, trials = _documents(parts, cursors, metrics, plugins)
    intake = Intake(ingest, store.commands, signals, workers, metrics, Posts(logs, specs))
    details = Details(store, cache, large, signals)
    repeats = Repeats(store, cache, programs, runs)
    streams = Streams(parts, signals)
    credentials = credentials_of(parts, cursors, subscriptions)
    registration = Registration(
        store, trials, timetables, metrics,
        clock=clock, ids=ids, plugins=plugins, credentials=credentials,
        subscriptions=subscriptions,
    )  # fmt: skip
    secrets = SecretDesk.of(
        parts,
        cursors,
        programs,
        workers,
        audits=audits,
        metrics=metrics,
        inputs=run_secrets,
        probes=Probes(credentials, store.catalog, registration.register, starts.execute),
        credentials=credentials,
        subscriptions=subscriptions,
        signals=signals,
    )
    return Plane(
        parts=parts,
        access=Access(parts),
        owners=owners,
        audits=audits,
        chain=Chain(store.audit, audits, cursors),
        quotas=quotas,
        metrics=metrics,
        signals=signals,
        programs=programs,
        cache=cache,
        large=large,
        handout=handout,
        ingest=ingest,
        workers=workers,
        claims=Claims(ingest, handout, store, workers, clock),
        intake=intake,
        controls=controls,
        admissions=admissions,
        runs=runs,
        starts=starts,
        batches=Batches(starts, runs, programs, ingest, spans),
        repeats=repeats,
        details=details,
        graphs=Graphs(store, details),
        timelines=Timelines(store, details, cursors),
        reasons=Reasons(store, details, workers, ingest, clock),
        replays=Replays(store, cache, details, large),
        bulks=Bulks(store, controls, repeats, quotas),
        lists=Lists(store, cursors),
        history=History(store, large, cursors),
        streams=streams,
        feed=Feed(parts, streams, signals, workers, subscriptions),
        subscriptions=subscriptions,
        ticking=ticking,
        letters=letters,
        redriving=Redriving(parts, subscriptions, letters, starts.execute),
        pushed=Pushed.of(
            parts,
            subscriptions,
            secrets.listeners,
            runs,
            values=values,
            cursors=cursors,
            quotas=quotas,
        ),
        endings=Endings(subscriptions, store.outcomes, signals, clock),
        cursors=cursors,
        answers=Answers(store, ingest),
        variables=Vars(store.variables, owners, clock),
        values=values,
        inventory=inventory,
        deposits=Deposits(blobs, store.requests, store.roles, clock),
        containers=Containers(store, ingest, signals, metrics, clock),
        timetables=timetables,
        scheduled=Scheduled(
            parts,
            runs,
            programs,
            controls,
            timetables=timetables,
            cursors=cursors,
            metrics=metrics,
        ),
        publications=Publications(parts, metrics),
        imports=Imports(parts, intake, metrics),
        refreshes=Refreshes(parts, programs),
        retention=Retention(parts, metrics, inventory),
        stats=Stats(parts, workers),
        documents=documents,
        desk=Desk.of(parts, cursors),
        trials=trials,
        registration=registration,
        secrets=secrets,
        spans=spans,
    )


def _traced(parts: ServerParts, cache: Cache) -> tuple[Spans | None, Blobs]:
    """What tells of spans, and the store of large bytes that is told of; none without a tracer."""
    if parts.tracer is None:
        return None, parts.blobs
    from noetl.server.ingest.tracing import Spans, TracedBlobs  # noqa: PLC0415 - most have none

    spans = Spans(parts.tracer, cache)
    return spans, TracedBlobs(parts.blobs, spans)


def _documents(
    parts: ServerParts,
    cursors: Cursors,
    metrics: ServerMetrics,
    plugins: Callable[[], Awaitable[Plugins]],
) -> tuple[Documents, Trials]:
    """The documents of the catalog, and the tests that try them."""
    store = parts.store
    suites = Suites(store.catalog)
    documents = Documents(store, suites, cursors, metrics, clock=parts.clock, plugins=plugins)
    return documents, Trials(store.catalog, documents, suites, parts.player)


def _subscriptions(
    parts: ServerParts, signals: Signals, runs: Runs
) -> tuple[Ticking, SubscriptionDesk]:
    """Subscriptions, which runs and documents have to do with."""
    logs = SubscriptionLogs(parts.store, parts.clock, parts.ids, signals)
    specs = Specs(parts.store.catalog)
    ticking = Ticking(parts, logs, specs, runs.start)
    return ticking, SubscriptionDesk(parts, logs, specs, ticking)
