"""The state of a run after any of its events: folded from the nearest snapshot, page by page.

The fold is the one that decisions are made from, so a replay says what the run said of itself then.
`limit` bounds what is shown of each part, never how far the log is folded.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.reading import Replayed
from noetl.dsl.views import Reference
from noetl.edge.errors import BadQuery
from noetl.engine.fork import BadPosition
from noetl.engine.status import current_steps, progress_of, status_of
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.engine.state import Command, LoopState, State, StepState
    from noetl.server.ingest.cache import Cache
    from noetl.server.ingest.large import Large
    from noetl.server.reading.detail import Details
    from noetl.store.base import ExecutionRow, Store

PARTS: Final = ("steps", "commands", "loops", "stages", "frames", "business_objects", "ctx")
PROJECTIONS: Final = (
    "all", "execution", "command", "loop", "stage", "frame", "business_object",
)  # fmt: skip
SHOWN: Final = {
    "all": frozenset({"execution", *PARTS}),
    "execution": frozenset({"execution", "steps", "ctx"}),
    "command": frozenset({"commands"}),
    "loop": frozenset({"loops"}),
    "stage": frozenset({"stages"}),
    "frame": frozenset({"frames"}),
    "business_object": frozenset({"business_objects"}),
}
"""What each projection shows."""
LIMIT: Final = 10_000
MOST: Final = 100_000
MOST_RESOLVED: Final = 100
"""Values that are fetched for one answer; the others stay references."""
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class At(msgspec.Struct, frozen=True, kw_only=True):
    """Which moment of a run is meant: at most one of these, else now."""

    event_id: str | None = None
    position: int | None = None
    time: str | None = None


class Replays:
    """Folds logs."""

    def __init__(self, store: Store, cache: Cache, details: Details, large: Large) -> None:
        self._log = store.log
        self._cache = cache
        self._details = details
        self._large = large

    async def state(
        self,
        execution_id: str,
        at: At,
        *,
        projection: str = "all",
        limit: int = LIMIT,
        resolves: bool = False,
    ) -> Replayed:
        """The state of a run, after the event that is meant."""
        row = await self._details.row(execution_id)
        seq = await self._seq(row, at)
        if seq == row.last_seq:
            state = await self._details.state(row)
            seq = state.seq
        else:
            state = (await self._cache.read(execution_id, seq)).state
        # From here to the end of `told` nothing waits: a live state may move with the next commit.
        parts = told(state)
        digest = sha256(_canonical(parts)).hexdigest()
        last_event_id = state.last_event_id
        parts = {name: part for name, part in parts.items() if name in SHOWN[projection]}
        is_cut = any(len(part) > limit for name, part in parts.items() if name in PARTS)
        if is_cut:
            parts = {name: _cut(name, part, limit) for name, part in parts.items()}
        if resolves:
            parts = await _Resolving(self._large).of(parts)
        last = await self._log.read(execution_id, seq - 1, 1) if seq else []
        return Replayed(
            tenant_id=row.tenant_id,
            organization_id=row.organization_id,
            execution_id=execution_id,
            projection=projection,
            event_count=seq,
            last_event_id=last_event_id,
            last_event_type=str(last[0].event.__struct_config__.tag) if last else None,
            execution=parts.get("execution", {}),
            **{name: parts.get(name, {}) for name in PARTS},
            state_digest=digest,
            is_cut=is_cut,
        )

    async def _seq(self, row: ExecutionRow, at: At) -> int:
        given = [item for item in (at.event_id, at.position, at.time) if item is not None]
        if len(given) > 1:
            raise BadQuery("name one of as_of_event_id, as_of_position and as_of_time")
        if at.event_id is not None:
            found = await self._log.find(row.execution_id, at.event_id)
            if found is None:
                raise BadPosition(f"the log has no event {at.event_id}")
            return found.seq
        if at.position is not None:
            if not 0 <= at.position <= row.last_seq:
                raise BadPosition(f"the log has the positions 0..{row.last_seq}")
            return at.position
        return row.last_seq if at.time is None else await self._before(row, at.time)

    async def _before(self, row: ExecutionRow, time: str) -> int:
        """The last event up to a time; times of a log only grow, so few rows are looked at."""
        low, high = 0, row.last_seq
        while low < high:
            middle = (low + high + 1) // 2
            (found,) = await self._log.read(row.execution_id, middle - 1, 1)
            if found.created_at <= time:
                low = middle
            else:
                high = middle - 1
        return low


def told(state: State) -> dict[str, Any]:
    """Everything that a state says, in parts; references stand as `{"$reference": ..}`."""
    made: dict[str, Any] = {
        "execution": _execution(state),
        "steps": {name: _step(step) for name, step in state.steps.items()},
        "commands": {key: _command(command) for key, command in state.commands.items()},
        "loops": {
            name: _loop(step.loop) for name, step in state.steps.items() if step.loop is not None
        },
        "stages": {
            key: _stage(command) for key, command in state.commands.items() if command.checkpoint
        },
        "frames": {
            f"{name}/f{number}": {
                "attempt": frame.attempt,
                "is_claimed": frame.is_claimed,
                "total": frame.total,
                "waiting": len(frame.waiting),
                "open": frame.open,
                "failed": sorted(frame.failed),
            }
            for name, step in state.steps.items()
            if step.loop is not None
            for number, frame in step.loop.frames.items()
        },
        "business_objects": {},
        "ctx": state.ctx,
    }
    plain: dict[str, Any] = msgspec.to_builtins(_marked(made), str_keys=True)
    return plain


def _execution(state: State) -> dict[str, Any]:
    return {
        "status": status_of(state),
        "path": state.path,
        "version": state.version,
        "catalog_id": state.catalog_id,
        "pool": state.pool,
        "priority": state.priority,
        "parent_execution_id": state.parent_execution_id,
        "rerun_of": state.rerun_of,
        "forked_from": state.forked_from,
        "labels": state.labels,
        "workload": state.workload,
        "started_at": state.started_at or None,
        "ended_at": state.ended_at,
        "paused_at": state.paused_at,
        "current_steps": list(current_steps(state)),
        "progress": progress_of(state),
        "failed_steps": list(state.failed_steps),
        "error": state.failure,
        "result": state.result if state.reference is None else state.reference,
        "timers": {
            key: {"kind": timer.kind, "due_at": timer.due_at} for key, timer in state.timers.items()
        },
        "children": {
            key: {"command_key": child.command_key, "is_awaited": child.is_awaited}
            for key, child in state.children.items()
        },
        "last_seq": state.seq,
    }


def _step(step: StepState) -> dict[str, Any]:
    made: dict[str, Any] = {
        "status": "RUNNING" if step.is_live else step.status,
        "visit": step.visit,
        "from": list(step.came_from),
    }
    if step.result is not None:
        found = step.result
        made["result"] = found.data if found.reference is None else found.reference
    if step.error is not None:
        made["error"] = step.error
        made["is_handled"] = step.is_handled
    if step.writes:
        made["writes"] = step.writes
    return made


def _command(command: Command) -> dict[str, Any]:
    return {
        "command_id": command.id,
        "step": command.step,
        "visit": command.visit,
        "index": command.index,
        "frame": command.frame,
        "kind": command.kind,
        "pool": command.pool,
        "priority": command.priority,
        "status": command.status,
        "attempt": command.attempt,
        "losses": command.lost,
        "worker_id": command.worker_id,
        "started_at": command.started_at,
        "parked": command.parked,
    }


def _loop(loop: LoopState) -> dict[str, Any]:
    return {
        "mode": loop.mode,
        "total": loop.rows if loop.mode == "cursor" else loop.total,
        "max_in_flight": loop.max_in_flight,
        "issued": loop.next_index,
        "open": loop.open,
        "done": loop.done,
        "failed": loop.failed,
        "errors": loop.errors,
        "is_ending": loop.is_ending,
    }


def _stage(command: Command) -> dict[str, Any]:
    """How far the pipeline of a command is."""
    kept = command.checkpoint if isinstance(command.checkpoint, dict) else {}
    return {
        "step": command.step,
        "task": kept.get("task"),
        "tries": kept.get("tries", 0),
        "done": sorted(kept.get("results", {})),
    }


def _marked(value: Any) -> Any:  # noqa: ANN401 - JSON of the author's own
    """Data in which a reference is told from a map of the author's own."""
    if isinstance(value, Reference):
        return {"$reference": value}
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    return [_marked(item) for item in value] if isinstance(value, (list, tuple)) else value


def _cut(name: str, part: dict[str, Any], limit: int) -> dict[str, Any]:
    return dict(list(part.items())[:limit]) if name in PARTS else part


class _Resolving:
    """Fetches the values of references; what is gone, too large or one too many stays as it is."""

    def __init__(self, large: Large) -> None:
        self._large = large
        self._left = MOST_RESOLVED

    async def of(self, value: Any) -> Any:  # noqa: ANN401 - JSON of the author's own
        if isinstance(value, list):
            return [await self.of(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.keys() != {"$reference"}:
            return {key: await self.of(item) for key, item in value.items()}
        return await self._fetched(value)

    async def _fetched(self, mark: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        if not self._left:
            return mark
        self._left -= 1
        try:
            return await self._large.of_map(mark["$reference"])
        except (NoetlError, msgspec.ValidationError):
            return mark
