from noetl.engine import events as ev
from noetl.local.steps import Runs
from tests.unit.local.story import log, started

ROUTING = ev.Routing(mode="exclusive")
OOPS = ev.Error(kind="server_error", code="503", message="oops", step="post")


def issued(step, key, **more):
    return ev.CommandIssued(step=step, visit=1, command_key=key, kind="http", pool="shared", **more)


def done(step, key, *tasks, **more):
    return ev.CallDone(step=step, command_key=key, attempt=1, tasks=tasks, **more)


def closed(step, key):
    return ev.CommandCompleted(step=step, command_key=key)


def exited(step, outcome="COMPLETED", **more):
    more = {"routing": ROUTING} | more
    return ev.StepExited(step=step, visit=1, outcome=outcome, **more)


def entered(step, visit=1, **more):
    return ev.StepEntered(step=step, visit=visit, **more)


def told(*entries):
    runs = Runs()
    for recorded in log(started(), *entries):
        runs.fold(recorded)
    return runs.root


def test_a_run_with_a_loop_and_a_retry_reads_as_the_command_line_shows_it():
    run = told(
        entered("fetch"),
        issued("fetch", "fetch/1"),
        (0.012, done("fetch", "fetch/1", {"try": 1})),
        closed("fetch", "fetch/1"),
        exited("fetch", result={"rows": 2}),
        ev.StepSkipped(step="alarm", reason="not_taken"),
        entered("post"),
        ev.LoopStarted(step="post", visit=1, total=2, mode="parallel", max_in_flight=2),
        issued("post", "post/1/i0", index=0),
        issued("post", "post/1/i1", index=1),
        ev.CommandParked(step="post", command_key="post/1/i1", attempt=1, reason="retry"),
        done("post", "post/1/i0", {"try": 1}),
        closed("post", "post/1/i0"),
        done("post", "post/1/i1", {"try": 1}, {"try": 2}),
        closed("post", "post/1/i1"),
        ev.LoopDone(step="post", visit=1, outcome="COMPLETED", stats={}, result=[{"ok": True}] * 2),
        (0.088, exited("post")),
        ev.PlaybookCompleted(result={"posted": 2}),
    )

    assert (run.status, run.result, round(run.duration_ms)) == ("COMPLETED", {"posted": 2}, 100)
    assert {name: step.as_json() for name, step in run.steps.items()} == {
        "fetch": {
            "status": "COMPLETED", "runs": 1, "attempts": 1, "duration_ms": 12,
            "result": {"rows": 2}, "error": None,
        },
        "alarm": {
            "status": "SKIPPED", "runs": 0, "attempts": 0, "duration_ms": 0,
            "result": None, "error": None,
        },
        "post": {
            "status": "COMPLETED", "runs": 1, "attempts": 3, "duration_ms": 88,
            "result": [{"ok": True}, {"ok": True}], "error": None,
        },
    }  # fmt: skip
    assert (run.steps["post"].done, run.steps["post"].retried) == (2, 1)


def test_a_lost_worker_is_an_attempt_and_a_wait_is_none():
    run = told(
        entered("ask"),
        issued("ask", "ask/1"),
        ev.CommandLost(step="ask", command_key="ask/1", attempt=1),
        ev.CommandParked(
            step="ask", command_key="ask/1", attempt=2, reason="retry", request={"wait_ms": 5}
        ),
        ev.CommandParked(step="ask", command_key="ask/1", attempt=2, reason="child"),
        done("ask", "ask/1"),
    )

    assert run.steps["ask"].attempts == 2


def test_a_failed_run_tells_the_step_and_ends_what_was_open():
    run = told(
        entered("post"),
        entered("slow"),
        (1, exited("post", "FAILED", error=OOPS)),
        (1, ev.PlaybookFailed(error=OOPS, failed_steps=("post",), result={"part": 1})),
        entered("never"),
    )

    assert (run.status, run.error["step"], run.result) == ("FAILED", "post", {"part": 1})
    assert {name: step.status for name, step in run.steps.items()} == {
        "post": "FAILED", "slow": "CANCELLED",
    }  # fmt: skip
    assert run.steps["slow"].duration_ms == 2000


def test_a_cancelled_run_keeps_its_reason():
    run = told(entered("post"), ev.PlaybookCancelled(by="cli", reason="timeout"))

    assert (run.status, run.reason, run.is_terminal) == ("CANCELLED", "timeout", True)


def test_a_step_that_ran_before_is_not_skipped_afterwards():
    run = told(
        entered("turn"), exited("turn"), entered("turn", 2), exited("turn"),
        ev.StepSkipped(step="turn", reason="dead_path"),
    )  # fmt: skip

    assert (run.steps["turn"].status, run.steps["turn"].runs) == ("COMPLETED", 2)
    assert run.steps["turn"].as_json()["attempts"] == 2


def test_arcs_that_were_taken_are_known():
    arcs = (ev.ArcTaken(step="b", on="success"), ev.ArcTaken(step="c", on="success", taken=True))
    routing = ev.Routing(mode="exclusive", arcs=arcs)
    run = told(
        entered("a"), exited("a", routing=routing),
        ev.StepSkipped(step="d", reason="admission", routing=routing),
    )  # fmt: skip

    assert run.arcs == {("a", 1), ("d", 1)}


def test_progress_is_shown_until_the_step_is_entered_again():
    told_progress = ev.StepProgress(step="a", command_key="a/1", attempt=1, percent=40.0)

    assert told(entered("a"), told_progress).steps["a"].percent == 40
    assert told(entered("a"), told_progress, entered("a", 2)).steps["a"].percent is None


def test_children_stand_under_the_step_that_asked_for_them():
    runs = Runs()
    request = ev.ExecutionRequested(
        step="call", command_key="call/1", child_key="call/1/0", path="etl/notify"
    )
    for recorded in log(started(), entered("call"), request):
        runs.fold(recorded)
    for recorded in log(started("8", parent_execution_id="7", parent_key="call/1/0"), run="8"):
        runs.fold(recorded)
    for recorded in log(started("9", parent_execution_id="1", parent_key="x"), run="9"):
        runs.fold(recorded)

    assert runs.root.execution_id == "7"
    assert [child.execution_id for child in runs.root.steps["call"].children] == ["8"]


def test_an_event_of_an_unknown_run_changes_nothing():
    runs = Runs()

    assert runs.fold(log(started(), entered("a"))[1]) is None
    assert runs.root is None
