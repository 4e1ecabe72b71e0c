from noetl.cli.text import duration
from noetl.cli.tree import clock, tree
from noetl.engine import events as ev
from noetl.local.steps import Runs
from tests.unit.local.story import log, started


def shown(*entries, names=(), now=""):
    runs = Runs()
    for recorded in log(started(), *entries):
        runs.fold(recorded)
    return [line.text for line in tree(runs.root, names, now)]


def issued(step, key, index):
    return ev.CommandIssued(
        step=step, visit=1, command_key=key, kind="http", pool="shared", index=index
    )


def test_a_run_under_way():
    loop = [
        ev.StepEntered(step="post", visit=1),
        ev.LoopStarted(step="post", visit=1, total=4, mode="parallel", max_in_flight=4),
        *(issued("post", f"post/1/i{n}", n) for n in range(4)),
        ev.CommandParked(step="post", command_key="post/1/i3", attempt=1, reason="retry"),
        ev.CommandCompleted(step="post", command_key="post/1/i0"),
    ]
    lines = shown(
        ev.StepEntered(step="fetch", visit=1),
        (0.4, ev.StepExited(
            step="fetch", visit=1, outcome="COMPLETED", routing=ev.Routing(mode="exclusive")
        )),
        ev.StepSkipped(step="alarm", reason="not_taken"),
        *loop,
        names=("fetch", "post", "report"),
        now="2026-01-01T12:00:12.400000Z",
    )  # fmt: skip

    assert lines == [
        "etl/orders@3  7   RUNNING 00:12",
        " ✔ fetch                 0.4 s",
        " ▶ post                  loop  1/4  █████░░░░░░░░░░░░░░░  25 %   12.0 s   1 retried",
        " ○ report",
        " ⋯ alarm",
    ]


def test_a_failed_step_says_why():
    error = ev.Error(kind="server_error", code="503", message="oops\nand more")
    lines = shown(
        ev.StepEntered(step="fetch", visit=1),
        ev.StepProgress(step="fetch", command_key="fetch/1", attempt=1, percent=10),
        ev.StepExited(
            step="fetch", visit=1, outcome="FAILED", error=error, routing=ev.Routing(mode="x")
        ),
        ev.PlaybookFailed(error=error),
    )

    assert lines == [
        "etl/orders@3  7   FAILED 00:00",
        " ✖ fetch                 0 ms   server_error: oops\\nand more",
    ]


def test_a_step_that_runs_tells_how_far_it_is_and_its_children_by_state():
    runs = Runs()
    requests = [
        ev.ExecutionRequested(
            step="call", command_key="call/1", child_key=str(n), path="etl/notify"
        )
        for n in range(2)
    ]
    entered = ev.StepEntered(step="call", visit=1)
    progress = ev.StepProgress(step="call", command_key="call/1", attempt=1, percent=41.6)
    for recorded in log(started(), entered, progress, *requests, ev.StepEntered(step="call", visit=2), progress):  # fmt: skip  # noqa: E501 - one log
        runs.fold(recorded)
    for n, ending in enumerate([(), (ev.PlaybookCompleted(),)]):
        run = str(8 + n)
        for recorded in log(started(run, parent_execution_id="7", parent_key=str(n)), *ending, run=run):  # fmt: skip  # noqa: E501 - one log
            runs.fold(recorded)

    assert [line.text for line in tree(runs.root)] == [
        "etl/orders@3  7   RUNNING 00:00",
        " ▶ call                  42 %   0 ms   2 runs",
        "   └ etl/orders          1 completed, 1 running",
    ]


def test_durations_are_short():
    assert [duration(ms) for ms in (0, 12.4, 400, 59_900, 200_000, 5_400_000)] == [
        "0 ms", "12 ms", "0.4 s", "59.9 s", "3 min 20 s", "1 h 30 min",
    ]  # fmt: skip
    assert [clock(ms) for ms in (0, 12_000, 3_612_000)] == ["00:00", "00:12", "1:00:12"]
