"""Events of other installations: known runs get them as reports, unknown ones become readable."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.events import Report, Reports
from noetl.api.internal import Projected, Rejected
from noetl.edge.errors import RaceLost, Unacceptable
from noetl.engine.events import TERMINAL
from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.errors import NoetlError
from noetl.server.operations.envelopes import Envelope
from noetl.server.operations.foreign import folded, program_of, steps_of
from noetl.store.base import Change, ExecutionRow
from noetl.store.upkeep import IMPORTED
from noetl.store.views import Past, change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded
    from noetl.server.fleet.reports import Intake
    from noetl.server.metrics import ServerMetrics
    from noetl.server.parts import ServerParts

MOST_EVENTS: Final = 1_000
MOST_KEPT: Final = 64
MOST_TRIES: Final = 4
_PLACED: Final = ("event_type", "step", "command_key", "attempt", "worker_id", "duration_ms")

Row = tuple[int, Envelope]


class Imports:
    """Takes envelopes; a bad one fails alone."""

    def __init__(self, parts: ServerParts, intake: Intake, metrics: ServerMetrics) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._ids = parts.ids
        self._intake = intake
        self._metrics = metrics
        self._kept: OrderedDict[str, tuple[State, ExecutionRow | None]] = OrderedDict()

    async def project(self, events: Sequence[Any]) -> Projected:
        """Import envelopes."""
        if not 1 <= len(events) <= MOST_EVENTS:
            raise Unacceptable(
                f"{len(events)} events at once", code="batch_size_invalid",
                hint=f"1..{MOST_EVENTS}",
            )  # fmt: skip
        rejected: dict[int, str] = {}
        read = self._read(events, rejected)
        known = set(await self._store.projections.known([each.event_id for _, each in read]))
        groups: dict[str, list[Row]] = {}
        duplicates = projected = 0
        for place, each in read:
            if each.event_id in known:
                duplicates += 1
                continue
            known.add(each.event_id)
            groups.setdefault(each.execution_id, []).append((place, each))
        for execution_id, group in groups.items():
            stored, again = await self._of_run(execution_id, group, rejected)
            projected += stored
            duplicates += again
        self._metrics.events_projected.inc(by=projected)
        self._metrics.events_projected_duplicates.inc(by=duplicates)
        return Projected(
            projected=projected,
            duplicates=duplicates,
            rejected=tuple(
                Rejected(index=place, code=code) for place, code in sorted(rejected.items())
            ),
        )

    def _read(self, events: Sequence[Any], rejected: dict[int, str]) -> list[Row]:
        found = []
        now = self._clock.now()
        for place, told in enumerate(events):
            try:
                found.append((place, Envelope(told, now)))
            except NoetlError as fault:
                rejected[place] = fault.code
        return found

    async def _of_run(
        self, execution_id: str, group: list[Row], rejected: dict[int, str]
    ) -> tuple[int, int]:
        """How many events were stored, and how many were here already."""
        row = await self._store.executions.get(execution_id)
        if row is not None and row.kind != IMPORTED:
            return await self._report(execution_id, group, rejected)
        await self._store.projections.prepare([execution_id])
        if all(each.seq is not None for _, each in group):
            group = sorted(group, key=lambda item: item[1].seq or 0)
        for _ in range(MOST_TRIES):
            faults: dict[int, str] = {}
            made = await self._change(execution_id, group, faults)
            if made is None or not await self._store.log.commit([made]):
                if made is not None and made.expected_seq == 0:
                    await self._store.projections.imported(execution_id)
                rejected |= faults
                return (0 if made is None else len(made.events)), 0
            self._kept.pop(execution_id, None)  # somebody else has imported some of it
            known = await self._store.projections.known([each.event_id for _, each in group])
            left = [item for item in group if item[1].event_id not in known]
            if len(left) < len(group):
                stored, again = await self._of_run(execution_id, left, rejected) if left else (0, 0)
                return stored, again + len(group) - len(left)
        raise RaceLost(f"execution {execution_id} is being imported", hint="try again")

    # ------------------------------------------------------------------------ of our own runs

    async def _report(
        self, execution_id: str, group: list[Row], rejected: dict[int, str]
    ) -> tuple[int, int]:
        """Events of a run that is driven here are what a worker would have reported."""
        stored = again = 0
        for place, each in group:
            try:
                report, worker_id = _report_of(each)
                body = Reports(worker_id=worker_id, pool="", events=(report,))
                (receipt,) = (await self._intake.report(body)).results
            except NoetlError as fault:
                if fault.retryable:
                    raise
                rejected[place] = fault.code
                continue
            if receipt.outcome == "rejected":
                rejected[place] = receipt.code or "bad_value"
            elif receipt.outcome == "duplicate":
                again += 1
            else:
                stored += 1
        del execution_id
        return stored, again

    # ------------------------------------------------------------------------ of foreign runs

    async def _change(
        self, execution_id: str, group: list[Row], faults: dict[int, str]
    ) -> Change | None:
        """What is to be written of a foreign run: its events and its read model, nothing else."""
        state, before = await self._state(execution_id)
        seq = state.seq
        recorded: list[Recorded] = []
        for place, each in group:
            try:
                item = each.recorded(state.seq + 1, state.last_event_id or None)
                if state.terminal is not None and isinstance(item.event, TERMINAL):
                    raise Unacceptable("the run has ended", code="already_terminal")
                _learn(state, steps_of([item.event]))
            except NoetlError as fault:
                faults[place] = fault.code
                continue
            fold(state, item)
            recorded.append(item)
        if not recorded:
            return None
        if before is None and recorded[0].event.__struct_config__.tag != "playbook.started":
            before = _blank(execution_id, group[0][1], recorded[0])
        made = change(seq, state, recorded, self._ids.new, Past(row=before))
        row = msgspec.structs.replace(
            made.execution,
            kind=IMPORTED,
            concurrency_key=None,  # it takes no place from runs of ours
            pending_commands=0,
        )
        self._keep(execution_id, state, row)
        return Change(
            execution_id=execution_id, expected_seq=seq, events=tuple(recorded), execution=row
        )

    async def _state(self, execution_id: str) -> tuple[State, ExecutionRow | None]:
        row = await self._store.executions.get(execution_id)
        kept = self._kept.pop(execution_id, None)
        if row is None:
            state = State(program=program_of(()))
            state.execution_id = execution_id
            return state, None
        if kept is not None and kept[0].seq == row.last_seq:
            return kept[0], row
        return await folded(self._store.log, execution_id), row

    def _keep(self, execution_id: str, state: State, row: ExecutionRow) -> None:
        self._kept[execution_id] = (state, row)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


def _learn(state: State, steps: list[str]) -> None:
    """Let a state know of steps that no event has named before."""
    known = state.program.steps
    if any(name not in known for name in steps):
        named = dict.fromkeys([*(known if state.seq else ()), *steps])
        state.program = program_of(tuple(named))


def _blank(execution_id: str, first: Envelope, recorded: Recorded) -> ExecutionRow:
    """The row of a run whose start nobody has told."""
    return ExecutionRow(
        execution_id=execution_id,
        status="RUNNING",
        catalog_id=str(first.row.get("catalog_id") or "0"),
        path=str(first.row.get("path") or IMPORTED),
        version=1,
        pool="",
        priority=5,
        last_seq=0,
        last_event_id=recorded.event_id,
        started_at=recorded.created_at,
        updated_at=recorded.created_at,
        tenant_id=str(first.row.get("tenant_id") or "default"),
    )


def _report_of(each: Envelope) -> tuple[Report, str]:
    """What a worker would have said, and which worker."""
    event = each.recorded(1, None).event
    fields: dict[str, Any] = msgspec.to_builtins(event)
    worker_id = str(fields.get("worker_id") or IMPORTED)
    command_id = each.row.get("command_id") or each.row.get("parent_event_id")
    report = Report(
        execution_id=each.execution_id,
        event_id=each.event_id,
        event_type=each.event_type,
        step=str(fields.get("step", "")),
        command_id="" if command_id is None else str(command_id),
        attempt=fields.get("attempt"),
        created_at=each.row["created_at"],
        duration_ms=fields.get("duration_ms"),
        payload={key: value for key, value in fields.items() if key not in _PLACED},
    )
    return report, worker_id
