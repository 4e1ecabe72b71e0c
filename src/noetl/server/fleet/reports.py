"""What workers report: each report is judged against the state, stored once, and answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from noetl.api.events import MOST_EVENTS, Receipt, Reported
from noetl.edge.errors import Unacceptable, UnknownExecution
from noetl.engine import events as ev
from noetl.engine.rows import TYPES
from noetl.engine.upcast import type_of
from noetl.ids import InvalidId
from noetl.server.access.entry import LOCAL, own_pool
from noetl.server.fleet.plain import id_of_command, plain
from noetl.server.ingest.handout import is_held
from noetl.server.ingest.posts import Ask, Post, Stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from noetl.api.events import Report, Reports
    from noetl.engine.state import Command, State
    from noetl.server.access.entry import Caller
    from noetl.server.fleet.workers import Workers
    from noetl.server.ingest.queue import Ingest
    from noetl.server.metrics import ServerMetrics
    from noetl.server.signals import Signals
    from noetl.server.subscriptions.posted import Posts
    from noetl.store.base import Commands

Outcome = Literal["stored", "duplicate", "late", "rejected"]

MOST_SLOTS: Final = 64
MOST_LATE_BYTES: Final = 64 * 1024

_KINDS: Final[dict[str, type[ev.Event]]] = {
    "call.done": ev.CallDone,
    "call.error": ev.CallError,
    "command.started": ev.CommandStarted,
    "command.parked": ev.CommandParked,
    "step.progress": ev.StepProgress,
}
_CLOSING: Final = {"command.completed": "call.done", "command.failed": "call.error"}
_BEAT: Final = "command.heartbeat"
_FOREIGN: Final = "pool_forbidden"
_NO_ERROR: Final = {
    "kind": "internal",
    "code": "no_error",
    "message": "the worker told of a failure and not why",
}
_KNOWN: Final = frozenset(TYPES)
_FIELDS: Final = {
    name: frozenset(cls.__struct_fields__) | {"event_type"} for name, cls in _KINDS.items()
}
_FIELDS["call.done"] -= {"outcome", "error", "origin"}  # a container's; a worker tells `call.error`
_encode: Final = msgspec.json.Encoder().encode


class Intake:
    """Takes batches of reports."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made from
        self,
        ingest: Ingest,
        commands: Commands,
        signals: Signals,
        workers: Workers,
        metrics: ServerMetrics,
        subscriptions: Posts,
    ) -> None:
        self._subscriptions = subscriptions
        self._metrics = metrics
        self._ingest = ingest
        self._commands = commands
        self._signals = signals
        self._workers = workers

    async def report(self, body: Reports, caller: Caller = LOCAL, size: int = 0) -> Reported:
        """Store reports, hand out the next work, tell what to stop."""
        own_pool(caller, body.pool)
        if len(body.events) > MOST_EVENTS:
            raise Unacceptable(
                f"{len(body.events)} events in one batch", code="batch_size_invalid",
                hint=f"at most {MOST_EVENTS}",
            )  # fmt: skip
        if body.free_slots or not _is_of_subscriptions(body.events):
            self._workers.seen(body.worker_id, body.pool, body.free_slots)
        slots = max(0, min(body.free_slots, MOST_SLOTS))
        ask = Ask(body.worker_id, body.pool, slots, frozenset(body.exclude_kinds))
        events = [plain(report, place, body) for place, report in enumerate(body.events)]
        receipts: list[Receipt | None] = [None] * len(events)
        judge = Judge(body.worker_id, ask, receipts, caller.pool)
        posts = self._posts(events, range(len(events)), judge)
        if posts or slots:
            await self._ingest.submit(posts, ask, size=size)
        if judge.unclear:
            posts += await self._again(events, judge, slots)
        for post in posts:
            if post.error is not None:
                _refuse(post, events, receipts)
        await self._beat(events, judge)
        await self._tell(events, caller, receipts)
        answered = [item for item in receipts if item is not None]
        self._count(events, receipts)
        return self._answer(body.worker_id, events, posts, judge.ask, answered)

    def _count(self, events: list[Report], receipts: list[Receipt | None]) -> None:
        metrics = self._metrics
        for report, receipt in zip(events, receipts, strict=True):
            name = type_of(report.event_type)
            if receipt is not None and name in _KNOWN:
                metrics.events_ingested.inc(name, receipt.outcome)
                if receipt.outcome == "late":
                    metrics.command_late.inc()

    def _answer(
        self,
        worker_id: str,
        events: list[Report],
        posts: list[Post],
        ask: Ask,
        receipts: list[Receipt],
    ) -> Reported:
        late = {item.event_id for item in receipts if item.outcome == "late"}
        stops = dict.fromkeys(self._signals.stops_of(worker_id))
        if late:
            stops |= {str(item.command_id): None for item in events if item.event_id in late}
        return Reported(
            event_ids=tuple(str(item.event_id) for item in events),
            results=tuple(receipts),
            commands_generated=sum(post.generated for post in posts),
            claimed=tuple(ask.given),
            cancelled=tuple(stops),
            pressure=self._ingest.pressure,
        )

    async def _again(self, events: list[Report], judge: Judge, slots: int) -> list[Post]:
        """Judge reports of commands that their runs know no more, if they are of the pool."""
        names = {place: _id_of(events[place]) for place in sorted(judge.unclear)}
        rows = await self._commands.those(list(filter(None, names.values())))
        judge.ended = {
            place
            for place, name in names.items()
            if (row := rows.get(name)) is not None
            and (row.execution_id, row.pool) == (events[place].execution_id, judge.pool)
        }
        given, first = judge.ask.given, judge.ask
        judge.ask = Ask(first.worker_id, first.pool, slots - len(given), first.exclude, given=given)
        posts = self._posts(events, sorted(judge.ended), judge)
        if posts or slots:
            await self._ingest.submit(posts, judge.ask)
        return posts

    def _posts(self, events: list[Report], places: Iterable[int], judge: Judge) -> list[Post]:
        groups: dict[str, list[tuple[int, Report]]] = {}
        receipts = judge.receipts
        for place in places:
            report = events[place]
            refusal = _refusal(report.event_type)
            if report.event_type in ev.OF_SUBSCRIPTIONS:
                continue
            if refusal is not None:
                receipts[place] = _receipt(report, "rejected", code=refusal)
            elif report.event_type != _BEAT:
                groups.setdefault(str(report.execution_id), []).append((place, report))
        return [
            Post(execution_id, judge.judged(items), weight=len(items))
            for execution_id, items in groups.items()
        ]

    async def _beat(self, events: list[Report], judge: Judge) -> None:
        for place, report in enumerate(events):
            if report.event_type == _BEAT:
                until, pool = self._ingest.lease_until(), judge.pool
                command_id = id_of_command(report.command_id)
                held = [(command_id, report.attempt or 1)]
                if await self._commands.extend(judge.worker_id, held, until, pool=pool):
                    judge.receipts[place] = _receipt(report, "stored")
                elif await self._is_foreign(command_id, pool):
                    judge.receipts[place] = _receipt(report, "rejected", code=_FOREIGN)
                else:
                    judge.receipts[place] = _receipt(report, "late")

    async def _is_foreign(self, command_id: str, pool: str | None) -> bool:
        if pool is None:
            return False
        row = await self._commands.get(command_id)
        return row is None or row.pool != pool

    async def _tell(
        self, events: list[Report], caller: Caller, receipts: list[Receipt | None]
    ) -> None:
        """Store what is told of subscriptions, apart from runs and their claims."""
        groups: dict[str, list[int]] = {}
        for place, report in enumerate(events):
            if report.event_type in ev.OF_SUBSCRIPTIONS:
                groups.setdefault(str(report.execution_id), []).append(place)
        for subscription_id, places in groups.items():
            told = [events[place] for place in places]
            stored = await self._subscriptions.report(caller, subscription_id, told)
            for place, receipt in zip(places, stored, strict=True):
                receipts[place] = receipt


def _is_of_subscriptions(events: tuple[Report, ...]) -> bool:
    """Whether a runtime reports, which is no worker of any pool."""
    return bool(events) and all(
        (report.event_type or report.name) in ev.OF_SUBSCRIPTIONS for report in events
    )


def _receipt(
    report: Report, outcome: Outcome, *, seq: int | None = None, code: str | None = None
) -> Receipt:
    return Receipt(event_id=str(report.event_id), outcome=outcome, seq=seq, code=code)


def _refusal(name: str) -> str | None:
    """Why a worker may not post an event of this type, if it may not."""
    name = type_of(name)
    if name in _KINDS or name in _CLOSING or name == _BEAT:
        return None
    return "forbidden_event" if name in _KNOWN else "unknown_event_type"


def _refuse(post: Post, events: list[Report], receipts: list[Receipt | None]) -> None:
    error = post.error
    if not isinstance(error, UnknownExecution):
        raise error if error is not None else AssertionError
    for place, report in enumerate(events):
        if receipts[place] is None and report.execution_id == post.execution_id:
            receipts[place] = _receipt(report, "rejected", code=error.code)


@dataclass(slots=True, eq=False)
class Judge:
    """Judges the reports of one request, and writes its receipts."""

    worker_id: str
    ask: Ask
    receipts: list[Receipt | None]
    pool: str | None = None
    """The only pool of whose commands the request may tell."""
    unclear: set[int] = field(default_factory=set)
    """Places of reports whose commands their runs do not know, and so not the pool either."""
    ended: set[int] = field(default_factory=set)
    """Those of them whose commands have ended and are of the pool."""

    def judged(self, items: list[tuple[int, Report]]) -> Callable[[State], Iterator[Stamped]]:
        """The events of the reports of one run, in their order."""

        def make(state: State) -> Iterator[Stamped]:
            for place, report in items:
                stamped, outcome = self._judge(state, place, report)
                if isinstance(stamped, Receipt):
                    self.receipts[place] = stamped
                    continue
                yield stamped
                recorded = stamped.recorded
                if not stamped.is_new:
                    outcome, self.ask.is_repeat = "duplicate", True
                seq = recorded.seq if recorded is not None else None
                self.receipts[place] = _receipt(report, outcome, seq=seq)

        return make

    def _judge(self, state: State, place: int, report: Report) -> tuple[Stamped | Receipt, Outcome]:
        name, worker_id = type_of(report.event_type), self.worker_id
        command = find_command(state, str(report.command_id))
        if self.pool is not None and not self._is_own(command, place):
            return _receipt(report, "rejected", code=_FOREIGN), "rejected"
        if name in _CLOSING:
            if command is None or command.report is not None:
                return _receipt(report, "duplicate"), "duplicate"
            name = _CLOSING[name]
        if command is None or not _is_expected(command, report, worker_id, name):
            return _late(command, report, worker_id), "late"
        try:
            event = _event(name, command, report, worker_id)
        except msgspec.ValidationError:
            return _receipt(report, "rejected", code="bad_value"), "rejected"
        return Stamped(event, str(report.event_id), command.id, report.created_at), "stored"

    def _is_own(self, command: Command | None, place: int) -> bool:
        """Whether a report is about a command of the pool, as far as the run tells."""
        if command is not None:
            return command.issued.pool == self.pool
        if place in self.ended:
            return True
        self.unclear.add(place)
        self.ask.slots = 0  # a repeated request is given nothing new, and it may be one
        return False


def find_command(state: State, name: str) -> Command | None:
    """An open command by any of its names: id, outward text, or key."""
    key = state.command_ids.get(name)
    if key is None and ":" in name:
        parts = name.split(":")
        key = state.command_ids.get(parts[2]) if len(parts) > 2 else None  # noqa: PLR2004 - execution, step, id
    return state.commands.get(name if key is None else key)


def _is_expected(command: Command, report: Report, worker_id: str, name: str) -> bool:
    """Whether the open attempt of the command waits for this report of this worker."""
    if report.attempt not in {command.attempt, None} or not is_held(command, worker_id):
        return False
    return name != "command.started" or command.status == "CLAIMED"


def _id_of(report: Report) -> str:
    """The id of the command that a report names; empty when it names none."""
    try:
        return id_of_command(report.command_id)
    except InvalidId:
        return ""


def _event(name: str, command: Command, report: Report, worker_id: str) -> ev.Event:
    cls = _KINDS[name]
    given = report.payload
    if not isinstance(given, dict) or not given.keys() <= _FIELDS[name]:
        given = {"result": given}  # the plain result of a client that knows no fields
    fields: dict[str, Any] = {
        **given,
        "event_type": name,
        "step": command.step,
        "command_key": command.key,
        "attempt": command.attempt,
    }
    if cls is not ev.CommandStarted:
        fields["worker_id"] = worker_id
        fields["duration_ms"] = report.duration_ms
    if cls is ev.CallError:
        fields.setdefault("error", _NO_ERROR)
    fields.pop("callback_key", None)
    made: ev.Event = msgspec.convert(fields, cls)
    return made


def _late(command: Command | None, report: Report, worker_id: str) -> Stamped:
    given = report.payload if isinstance(report.payload, dict) else {"result": report.payload}
    kept: dict[str, Any] = {"event_type": report.event_type, **given}
    size = len(_encode(kept))
    if size > MOST_LATE_BYTES:
        kept = {"event_type": report.event_type, "dropped_bytes": size}
    event = ev.CommandLate(
        step=report.step,
        command_key=str(report.command_id) if command is None else command.key,
        attempt=report.attempt or 0,
        worker_id=worker_id,
        report=kept,
    )
    event_id = str(report.event_id)
    return Stamped(event, event_id, None, report.created_at, unless_stored=True)
