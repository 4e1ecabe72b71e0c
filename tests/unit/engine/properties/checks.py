"""What must hold of every log, whatever the playbook and the schedule (engine.md, P2 to P10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.snapshot import dump, load
from noetl.engine.state import State

if TYPE_CHECKING:
    from tests.unit.engine.host import Host

CLOSING = (ev.CommandCompleted, ev.CommandFailed, ev.CommandCancelled)
# What comes from outside and may stand anywhere in the log.
OUTSIDE = (
    ev.CommandStarted, ev.StepProgress, ev.CallDone, ev.CallError, ev.CommandParked, ev.CommandLost,
    ev.CommandLate, ev.ExecutionReturned, ev.TimerFired, ev.ExecutionPaused, ev.ExecutionResumed,
    ev.CommandClaimed, ev.ExecutionAdmitted, *ev.TERMINAL,
)  # fmt: skip
CUT_SHORT = frozenset({"step_limit", "execution_timeout"})


def check_all(host: Host) -> None:
    """Every property of one finished run."""
    one_chain(host)
    one_end(host)
    commands_close_once(host)
    loops_keep_their_limits(host)
    visits_follow_arcs(host)
    joins_wait(host)
    nothing_is_decided_in_a_pause(host)
    replayed(host)


def events(host: Host, *kinds: type[ev.Event]) -> list[Any]:
    """The events of some kinds."""
    return [item.event for item in host.log if isinstance(item.event, kinds)]


def is_cut_short(host: Host) -> bool:
    """Whether the run was ended with work open: from outside, or by a limit."""
    (end,) = events(host, *ev.TERMINAL)
    if isinstance(end, ev.PlaybookCancelled) or end.by:
        return True
    return isinstance(end, ev.PlaybookFailed) and end.error.code in CUT_SHORT


def one_chain(host: Host) -> None:
    """P9: the log has no hole and no fork, and nobody changed what was written."""
    assert [item.seq for item in host.log] == list(range(1, len(host.log) + 1))
    before = [None, *(item.event_id for item in host.log)]
    assert [item.prev_event_id for item in host.log] == before[:-1]
    assert [host.encoded(item.event) for item in host.log] == host.written


def one_end(host: Host) -> None:
    """P3 and P8: one terminal event, nothing decided after it, and it tells the truth."""
    (end,) = events(host, *ev.TERMINAL)
    at = next(place for place, item in enumerate(host.log) if item.event is end)
    assert all(isinstance(item.event, OUTSIDE) for item in host.log[at + 1 :])
    if is_cut_short(host):
        return
    exits = events(host, ev.StepExited)
    unhandled = [item for item in exits if item.outcome == "FAILED" and not item.handled]
    assert isinstance(end, ev.PlaybookFailed) == bool(unhandled)
    if unhandled:
        assert end.error == unhandled[0].error
        assert set(end.failed_steps) == {item.step for item in unhandled}
        assert list(end.failed_steps) == [
            name for name in host.state.program.steps if name in end.failed_steps
        ]
    assert not host.state.live_visits
    assert not [name for name, step in host.state.steps.items() if step.is_live]
    final = host.playbook.final
    if final is not None:
        began = [
            item for item in events(host, ev.StepEntered, ev.StepSkipped) if item.step == final
        ]
        assert len(began) == 1
        left = [item for item in exits if item.step == final]
        assert len(left) == isinstance(began[0], ev.StepEntered)


def commands_close_once(host: Host) -> None:
    """P5: every command is issued once and closed once, unless the run was cut short."""
    issued = [item.command_key for item in events(host, ev.CommandIssued)]
    closed = [item.command_key for item in events(host, *CLOSING)]
    assert len(set(issued)) == len(issued)
    assert len(set(closed)) == len(closed)
    if is_cut_short(host):
        assert set(closed) <= set(issued)
    else:
        assert sorted(closed) == sorted(issued)


def loops_keep_their_limits(host: Host) -> None:
    """P4: no more iterations, frames or rows are open than may be."""
    most: dict[str, int] = {}
    rows: dict[str, int] = {}
    open_: dict[str, dict[str, ev.CommandIssued]] = {}
    for item in host.log:
        event = item.event
        if isinstance(event, ev.LoopStarted):
            most[event.step] = event.max_in_flight
            rows[event.step] = event.frame_spec.get("row_concurrency", 1)
            open_[event.step] = {}
        elif isinstance(event, ev.CommandIssued) and event.step in open_:
            open_[event.step][event.command_key] = event
            mine = open_[event.step].values()
            if event.frame is None:
                assert len(mine) <= most[event.step]
            else:
                assert len({one.frame for one in mine}) <= most[event.step]
                same = [one for one in mine if one.frame == event.frame]
                assert len(same) <= (1 if event.is_claim else rows[event.step])
        elif isinstance(event, CLOSING) and event.step in open_:
            open_[event.step].pop(event.command_key, None)


def visits_follow_arcs(host: Host) -> None:
    """P6: visits of a step never overlap, count up by one, and come again only in a cycle."""
    visits: dict[str, int] = {}
    live: set[str] = set()
    steps = host.state.program.steps
    for item in host.log:
        event = item.event
        if isinstance(event, ev.StepEntered):
            assert event.step not in live
            live.add(event.step)
            visits[event.step] = visits.get(event.step, 0) + 1
            assert event.visit == visits[event.step]
            assert event.visit == 1 or steps[event.step].cycles
        elif isinstance(event, ev.StepExited):
            assert event.step in live
            live.discard(event.step)
            assert event.visit == visits[event.step]
        elif isinstance(event, ev.StepSkipped):
            assert event.step not in live
            if event.reason == "admission":
                visits[event.step] = visits.get(event.step, 0) + 1


def joins_wait(host: Host) -> None:
    """P7: a step outside of cycles begins after all that leads to it, by the taken arcs."""
    steps = host.state.program.steps
    left: dict[str, ev.Routing | None] = {}
    for item in host.log:
        event = item.event
        if isinstance(event, (ev.StepEntered, ev.StepSkipped)) and not steps[event.step].cycles:
            plan = steps[event.step]
            if event.step not in {host.playbook.entry, host.playbook.final}:
                outside = [arc for arc in plan.incoming if not steps[arc.source].cycles]
                assert all(arc.source in left for arc in outside)
                if isinstance(event, ev.StepEntered):
                    taken = [arc.source for arc in outside if is_taken(left, arc)]
                    assert set(taken) <= set(event.from_)
                    assert event.from_
        if isinstance(event, (ev.StepExited, ev.StepSkipped)):
            left[event.step] = event.routing


def arcs_are_followed(host: Host) -> None:
    """In a tame playbook that was not stopped, every taken arc is followed by its target."""
    steps, final = host.state.program.steps, host.playbook.final
    waiting: dict[str, None] = {}
    for item in host.log:
        event = item.event
        if isinstance(event, (ev.StepEntered, ev.StepSkipped)):
            waiting.pop(event.step, None)
        if isinstance(event, (ev.StepExited, ev.StepSkipped)) and event.routing is not None:
            assert event.step not in waiting
            if event.step != final:
                taken = (arc.step for arc in event.routing.arcs if arc.taken)
                waiting |= dict.fromkeys(name for name in taken if name in steps)
    assert not waiting


def is_taken(left: dict[str, ev.Routing | None], arc: Any) -> bool:
    """Whether the last visit of an arc's source took it."""
    routing = left[arc.source]
    return routing is not None and routing.arcs[arc.place].taken


def nothing_is_decided_in_a_pause(host: Host) -> None:
    """P10: only what comes from outside is written while the run is paused."""
    is_paused = False
    for item in host.log:
        if isinstance(item.event, ev.ExecutionPaused):
            is_paused = True
        elif isinstance(item.event, (ev.ExecutionResumed, *ev.TERMINAL)):
            is_paused = False
        else:
            assert not is_paused or isinstance(item.event, OUTSIDE)


def replayed(host: Host) -> None:
    """P2: a fold of the log gives the state of the run, byte for byte, also from a snapshot."""
    program = host.state.program
    again = State(program=program)
    half = len(host.log) // 2
    for item in host.log[:half]:
        fold(again, item)
    kept = load(program, dump(again))
    assert kept is not None
    assert kept == again
    for item in host.log[half:]:
        fold(again, item)
        fold(kept, item)
    assert dump(again) == dump(kept) == dump(host.state)


def summary(host: Host) -> dict[str, Any]:
    """What every schedule of a tame playbook has to give.

    After a failure that stops the run, and inside of a loop that one failure ends, what else was
    done depends on the schedule.
    """
    state = host.state
    executor = host.playbook.executor
    policy = executor.spec.policy if executor and executor.spec else None
    is_best_effort = bool(policy and policy.failure and policy.failure.mode == "best_effort")
    if state.terminal == "FAILED" and not is_best_effort:
        return {"terminal": "FAILED"}
    if not state.forked_from:
        arcs_are_followed(host)
    steps = {}
    for name, step in sorted(state.steps.items()):
        result = step.result
        data = timeless(result.data) if result is not None and result.status == "ok" else None
        stats = result.stats if result is not None and result.status == "ok" else None
        steps[name] = (step.status, step.visit, result and result.status, data, stats)
    return {
        "terminal": state.terminal,
        "ctx": timeless(state.ctx),
        "result": timeless(state.result),
        "failed_steps": sorted(state.failed_steps),
        "steps": steps,
    }


def timeless(value: Any) -> Any:
    """A value without the moments in it."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key != "until"}
    return [timeless(item) for item in value] if isinstance(value, list) else value
