"""Events to rows: the same whether they come one by one or as a whole log."""

from __future__ import annotations

import pytest

from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.program import prepare
from noetl.engine.state import State
from noetl.store.memory.store import MemoryStore
from noetl.store.views import Past, change, digest_of
from tests.unit.engine.host import HEAD, Host, ok

ONE = "workflow:\n  - step: start\n    tool: {kind: python, code: 'return 1'}\n"


class Made:
    """A log by hand, and the change that its last events make."""

    def __init__(self, body: str = ONE, **start) -> None:
        program = prepare(read(HEAD + body, Playbook))
        self.state = State(program=program)
        self.log: list[ev.Recorded] = []
        self.row = None
        self.ids = iter(range(1000, 2000))
        self.first = ev.PlaybookStarted(
            execution_id="1", path="demo/it", version=1, catalog_id="9", workload={}, **start
        )

    def append(self, *events: ev.Event, closed=None, **past) -> object:
        before = len(self.log)
        for event in events:
            number = len(self.log) + 1
            recorded = ev.Recorded(
                execution_id="1",
                seq=number,
                event_id=str(number),
                prev_event_id=str(number - 1) if self.log else None,
                created_at=f"2026-01-01T00:00:{number:02}.000000Z",
                event=event,
            )
            self.log.append(recorded)
            fold(self.state, recorded)
        made = change(
            before,
            self.state,
            self.log[before:],
            lambda: str(next(self.ids)),
            Past(row=self.row, closed=closed or {}, **past),
        )
        self.row = made.execution
        return made


def issued(**more) -> ev.CommandIssued:
    given = {"step": "start", "visit": 1, "command_key": "start#1", "kind": "python"}
    return ev.CommandIssued(**{**given, "pool": "shared", **more})


ENTER = ev.StepEntered(step="start", visit=1)


def test_a_start_makes_the_row_of_the_run() -> None:
    made = Made(concurrency_key="k", labels={"team": "x"}, parent_execution_id="7", parent_key="c")
    found = made.append(made.first)
    assert (found.execution_id, found.expected_seq, found.events) == ("1", 0, tuple(made.log))
    row = found.execution
    assert (row.status, row.path, row.last_seq, row.last_event_id) == ("RUNNING", "demo/it", 1, "1")
    assert (row.concurrency_key, row.labels, row.parent_execution_id, row.parent_key) == (
        "k", {"team": "x"}, "7", "c",
    )  # fmt: skip
    assert row.started_at == row.updated_at == "2026-01-01T00:00:01.000000Z"
    assert found.outgoing == found.commands == found.timers == ()


def test_a_command_is_a_row_through_all_its_states() -> None:
    made = Made()
    (row,) = made.append(made.first, ENTER, issued(priority=8)).commands
    assert (row.command_id, row.command_key, row.status, row.priority, row.available_at) == (
        "3", "start#1", "PENDING", 8, "2026-01-01T00:00:03.000000Z",
    )  # fmt: skip
    key = {"step": "start", "command_key": "start#1"}
    claim = ev.CommandClaimed(**key, worker_id="w", attempt=1, lease_until="L")
    (row,) = made.append(claim).commands
    assert (row.status, row.worker_id, row.lease_until, row.started_at) == (
        "CLAIMED", "w", "L", None,
    )  # fmt: skip
    (row,) = made.append(ev.CommandStarted(**key, attempt=1)).commands
    assert (row.status, row.started_at) == ("CLAIMED", "2026-01-01T00:00:05.000000Z")
    (row,) = made.append(ev.CallDone(**key, attempt=1)).commands
    assert (row.status, row.lease_until) == ("CLAIMED", None)
    closed = {"start#1": made.state.commands["start#1"]}
    (row,) = made.append(ev.CommandCompleted(**key), closed=closed).commands
    assert (row.command_id, row.status, row.worker_id) == ("3", "COMPLETED", None)


def test_a_lost_command_is_pending_again_and_a_parked_one_is_not() -> None:
    made = Made()
    key = {"step": "start", "command_key": "start#1"}
    made.append(made.first, ENTER, issued())
    made.append(ev.CommandClaimed(**key, worker_id="w", attempt=1, lease_until="L"))
    (row,) = made.append(ev.CommandLost(**key, attempt=1)).commands
    assert (row.status, row.attempt, row.losses, row.worker_id, row.available_at) == (
        "PENDING", 2, 1, None, "2026-01-01T00:00:05.000000Z",
    )  # fmt: skip
    made.append(ev.CommandClaimed(**key, worker_id="w", attempt=2, lease_until="L"))
    parked = ev.CommandParked(
        **key, attempt=2, reason="callback", checkpoint={"task": "a"}, callback_key="secret"
    )
    found = made.append(parked)
    assert [(item.status, item.checkpoint) for item in found.commands] == [
        ("PARKED", {"task": "a"}),
    ]
    assert found.callbacks == {digest_of("secret"): "3"}
    assert "secret" not in digest_of("secret")


def test_timers_come_and_go() -> None:
    made = Made()
    set_ = ev.TimerSet(timer_key="t", kind="wait", due_at="D")
    (timer,) = made.append(made.first, set_).timers
    assert (timer.execution_id, timer.timer_key, timer.kind, timer.due_at) == (
        "1",
        "t",
        "wait",
        "D",
    )
    assert made.append(ev.TimerFired(timer_key="t")).timers_gone == ("t",)
    found = made.append(set_, ev.TimerCancelled(timer_key="t"))
    assert (found.timers, found.timers_gone) == ((), ("t",))
    found = made.append(ev.TimerCancelled(timer_key="t"), set_)
    assert ([item.timer_key for item in found.timers], found.timers_gone) == (["t"], ())


def test_a_request_goes_out_and_an_end_tells_parent_children_and_key() -> None:
    made = Made(parent_execution_id="7", parent_key="c", concurrency_key="k")
    key = {"step": "start", "command_key": "start#1"}
    ask = ev.ExecutionRequested(**key, child_key="start#1/c0", path="demo/child", workload={"n": 1})
    quiet = ev.ExecutionRequested(**key, child_key="start#1/c1", path="x", is_awaited=False)
    found = made.append(made.first, ENTER, issued(pool=None), ask, quiet)
    assert [item.kind for item in found.outgoing] == ["start_child", "start_child"]
    first = found.outgoing[0]
    assert (first.execution_id, first.outgoing_id) == ("1", "1000")
    assert (first.payload["child_key"], first.payload["path"], first.payload["workload"]) == (
        "start#1/c0", "demo/child", {"n": 1},
    )  # fmt: skip
    found = made.append(ev.PlaybookCancelled())
    assert [(item.kind, item.payload) for item in found.outgoing] == [
        ("cancel_child", {"child_key": "start#1/c0"}),
        ("return", {"parent_execution_id": "7", "child_key": "c", "event_id": "6"}),
        ("admit", {"key": "k"}),
    ]
    assert (found.execution.status, found.execution.completed_at) == (
        "CANCELLED", "2026-01-01T00:00:06.000000Z",
    )  # fmt: skip


def test_an_end_may_spare_the_children() -> None:
    made = Made()
    key = {"step": "start", "command_key": "start#1"}
    ask = ev.ExecutionRequested(**key, child_key="c", path="demo/child")
    made.append(made.first, ENTER, issued(pool=None), ask)
    assert made.append(ev.PlaybookCancelled(), spares_children=True).outgoing == ()


def test_a_withdrawn_command_takes_its_child_with_it() -> None:
    made = Made()
    key = {"step": "start", "command_key": "start#1"}
    ask = ev.ExecutionRequested(**key, child_key="c", path="demo/child")
    made.append(made.first, ENTER, issued(pool=None), ask)
    closed = dict(made.state.commands)
    found = made.append(ev.CommandCancelled(**key, reason="step_timeout"), closed=closed)
    assert [(item.kind, item.payload) for item in found.outgoing] == [
        ("cancel_child", {"child_key": "c"}),
    ]
    assert [item.status for item in found.commands] == ["CANCELLED"]


def test_a_run_without_a_past_is_refused() -> None:
    made = Made()
    made.append(made.first)
    made.row = None
    with pytest.raises(ValueError, match="neither a start nor a row before"):
        made.append(ev.ExecutionPaused())


async def test_a_whole_log_is_loaded_at_once() -> None:
    host = Host(
        "workflow:\n"
        "  - step: start\n"
        "    loop: {in: 5, iterator: n, spec: {mode: parallel, max_in_flight: 2}}\n"
        "    tool: {kind: python, code: 'return 1'}\n",
        lambda _: ok(1),
    ).run()
    ids = iter(range(1000, 2000))
    made = change(0, host.state, host.log, lambda: str(next(ids)))
    assert (made.execution.status, made.execution.last_seq) == ("COMPLETED", len(host.log))
    assert {row.status for row in made.commands} == {"COMPLETED"}
    assert len(made.commands) == 5
    store = MemoryStore()
    assert await store.log.commit([made]) == frozenset()
    assert await store.log.read("1") == host.log
    assert (await store.executions.get("1")) == made.execution


def test_a_child_that_is_waited_for_too_long_is_cancelled_and_its_successor_is_not() -> None:
    made = Made()
    ask = {"step": "start", "command_key": "start#1", "path": "demo/child"}
    made.append(
        made.first,
        issued(pool=None),
        ev.ExecutionRequested(**ask, child_key="start#1/c0"),
        ev.TimerSet(timer_key="park_deadline:start#1", kind="park_deadline", due_at="2026"),
    )
    change_ = made.append(
        ev.TimerFired(timer_key="park_deadline:start#1"),
        ev.ExecutionRequested(**ask, child_key="start#1/c0~2"),
    )
    assert [(item.kind, item.payload["child_key"]) for item in change_.outgoing] == [
        ("start_child", "start#1/c0~2"), ("cancel_child", "start#1/c0"),
    ]  # fmt: skip
