"""What a run waits for, in words: one reason per thing, with the command that acts on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from noetl.api.reading import Reason
from noetl.clock import rfc3339
from noetl.store.ranked import age

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.engine.events import Error
    from noetl.server.fleet.workers import Worker
    from noetl.store.base import CommandRow, ExecutionRow
    from noetl.store.reading import Circuit

_CONTAINER: Final = "container"
_RATE_LIMIT: Final = "rate_limit"


@dataclass(slots=True, kw_only=True)
class Facts:
    """What the store and the workers say of the things that are waited for."""

    now: str
    row: ExecutionRow
    commands: dict[str, tuple[CommandRow | None, str | None]] = field(default_factory=dict)
    """Rows of commands by id, and when they were issued if their rows do not tell."""
    live: dict[str, list[Worker]] = field(default_factory=dict)
    heartbeats: dict[str, str] = field(default_factory=dict)
    children: dict[str, ExecutionRow] = field(default_factory=dict)
    holders: list[ExecutionRow] = field(default_factory=list)
    ahead: dict[str, int | None] = field(default_factory=dict)
    circuits: list[Circuit] = field(default_factory=list)


class Causes:
    """Tells the reasons of one run."""

    def __init__(self, execution_id: str, facts: Facts) -> None:
        self._run = execution_id
        self._facts = facts

    def of_run(self, paused_at: str | None) -> list[Reason]:
        """What holds the whole run: a pause, a circuit."""
        found: list[Reason] = []
        if paused_at is not None:
            found.append(
                Reason(
                    code="paused",
                    since=paused_at,
                    step=None,
                    detail="it is paused: nothing new is issued or claimed",
                    hint=f"noetl executions resume {self._run}",
                )
            )
        found += [
            Reason(
                code="circuit_open",
                since=_since(circuit.state),
                step=None,
                detail=f"the circuit `{circuit.path}` is open",
                hint=f"noetl subscription get {circuit.path.rpartition('.')[0] or circuit.path}",
            )
            for circuit in self._facts.circuits
            if "open" in {circuit.state.get("phase"), circuit.state.get("state")}
        ]
        return found

    def of_loop(self, item: dict[str, Any]) -> Reason:
        """How far a loop is."""
        step, done, in_flight = item["step"], item["done"], item["in_flight"]
        hint = f"noetl executions events {self._run} --step {step} -f"
        if item["code"] == "cursor":
            return Reason(
                code="cursor_draining",
                since=None,
                step=step,
                detail=f"`{step}` has done {done} rows, {item['frames']} frames are open",
                hint=hint,
                done=done,
                in_flight=in_flight,
            )
        return Reason(
            code="loop_in_progress",
            since=None,
            step=step,
            detail=f"`{step}` has done {done} of {item['total']}, {in_flight} are in flight",
            hint=hint,
            done=done,
            in_flight=in_flight,
            total=item["total"],
        )

    def of(self, item: dict[str, Any]) -> Reason | None:
        """One thing that the state names; none when it is told elsewhere."""
        rule = _RULES.get(item["code"])
        return None if rule is None else rule(self, item)

    # ------------------------------------------------------------------------ commands

    def _unclaimed(self, item: dict[str, Any]) -> Reason:
        row, issued = self._facts.commands[item["command_id"]]
        since = (row.available_at if row is not None else "") or issued
        pool = str(item.get("pool"))
        workers = self._facts.live.get(pool, [])
        slots = sum(worker.capacity for worker in workers)
        about = {"pool": pool, "live_workers": len(workers), "live_slots": slots}
        if item.get("lost"):
            return self._made(
                "lease_expired_recovering",
                item,
                since,
                f"attempt {item['attempt'] - 1} of `{item['step']}` lost its worker; "
                f"attempt {item['attempt']} waits for one of pool `{pool}`",
                f"noetl executions events {self._run} --step {item['step']}"
                if workers
                else f"noetl worker --pool {pool}",
                **about,
            )
        if not workers:
            detail = f"pool `{pool}` has 0 live workers"
            hint = f"noetl worker --pool {pool}"
            return self._made("waiting_for_worker", item, since, detail, hint, **about)
        place = self._facts.ahead.get(item["command_id"]) or 0
        detail = (
            f"`{item['step']}` waits in pool `{pool}` behind {place} commands; "
            f"{len(workers)} live workers have {slots} slots"
        )
        hint = f"noetl worker --pool {pool} adds slots; noetl pools get {pool} shows who is busy"
        return self._made("queue_backlog", item, since, detail, hint, place=place, **about)

    def _running(self, item: dict[str, Any]) -> Reason:
        row, issued = self._facts.commands[item["command_id"]]
        worker = str(item["worker_id"])
        until = row.lease_until if row is not None else item["lease_until"]
        since = (row.started_at if row is not None else None) or issued
        heartbeat = self._facts.heartbeats.get(worker)
        about = {"worker_id": worker, "heartbeat": heartbeat, "lease_until": until}
        if until is not None and until < self._facts.now:
            detail = f"worker `{worker}` of `{item['step']}` is silent since its lease of {until}"
            hint = f"wait a moment: it is given to another worker; noetl executions why {self._run}"
            return self._made("lease_expired_recovering", item, since, detail, hint, **about)
        heard = f", heard of at {heartbeat}" if heartbeat else ""
        detail = f"`{item['step']}` runs on worker `{worker}`{heard}"
        hint = f"noetl executions logs {self._run} --step {item['step']} -f"
        return self._made("running_on_worker", item, since, detail, hint, **about)

    def _timed(self, item: dict[str, Any]) -> Reason:
        _, issued = self._facts.commands[item["command_id"]]
        due = item["due_at"]
        if item["code"] == "retry":
            error: Error | None = item.get("error")
            failed = f": {error.code}: {error.message}" if error is not None else ""
            detail = f"`{item['step']}` is tried again at {due}{failed}"
            if error is not None and error.kind == _RATE_LIMIT:
                hint = (
                    f"wait, or lower `max_in_flight` of `{item['step']}`: "
                    f"its peer takes fewer requests than it is sent"
                )
                return self._made("rate_limited", item, issued, detail, hint, due_at=due)
            hint = f"noetl executions events {self._run} --step {item['step']} shows what failed"
            return self._made("waiting_retry", item, issued, detail, hint, due_at=due)
        detail = f"`{item['step']}` waits until {due}"
        hint = f"wait, or noetl executions cancel {self._run}"
        return self._made("waiting_timer", item, issued, detail, hint, due_at=due)

    def _child(self, item: dict[str, Any]) -> Reason:
        child = self._facts.children.get(item["child_key"])
        if child is None:
            _, issued = self._facts.commands[item["command_id"]]
            detail = f"`{item['step']}` waits for a run that is about to start, or to return"
            hint = f"noetl executions list --parent {self._run}"
            return self._made("waiting_child", item, issued, detail, hint)
        name = child.execution_id
        return self._made(
            "waiting_child",
            item,
            child.started_at,
            f"`{item['step']}` waits for execution {name} of {child.path}, which is {child.status}",
            f"noetl executions why {name}",
            execution_id=name,
        )

    def _callback(self, item: dict[str, Any]) -> Reason:
        _, issued = self._facts.commands[item["command_id"]]
        if item.get("kind") == _CONTAINER:
            detail = f"`{item['step']}` waits for the end of its container job"
            hint = f"noetl executions logs {self._run} --step {item['step']} -f"
            return self._made("waiting_container", item, issued, detail, hint)
        detail = f"`{item['step']}` waits for an answer to its callback"
        hint = (
            "noetl api POST /api/callbacks/KEY with the key that the step has handed out, "
            f"or noetl executions cancel {self._run}"
        )
        return self._made("waiting_callback", item, issued, detail, hint)

    # ------------------------------------------------------------------------ beside commands

    def _queued(self, item: dict[str, Any]) -> Reason:
        key = item["concurrency_key"]
        others = [row for row in self._facts.holders if row.execution_id != self._run]
        running = [row for row in others if row.status != "PENDING"]
        queued = [row for row in others if row.status == "PENDING"]
        place = sum(age(row.execution_id) < age(self._run) for row in queued)
        first = running[0].execution_id if running else None
        return Reason(
            code="concurrency_queue",
            since=self._facts.row.started_at,
            step=None,
            detail=f"{len(running)} runs of `{key}` are under way, {place} wait before it",
            hint=f"noetl executions why {first or self._run}",
            concurrency_key=key,
            place=place,
            execution_id=first,
        )

    def _timer(self, item: dict[str, Any]) -> Reason:
        due = item["due_at"]
        if item["kind"] == "start":
            return Reason(
                code="start_delayed",
                since=self._facts.row.started_at,
                step=None,
                detail=f"it starts at {due}",
                hint=f"wait, or noetl executions cancel {self._run}",
                due_at=due,
            )
        return Reason(
            code="waiting_timer",
            since=None,
            step=None,
            detail=f"its {item['kind'].replace('_', ' ')} ends at {due}",
            hint=f"wait, or noetl executions cancel {self._run}",
            due_at=due,
        )

    @staticmethod
    def _made(
        code: str,
        item: dict[str, Any],
        since: str | None,
        detail: str,
        hint: str,
        **more: Any,  # noqa: ANN401 - fields of the reason
    ) -> Reason:
        return Reason(
            code=code,
            since=since,
            step=item["step"],
            command_id=item["command_id"],
            attempt=item["attempt"],
            detail=detail,
            hint=hint,
            **more,
        )


_RULES: Final[dict[str, Callable[[Causes, dict[str, Any]], Reason]]] = {
    "unclaimed": Causes._unclaimed,  # noqa: SLF001 - the rules of this class
    "running": Causes._running,  # noqa: SLF001 - as above
    "retry": Causes._timed,  # noqa: SLF001 - as above
    "wait": Causes._timed,  # noqa: SLF001 - as above
    "child": Causes._child,  # noqa: SLF001 - as above
    "callback": Causes._callback,  # noqa: SLF001 - as above
    "concurrency_queue": Causes._queued,  # noqa: SLF001 - as above
    "timer": Causes._timer,  # noqa: SLF001 - as above
}


def _since(state: dict[str, Any]) -> str | None:
    """Since when a breaker is open, in either way of telling it."""
    told: str | None = state.get("since") or state.get("opened_at")
    at_ms = state.get("opened_at_ms")
    if told is None and isinstance(at_ms, (int, float)):
        return rfc3339(datetime.fromtimestamp(at_ms / 1000, UTC))
    return told
