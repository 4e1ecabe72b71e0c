"""Cursor loops: claims, frames, rows, lanes, and what a failure of each does."""

from __future__ import annotations

import pytest

from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook
from noetl.engine import events as ev
from noetl.engine.cursor import claim_step
from tests.unit.engine.host import HEAD, Host, boom, ok


def body(frame: str = "{max_rows: 2}", more: str = "", policy: str = "") -> str:
    return f"""
workload: {{state: new}}
workflow:
  - step: start
    loop:
      iterator: job
      cursor: {{kind: sqlite, path: jobs.db, claim: "select {{{{ __frame_max_rows }}}}" {more}}}
      spec: {{mode: cursor, max_in_flight: 2, frame: {frame}}}
    tool: {{kind: python, input: {{j: "{{{{ job }}}}"}}, code: "result = j"}}
    {policy}
"""


class Source:
    """Rows that claims take, and bodies that may fail."""

    def __init__(self, rows: list[int], frame: int = 2, broken: tuple[int, ...] = ()) -> None:
        self.rows = list(rows)
        self.frame = frame
        self.broken = list(broken)
        self.done: list[int] = []

    def __call__(self, command: ev.CommandIssued) -> object:
        if command.is_claim:
            taken, self.rows = self.rows[: self.frame], self.rows[self.frame :]
            return ok({"rows": taken, "row_count": len(taken), "columns": ["id"]})
        item = command.bindings["iter"]["item"]
        if item in self.broken:
            self.broken.remove(item)
            return boom(f"row {item}")
        self.done.append(item)
        return ok(item)


def test_a_cursor_is_drained_frame_by_frame() -> None:
    source = Source([1, 2, 3, 4, 5])
    host = Host(body(), source).run()
    assert host.state.terminal == "COMPLETED"
    assert host.state.result["cursor"] == "drained"
    assert host.state.result["rows"] == 5
    assert sorted(source.done) == [1, 2, 3, 4, 5]
    assert host.state.steps["start"].result.stats == {"total": 5, "success": 5, "failed": 0}
    assert host.rows[1:7] == [
        "step.enter(start)", "loop.started(start)", "frame.dispatched(start)",
        "command.issued(start)", "frame.dispatched(start)", "command.issued(start)",
    ]  # fmt: skip


def test_an_empty_source_is_drained_at_once() -> None:
    host = Host(body(), Source([])).run()
    assert host.state.result == {"cursor": "drained", "frames": 2, "rows": 0}


def test_no_more_frames_and_rows_are_open_than_may_be() -> None:
    host = Host(body("{max_rows: 4, row_concurrency: 2}"), Source(list(range(12)), frame=4))
    host.settle()
    while host.open:
        claims = [c for c in host.state.commands.values() if c.issued.is_claim]
        frames: dict[int, int] = {}
        for command in host.state.commands.values():
            if not command.issued.is_claim:
                frames[command.frame] = frames.get(command.frame, 0) + 1
        assert len(claims) + len(frames) <= 2
        assert all(count <= 2 for count in frames.values())
        host.report(host.open.pop())
    assert host.state.terminal == "COMPLETED"


def test_failed_rows_are_tried_again_and_the_others_are_not() -> None:
    source = Source([1, 2], broken=(2,))
    host = Host(body(), source).run()
    assert host.state.terminal == "COMPLETED"
    assert source.done == [1, 2]
    assert "frame.failed(start)" in host.rows
    assert "start#1/f0~2/i1" in host.calls


def test_a_whole_frame_is_tried_again_when_so_written() -> None:
    source = Source([1, 2], broken=(2,))
    Host(body("{max_rows: 2, retry_mode: whole_frame}"), source).run()
    assert source.done == [1, 1, 2]


def test_rows_that_fail_for_good_fail_the_step_or_are_counted() -> None:
    host = Host(body(), Source([1, 2, 3, 4, 5], broken=(2, 2, 2))).run()
    assert (host.state.terminal, host.state.failure.message) == ("FAILED", "row 2")
    policy = "spec: {policy: {failure: {mode: best_effort}}}"
    good = Host(body(policy=policy), Source([1, 2, 3], broken=(2, 2, 2))).run()
    assert good.state.terminal == "COMPLETED"
    assert good.state.steps["start"].result.stats == {"total": 3, "success": 2, "failed": 1}


def test_a_claim_that_fails_is_tried_again_then_fails_the_step() -> None:
    def broken(command: ev.CommandIssued) -> object:
        return boom("no database") if command.is_claim else ok(1)

    host = Host(body("{max_rows: 1, max_attempts: 2}"), broken).run()
    assert (host.state.terminal, host.state.failure.message) == ("FAILED", "no database")
    assert host.calls.count("start#1/f0") == host.calls.count("start#1/f0~2") == 1


def test_a_frame_as_a_whole_is_one_body_with_all_rows() -> None:
    seen: list[object] = []

    def tools(command: ev.CommandIssued) -> object:
        if command.is_claim:
            return ok({"rows": [1, 2] if command.frame == 0 else []})
        seen.append(command.bindings["frame"]["rows"])
        return ok(1)

    host = Host(body("{max_rows: 2, process: frame}"), tools).run()
    assert (seen, host.state.result["rows"]) == ([[1, 2]], 2)


def test_a_cursor_that_never_ends_is_stopped() -> None:
    endless = Source(list(range(1000)), frame=1)
    host = Host(body("{max_rows: 1}", more=", options: {max_iterations: 5}"), endless).run()
    assert (host.state.terminal, host.state.failure.code) == ("FAILED", "cursor_limit")


def test_a_frame_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    host = Host(body("{max_rows: 2, max_seconds: 30}"), Source([1, 2]))
    host.settle()
    host.report(host.open.pop(0))
    host.fire("frame:start#1/f0")
    assert "frame.failed(start)" in host.rows
    assert host.run().state.terminal == "COMPLETED"


def test_a_loop_that_is_ending_waits_for_the_frames_that_are_still_open() -> None:
    text = body("{max_rows: 1, max_attempts: 1}").replace("max_in_flight: 2", "max_in_flight: 3")
    host = Host(text, Source([1, 2, 3, 4], frame=1))
    host.settle()
    for _ in range(3):
        host.report(host.open.pop(0))
    keys = [command.key for command in host.state.commands.values()]
    named = [{"step": "start", "command_key": key, "attempt": 1} for key in keys]
    host.append(
        *(ev.CommandClaimed(**one, worker_id="w") for one in named),
        ev.ExecutionPaused(),
        ev.CallDone(**named[0], result=1),
        ev.CallError(**named[1], error=boom()),
        ev.ExecutionResumed(),
    )
    host.settle()
    assert "loop.done(start)" not in host.rows
    host.post(ev.CallDone(**named[2], result=1))
    assert host.state.terminal == "FAILED"
    assert host.state.steps["start"].result.stats == {"total": 3, "success": 2, "failed": 1}


def test_a_body_may_end_the_loop() -> None:
    def tools(command: ev.CommandIssued) -> object:
        return ok({"rows": [1, 2]}) if command.is_claim else ok(1, ends_loop=True)

    host = Host(body(), tools).run()
    assert host.state.terminal == "COMPLETED"
    assert host.state.result["rows"] <= 4


@pytest.mark.parametrize(
    ("cursor", "kind", "part"),
    [
        ("{kind: sqlite, path: a.db, claim: select 1}", "sqlite", ("path", "a.db")),
        ("{kind: duckdb, database: a.duckdb, claim: select 1}", "duckdb", ("database", "a.duckdb")),
        ("{kind: postgres, auth: pg, claim: select 1}", "postgres", ("auth", "pg")),
        ("{kind: nats, auth: n, stream: S, consumer: c}", "nats", ("stream", "S")),
    ],
)
def test_the_claim_is_a_step_with_the_tool_of_its_kind(
    cursor: str, kind: str, part: tuple[str, str]
) -> None:
    text = f"""
workflow:
  - step: start
    loop: {{iterator: j, cursor: {cursor}}}
    tool: {{kind: noop}}
"""
    step = claim_step(read(HEAD + text, Playbook).workflow[0])
    assert [task.kind for task in step.tools] == [kind]
    assert getattr(step.tools[0], part[0]) == part[1]
    assert step.loop is None
