"""What holds for any playbook and any schedule (engine.md: P1 to P10), over generated cases."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.program import prepare
from noetl.engine.state import State
from tests.unit.engine.host import Host, boom, ok

CASES = settings(
    max_examples=700,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SEEDS = st.integers(0, 2**32)
MOST_VISITS = 60
CLOSING = (ev.CommandCompleted, ev.CommandFailed, ev.CommandCancelled)


def playbook(chance: random.Random) -> str:
    """A random workflow: branches, joins, cycles with a counter, loops, admissions, handlers."""
    names = [f"s{index}" for index in range(chance.randint(1, 7))]
    steps = [step(chance, names, index) for index in range(len(names))]
    policy: dict[str, Any] = {"limits": {"max_steps": MOST_VISITS}}
    if chance.random() < 0.3:
        policy["failure"] = {"mode": "best_effort"}
    document = {
        "workload": {"on": chance.random() < 0.5},
        "executor": {"spec": {"policy": policy}},
        "workflow": steps,
    }
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items())


def step(chance: random.Random, names: list[str], index: int) -> dict[str, Any]:
    """One step, with arcs to later steps and sometimes a counted arc back."""
    made: dict[str, Any] = {"step": names[index]}
    if chance.random() < 0.7:
        made["tool"] = {"kind": "python", "code": "1"}
    if chance.random() < 0.25:
        made |= looped(chance)
    elif chance.random() < 0.1:
        made["spec"] = {"policy": {"admit": chance.choice([True, False, "{{ workload.on }}"])}}
    arcs = [arc(chance, target) for target in names[index + 1 :] if chance.random() < 0.5]
    if chance.random() < 0.25:
        counter = f"n{index}"
        made["set"] = {f"ctx.{counter}": f"{{{{ (ctx.{counter} | default(0)) + 1 }}}}"}
        back = chance.choice(names[: index + 1])
        arcs.insert(0, {"step": back, "when": f"{{{{ ctx.{counter} < 3 }}}}"})
    if arcs:
        mode = chance.choice(["exclusive", "inclusive"])
        made["next"] = {"spec": {"mode": mode}, "arcs": arcs}
    return made


def looped(chance: random.Random) -> dict[str, Any]:
    """A loop of a few items, its tool, and what a failure does."""
    mode = chance.choice(["sequential", "parallel"])
    spec = {"mode": mode, "max_in_flight": chance.randint(1, 3)}
    made: dict[str, Any] = {
        "loop": {"in": chance.randint(0, 4), "iterator": "i", "spec": spec},
        "tool": {"kind": "python", "code": "1"},
    }
    if chance.random() < 0.5:
        made["spec"] = {"policy": {"failure": {"mode": "best_effort"}}}
    return made


def arc(chance: random.Random, target: str) -> dict[str, Any]:
    """An arc with a condition or a failure to wait for, sometimes."""
    made: dict[str, Any] = {"step": target}
    if chance.random() < 0.4:
        made["when"] = chance.choice([True, False, "{{ workload.on }}", "{{ not workload.on }}"])
    if chance.random() < 0.25:
        made["on"] = chance.choice(["success", "error", "any"])
    return made


def outcome(command: ev.CommandIssued, seed: int, share: float) -> Any:
    """What a tool gives depends on its command alone, so that every schedule sees the same."""
    chance = random.Random(f"{seed}/{command.command_key}")
    return boom() if chance.random() < share else ok({"v": command.command_key})


def scheduled(body: str, seed: int, order: random.Random, share: float) -> Host:
    """Run to the end with commands finished in a random order."""
    host = Host(body, lambda command: outcome(command, seed, share))
    host.settle()
    while host.open:
        host.report(host.open.pop(order.randrange(len(host.open))))
    return host


def finals(host: Host) -> list[ev.Event]:
    return [item.event for item in host.log if isinstance(item.event, ev.TERMINAL)]


def is_bounded(host: Host) -> bool:
    """Whether the run was ended by the limit of its visits; open work is then dropped with it."""
    return isinstance(host.last, ev.PlaybookFailed) and host.last.error.code == "step_limit"


@CASES
@given(SEEDS)
def test_every_run_ends_once_and_never_lies(seed: int) -> None:
    chance = random.Random(seed)
    body = playbook(chance)
    host = scheduled(body, seed, random.Random(seed + 1), chance.choice([0.0, 0.3]))
    ends = finals(host)
    assert len(ends) == 1
    exits = [item.event for item in host.log if isinstance(item.event, ev.StepExited)]
    unhandled = [item for item in exits if item.outcome == "FAILED" and not item.handled]
    failed = isinstance(ends[0], ev.PlaybookFailed)
    assert failed == (bool(unhandled) or is_bounded(host))
    assert host.last is ends[0]


@CASES
@given(SEEDS)
def test_the_log_is_one_chain_and_every_command_closes_once(seed: int) -> None:
    chance = random.Random(seed)
    host = scheduled(playbook(chance), seed, random.Random(seed + 1), chance.choice([0.0, 0.3]))
    assert [item.seq for item in host.log] == list(range(1, len(host.log) + 1))
    issued = [item.event.command_key for item in host.log
              if isinstance(item.event, ev.CommandIssued)]  # fmt: skip
    closed = [item.event.command_key for item in host.log if isinstance(item.event, CLOSING)]
    assert len(set(issued)) == len(issued)
    assert sorted(issued) == sorted(closed) or is_bounded(host)


@CASES
@given(SEEDS)
def test_a_loop_never_has_more_open_than_it_may(seed: int) -> None:
    chance = random.Random(seed)
    host = scheduled(playbook(chance), seed, random.Random(seed + 1), chance.choice([0.0, 0.3]))
    open_: dict[str, int] = {}
    most: dict[str, int] = {}
    for item in host.log:
        event = item.event
        if isinstance(event, ev.LoopStarted):
            most[event.step] = event.max_in_flight
        elif isinstance(event, ev.CommandIssued) and event.index is not None:
            open_[event.step] = open_.get(event.step, 0) + 1
            assert open_[event.step] <= most[event.step]
        elif isinstance(event, CLOSING) and "/i" in event.command_key:
            open_[event.step] -= 1


@CASES
@given(SEEDS)
def test_an_incremental_fold_equals_a_fold_from_zero(seed: int) -> None:
    chance = random.Random(seed)
    body = playbook(chance)
    host = Host(body, lambda command: outcome(command, seed, 0.2))
    program = host.state.program
    order = random.Random(seed + 1)

    def same() -> None:
        again = State(program=program)
        for item in host.log:
            fold(again, item)
        assert again == host.state

    host.settle()
    same()
    while host.open:
        host.report(host.open.pop(order.randrange(len(host.open))))
        same()


@CASES
@given(SEEDS)
def test_duplicated_and_late_reports_change_nothing(seed: int) -> None:
    chance = random.Random(seed)
    body = playbook(chance)
    once = scheduled(body, seed, random.Random(7), 0.2)
    host = Host(body, lambda command: outcome(command, seed, 0.2))
    order = random.Random(7)
    host.settle()
    reports: list[ev.Event] = []
    while host.open:
        host.report(host.open.pop(order.randrange(len(host.open))))
        reports += [item.event for item in host.log[-40:]
                    if isinstance(item.event, (ev.CallDone, ev.CallError))]  # fmt: skip
        if host.state.terminal is None:
            before = copy.copy(host.state.agenda)
            again = chance.choice(reports)
            host.append(again)
            assert host.state.agenda == before
    assert host.state.terminal == once.state.terminal
    assert host.state.ctx == once.state.ctx
    assert host.state.result == once.state.result


@CASES
@given(SEEDS)
def test_a_step_is_entered_again_only_by_a_back_arc(seed: int) -> None:
    chance = random.Random(seed)
    host = scheduled(playbook(chance), seed, random.Random(seed + 1), 0.0)
    back = {arc.target for arc in prepare(host.playbook).arcs if arc.is_back}
    cyclic = {name for name, plan in host.state.program.steps.items() if plan.in_cycle}
    for name in host.state.program.steps:
        entered = host.rows.count(f"step.enter({name})")
        assert entered <= 1 or name in back or name in cyclic
