"""Forks, snapshots and rows: a state as data and back."""

from __future__ import annotations

import json

import pytest

from noetl.dsl.views import Reference
from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.rows import InvalidRow, from_row, to_row
from noetl.engine.snapshot import as_data, dump, from_data, load
from noetl.engine.state import State
from tests.unit.engine.forking import snapshot_at
from tests.unit.engine.host import Host, boom, ok

BODY = """
workload: {n: 2}
workflow:
  - step: start
    tool: {kind: python, code: "1"}
    set: {ctx.a: "{{ (ctx.a | default(0)) + 1 }}"}
    next: {arcs: [{step: loop}]}
  - step: loop
    loop: {in: [1, 2, 3], iterator: i, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: python, code: "1"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: python, code: "1"}, set: {ctx.b: "{{ loop | length }}"}}
"""


def tools(command: ev.CommandIssued) -> object:
    return ok({"key": command.command_key})


def is_entry(item: ev.Recorded, step: str) -> bool:
    return isinstance(item.event, ev.StepEntered) and item.event.step == step


def forked(source: Host, seq: int, **overrides: object) -> Host:
    host = Host(BODY, tools, forked_from={"execution_id": "1", "seq": seq})
    snapshot = json.loads(json.dumps(snapshot_at(source.state.program, source.log, seq)))
    host.append(ev.StateRestored(source={"execution_id": "1"}, snapshot=snapshot,
                                 overrides=overrides))  # fmt: skip
    return host.run()


def test_a_fork_at_any_position_reaches_the_same_result() -> None:
    source = Host(BODY, tools).run()
    for seq in range(1, len(source.log)):
        host = forked(source, seq)
        assert host.state.terminal == "COMPLETED", seq
        assert (host.state.ctx, host.state.result) == (source.state.ctx, source.state.result), seq


def test_a_fork_from_the_failed_step_runs_only_what_follows_with_the_edited_values() -> None:
    def broken(command: ev.CommandIssued) -> object:
        return boom() if command.step == "end" else tools(command)

    source = Host(BODY, broken).run()
    before = [to_row(item) for item in source.log]
    seq = max(item.seq for item in source.log if is_entry(item, "end")) - 1
    host = forked(source, seq, ctx={"a": 40}, results={"loop": [9]}, workload={"n": 5})
    assert host.calls == ["end#1"]
    assert (host.state.terminal, host.state.ctx) == ("COMPLETED", {"a": 40, "b": 1})
    assert [to_row(item) for item in source.log] == before


def test_a_snapshot_is_the_state_at_every_position() -> None:
    source = Host(BODY, tools).run()
    state = State(program=source.state.program)
    for item in source.log:
        fold(state, item)
        assert load(state.program, dump(state)) == state
        assert from_data(state.program, json.loads(json.dumps(as_data(state)))) == state


def test_a_snapshot_of_another_engine_is_not_used() -> None:
    source = Host(BODY, tools).run()
    other = dump(source.state).replace(b"\xaeengine_version\x01", b"\xaeengine_version\x02")
    assert other != dump(source.state)
    assert load(source.state.program, other) is None


def test_a_map_that_looks_like_a_mark_stays_what_it_is() -> None:
    host = Host(BODY, tools)
    ref = Reference(ref="noetl://x", store="disk")
    host.state.ctx = {
        "a": {"$reference": 1},
        "b": {"$plain": {}},
        "c": ref,
        "d": {"$reference": {}},
    }
    assert from_data(host.state.program, json.loads(json.dumps(as_data(host.state)))) == host.state


def test_every_event_of_a_run_is_a_row_and_back() -> None:
    source = Host(BODY, tools).run()
    for item in source.log:
        row = json.loads(json.dumps(to_row(item)))
        assert from_row(row) == item
        assert row["step"] == row["node_name"]
        assert row["status"]
        if "result" in row:
            assert row["result"].keys() <= {"status", "context", "reference"}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, "no event"),
        ({"event_type": "nothing.known"}, "nothing.known"),
        ({"event_type": "timer.fired", "seq": 1}, "no event"),
        ({"event_type": "timer.fired", "context": {"timer_key": 3}}, "no event"),
    ],
)
def test_a_row_that_is_no_event_is_refused(row: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidRow, match=told):
        from_row(row)


def test_older_names_and_words_are_read() -> None:
    row = {
        "execution_id": "1", "seq": 2, "event_id": "2", "prev_event_id": "1",
        "created_at": "2026-01-01T00:00:00Z", "event_type": "playbook_cancelled",
        "status": "cancelled",
    }  # fmt: skip
    assert from_row(row).event == ev.PlaybookCancelled()
    renamed = {**row, "event_type": "step.exit", "node_name": "a", "status": "success",
               "meta": {"visit": 1}, "context": {"routing": {"mode": "exclusive"}}}  # fmt: skip
    event = from_row(renamed).event
    assert isinstance(event, ev.StepExited)
    assert (event.outcome, event.step) == ("COMPLETED", "a")
