"""A step's list of tools, driven to its end."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.dsl.parse import read
from noetl.dsl.playbook import Playbook, Step
from noetl.dsl.views import Outcome
from noetl.engine.events import Error
from noetl.engine.pipeline import Done, Failed, Park, Pipeline, RunTask

HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
keychain: [{name: k, kind: credential, credential: k}]
"""
REFUSED: dict[str, Any] = {
    "kind": "connection",
    "code": "CONN_REFUSED",
    "message": "refused",
    "retryable": True,
}
DOWN = Outcome(status="error", error=REFUSED)
GONE = Outcome(
    status="error",
    data={"body": "gone"},
    error={
        "kind": "not_found",
        "code": "HTTP_404",
        "message": "gone",
        "retryable": False,
        "status_code": 404,
        "details": {"url": "u"},
    },
    http={"status": 404, "headers": {}},
)


def ok(data: object = None) -> Outcome:
    return Outcome(data=data)


def step_of(tool: str, more: str = "", head: str = HEAD) -> Step:
    """A step with this tool, in flow-style YAML."""
    text = f"{head}workflow:\n- step: s\n  tool: {tool}\n{more}"
    return read(text, Playbook).workflow[0]


def pipeline(step: Step, bindings: Mapping[str, Any] | None = None, **more: Any) -> Pipeline:
    ids = {"execution_id": "81", "command_key": "s#1", "idempotency_key": "81/s/-/1"}
    return Pipeline(step, bindings or {}, **(ids | more))


def single(policy: str, more: str = "") -> Step:
    return step_of(f"{{kind: http, url: u, {more} spec: {{{policy}}}}}")


def rules(text: str) -> str:
    return f"policy: {{rules: [{text}]}}"


class Script:
    """Gives prepared outcomes in order and remembers what was asked for."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.waiting = list(outcomes)
        self.runs: list[RunTask] = []
        self.delays: list[int] = []

    def drive(self, pipe: Pipeline) -> Done | Failed:
        while True:
            match pipe.next():
                case RunTask() as run:
                    self.runs.append(run)
                    pipe.report(self.waiting.pop(0))
                case Park() as park:
                    self.delays.append(park.delay_ms)
                case end:
                    assert self.waiting == []
                    return end


def entry(name: str, attempt: int, status: str, rule: str = "", kind: str = "http") -> dict:
    made = {"name": name, "kind": kind, "try": attempt, "status": status}
    return made | ({"rule": rule} if rule else {})


def done(result: object, *tasks: dict, **more: Any) -> Done:
    empty: dict[str, Any] = {"ctx": {}, "iter": {}, "of_step": {}, "ends_loop": False}
    return Done(result=result, tasks=tasks, **(empty | more))


# ---------------------------------------------------------------------------- a single tool


def test_a_single_tool_gives_its_data() -> None:
    step = step_of(
        "{kind: noop, name: t, result: '{{ a }}', input: {b: '{{ a }}', c: 3}, timeout: 7}",
        "  input: {a: '{{ workload.n }}', b: under}\n",
    )
    script = Script(ok({"x": 1}))
    assert script.drive(pipeline(step, {"workload": {"n": 5}})) == done(
        {"x": 1}, entry("t", 1, "ok", kind="noop")
    )
    assert script.runs == [
        RunTask(
            task=step.tools[0],
            config={"result": 5},
            input={"a": 5, "b": 5, "c": 3},
            try_number=1,
            idempotency_key="81/s/-/1",
            timeout_s=7,
            scope=script.runs[0].scope,
        )
    ]
    assert script.runs[0].scope["a"] == 5


def test_a_step_without_a_tool_runs_a_noop() -> None:
    step = read(f"{HEAD}workflow: [{{step: s}}]", Playbook).workflow[0]
    script = Script(ok({"status": "ok"}))
    assert script.drive(pipeline(step)) == done({"status": "ok"}, entry("", 1, "ok", kind="noop"))


def test_the_time_of_a_run_is_kept() -> None:
    outcome = Outcome(data=1, meta={"duration_ms": 12})
    step = single("", more="set: {ctx.n: '{{ output.meta.attempt }}'},")
    assert Script(outcome).drive(pipeline(step)) == done(
        1, entry("", 1, "ok") | {"ms": 12}, ctx={"n": 1}
    )


def test_an_error_without_a_rule_fails_the_command() -> None:
    step = step_of("{kind: http, url: u}", "  loop: {in: [a, b], iterator: x}\n")
    bound = {"iter": {"item": "b", "index": 1, "total": 2}}
    assert Script(GONE).drive(pipeline(step, bound)) == Failed(
        error=Error(
            kind="not_found",
            code="HTTP_404",
            message="gone",
            step="s",
            index=1,
            details={"url": "u", "status_code": 404},
        ),
        result={"body": "gone"},
        tasks=(entry("", 1, "error"),),
    )


def test_an_error_that_tells_nothing_is_unknown() -> None:
    end = Script(Outcome(status="error")).drive(pipeline(single("")))
    assert end == Failed(
        error=Error(kind="unknown", code="unknown", message="", step="s"),
        result=None,
        tasks=(entry("", 1, "error"),),
    )


# ---------------------------------------------------------------------------- rules


SERVER_ERROR = Outcome(
    status="error", error={"kind": "server_error", "code": "HTTP_500"}, http={"status": 500}
)
OUTCOMES = [
    pytest.param(
        rules("{when: 'output.http.status in [500]', then: {do: retry, attempts: 2}}"),
        [SERVER_ERROR, SERVER_ERROR],
        ("server_error", "HTTP_500", ["rules[0]", "rules[0]"]),
        id="attempts are total tries",
    ),
    pytest.param(
        rules("{when: false, then: {do: fail}}, {when: true, then: {do: retry}}"),
        [DOWN, DOWN, DOWN],
        ("connection", "CONN_REFUSED", ["rules[1]"] * 3),
        id="a boolean condition, three tries unless written",
    ),
    pytest.param(
        rules("{when: '{{ output.error.retryable }}', then: {do: retry}}"),
        [DOWN, GONE],
        ("not_found", "HTTP_404", ["rules[0]", None]),
        id="what no rule matches fails",
    ),
    pytest.param(
        rules("{else: {do: retry, attempts: 2}}"),
        [ok(1), ok(2)],
        ("policy", "retries_exhausted", ["rules[0]"] * 2),
        id="an ok outcome that is refused to the end",
    ),
    pytest.param(
        rules("{then: {do: fail}}"), [ok(1)], ("policy", "rule_failed", ["rules[0]"]), id="fail ok"
    ),
    pytest.param(
        "policy: {on_unmatched: fail, rules: [{when: output.data > 1, then: {do: continue}}]}",
        [ok(1)],
        ("policy", "unmatched", [None]),
        id="an ok outcome may need a rule",
    ),
    pytest.param(
        "policy: {on_unmatched: fail}", [GONE], ("not_found", "HTTP_404", [None]), id="unmatched"
    ),
    pytest.param(
        "retry: {attempts: 2, delay: 0}",
        [DOWN, DOWN],
        ("connection", "CONN_REFUSED", ["retry"] * 2),
        id="the short form retries what is worth it",
    ),
    pytest.param(
        "retry: {delay: 0}", [GONE], ("not_found", "HTTP_404", [None]), id="and nothing else"
    ),
    pytest.param(
        "retry: {delay: 0, kinds: [not_found]}",
        [GONE, GONE, DOWN],
        ("connection", "CONN_REFUSED", ["retry", "retry", None]),
        id="or the kinds that are written",
    ),
    pytest.param(
        rules("{when: output.data, then: {do: continue}}") + ", retry: {attempts: 2, delay: 0}",
        [DOWN, DOWN],
        ("connection", "CONN_REFUSED", ["retry"] * 2),
        id="the short form is the last rule",
    ),
    pytest.param(
        rules("{when: nothing.here, then: {do: continue}}"),
        [ok(1)],
        ("template", "template_undefined", [None]),
        id="a condition that raises",
    ),
    pytest.param(
        rules("{then: {do: retry, attempts: '{{ output.data }}'}}"),
        [ok(0)],
        ("config", "invalid_config", ["rules[0]"]),
        id="tries that make no sense",
    ),
    pytest.param(
        rules("{then: {do: retry, set: {ctx.a: '{{ nothing }}'}}}"),
        [ok(0)],
        ("template", "template_undefined", ["rules[0]"]),
        id="a write that raises",
    ),
]


@pytest.mark.parametrize(("policy", "outcomes", "expected"), OUTCOMES)
def test_rules_that_end_in_failure(
    policy: str, outcomes: list[Outcome], expected: tuple[str, str, list[str | None]]
) -> None:
    end = Script(*outcomes).drive(pipeline(single(policy)))
    assert isinstance(end, Failed)
    matched = [line.get("rule") for line in end.tasks]
    assert (end.error.kind, end.error.code, matched) == expected


@pytest.mark.parametrize(
    ("policy", "outcomes", "expected"),
    [
        (rules("{when: output.error, then: {do: retry}}"), [DOWN, ok(2)], done(2)),
        (rules("{then: {do: continue}}"), [GONE], done({"body": "gone"})),
        (rules("{then: {do: break}}"), [ok(1)], done(1)),
        (rules("{then: {do: break, loop: true}}"), [GONE], done({"body": "gone"}, ends_loop=True)),
        (
            rules("{else: {do: continue, set: {ctx.seen: '{{ output.status }}'}}}"),
            [DOWN],
            done(None, ctx={"seen": "error"}),
        ),
        (
            rules("{when: output.error, then: {do: retry, set: {iter.n: '{{ _attempt }}'}}}"),
            [DOWN, ok(1)],
            done(1, iter={"n": 1}),
        ),
        ("policy: {on_unmatched: fail, rules: [{when: true, then: {}}]}", [ok(1)], done(1)),
        ("policy: {on_unmatched: continue}", [ok(1)], done(1)),
    ],
)
def test_rules_that_end_well(policy: str, outcomes: list[Outcome], expected: Done) -> None:
    end = Script(*outcomes).drive(pipeline(single(policy)))
    assert isinstance(end, Done)
    assert replace(end, tasks=()) == expected


@pytest.mark.parametrize(
    ("outcome", "message", "expected"),
    [
        (GONE, "lost {{ output.http.status }}", ("not_found", "HTTP_404", "lost 404")),
        (ok({"n": [1]}), "{{ output.data.n }}", ("policy", "rule_failed", "[1]")),
        (
            ok(),
            "{{ nope }}",
            ("template", "template_undefined", "`rules[0].message`: `nope` is undefined (at 1:4)"),
        ),
    ],
)
def test_fail_may_say_why(outcome: Outcome, message: str, expected: tuple[str, str, str]) -> None:
    step = single(rules(f"{{then: {{do: fail, message: '{message}'}}}}"))
    end = Script(outcome).drive(pipeline(step))
    assert isinstance(end, Failed)
    assert (end.error.kind, end.error.code, end.error.message) == expected


def test_the_defaults_of_the_playbook_hold_where_a_task_says_nothing() -> None:
    text = HEAD + (
        "executor: {spec: {policy: {defaults: {timeout: 9, retry: {attempts: 2, delay: 0}, "
        "policy: {rules: [{when: output.status == 'ok', then: {do: fail}}]}}}}}\n"
        "workflow: [{step: s, tool: {kind: http, url: u}}]\n"
    )
    playbook = read(text, Playbook)
    assert playbook.executor is not None
    spec: Any = playbook.executor.spec
    script = Script(DOWN, ok(1))
    end = script.drive(pipeline(playbook.workflow[0], defaults=spec.policy.defaults))
    assert isinstance(end, Failed)
    assert (end.error.code, [run.timeout_s for run in script.runs]) == ("rule_failed", [9, 9])


# ---------------------------------------------------------------------------- delays


def test_a_retry_with_a_delay_parks_with_a_checkpoint() -> None:
    step = step_of(
        "[{name: a, kind: noop, set: {ctx.x: 1}}, {name: b, kind: http, url: '{{ _attempt }}', "
        "spec: {retry: {backoff: exponential, jitter: 0}}}]"
    )
    pipe = pipeline(step)
    pipe.next()
    pipe.report(ok("A"))
    pipe.next()
    pipe.report(DOWN)
    checkpoint = {
        "task": "b",
        "tries": 1,
        "passes": {"a": 1, "b": 1},
        "runs": 2,
        "results": {"a": "A"},
        "previous": "a",
        "writes": {"ctx.x": 1},
        "log": [entry("a", 1, "ok", kind="noop"), entry("b", 1, "error", "retry")],
    }
    error = Error(kind="connection", code="CONN_REFUSED", message="refused")
    assert pipe.next() == Park(delay_ms=1000, checkpoint=checkpoint, task="b", error=error)
    resumed = pipeline(step, checkpoint=checkpoint)
    run = resumed.next()
    assert isinstance(run, RunTask)
    assert (run.try_number, run.config["url"], run.idempotency_key) == (2, 2, "81/s/-/1/b")
    assert pipe.next() == run


@pytest.mark.parametrize(
    ("retry_after_s", "delay_ms"), [(30, 30_000), (0.1, 1000), (None, 1000), ("soon", 1000)]
)
def test_what_the_error_asks_for_is_the_least_delay(retry_after_s: object, delay_ms: int) -> None:
    busy = Outcome(status="error", error=REFUSED | {"retry_after_s": retry_after_s})
    script = Script(busy, ok(1))
    script.drive(
        pipeline(single(rules("{when: output.error, then: {do: retry, delay: 1, jitter: 0}}")))
    )
    assert script.delays == [delay_ms]


def test_an_asked_delay_parks_a_retry_that_has_none() -> None:
    busy = Outcome(status="error", error=REFUSED | {"retry_after_s": 2})
    script = Script(busy, ok(1))
    script.drive(pipeline(single(rules("{when: output.error, then: {do: retry}}"))))
    assert script.delays == [2000]


# ---------------------------------------------------------------------------- pipelines


def test_tasks_run_in_order_and_see_each_other() -> None:
    step = step_of(
        "[{name: a, kind: noop, result: '{{ [_prev, _task, _attempt, b] }}'}, "
        "{name: b, kind: noop, result: '{{ [_prev.n, a.n, results.a.n, a.data.n, _task] }}'}]"
    )
    script = Script(ok({"n": 1}), ok({"n": 2}))
    assert script.drive(pipeline(step)) == done(
        {"a": {"n": 1}, "b": {"n": 2}},
        entry("a", 1, "ok", kind="noop"),
        entry("b", 1, "ok", kind="noop"),
    )
    assert [(run.config["result"], run.idempotency_key) for run in script.runs] == [
        ([None, "a", 1, None], "81/s/-/1/a"),
        ([1, 1, 1, 1, "b"], "81/s/-/1/b"),
    ]


def test_an_accepted_error_stays_readable() -> None:
    step = step_of(
        "[{name: a, kind: http, url: u, set: {ctx.never: '{{ output.data.x }}'}, "
        "spec: {policy: {rules: [{then: {do: continue}}]}}}, "
        "{name: b, kind: noop, result: '{{ [a._status, a._error.code, a] }}'}]"
    )
    script = Script(GONE, ok(2))
    end = script.drive(pipeline(step))
    assert isinstance(end, Done)
    assert (end.result, end.ctx) == ({"a": {"body": "gone"}, "b": 2}, {})
    assert script.runs[1].config["result"] == ["error", "HTTP_404", {"body": "gone"}]


def test_a_failed_pipeline_keeps_results_and_drops_writes() -> None:
    step = step_of(
        "[{name: a, kind: noop, set: {ctx.x: 1}}, {name: b, kind: http, url: u}, "
        "{name: c, kind: noop}]"
    )
    tasks = (entry("a", 1, "ok", kind="noop"), entry("b", 1, "error"))
    error = Error(
        kind="not_found",
        code="HTTP_404",
        message="gone",
        step="s",
        task="b",
        details={"url": "u", "status_code": 404},
    )
    assert Script(ok("A"), GONE).drive(pipeline(step)) == Failed(
        error=error, result={"a": "A", "b": {"body": "gone"}}, tasks=tasks
    )
    assert Script(ok("A"), replace(GONE, data=None)).drive(pipeline(step)) == Failed(
        error=error, result={"a": "A"}, tasks=tasks
    )


def test_writes_see_the_state_before_and_are_read_by_the_next_task() -> None:
    step = step_of(
        "[{name: a, kind: noop, set: {ctx.a: '{{ ctx.b }}', ctx.b: '{{ ctx.a }}', iter.i.j: 1, "
        "step.z: '{{ output.data }}'}, spec: {policy: {rules: [{then: {set: {ctx.c: '{{ a }}', "
        "ctx.a.k: '{{ output.data }}', iter.i.k: 2}}}]}}}, "
        "{name: b, kind: noop, result: '{{ [ctx.a, ctx.b, c, iter.i, step.z] }}'}]"
    )
    script = Script(ok(7), ok())
    end = script.drive(pipeline(step, {"ctx": {"a": "A", "b": "B"}}))
    assert end == done(
        {"a": 7, "b": None},
        entry("a", 1, "ok", "rules[0]", kind="noop"),
        entry("b", 1, "ok", kind="noop"),
        ctx={"a": "B", "b": "A", "c": None, "a.k": 7},
        iter={"i": {"j": 1, "k": 2}},
        of_step={"z": 7},
    )
    assert script.runs[1].config["result"] == [{"k": 7}, "A", None, {"j": 1, "k": 2}, 7]


def test_a_jump_repeats_tasks_with_new_keys_and_new_tries() -> None:
    step = step_of(
        "[{name: a, kind: http, url: '{{ iter.page | default(1) }}', "
        "spec: {policy: {rules: [{when: output.error, then: {do: retry}}]}}}, "
        "{name: b, kind: noop, spec: {policy: {rules: ["
        "{when: output.data < 2, then: {do: jump, to: a, "
        "set: {iter.page: '{{ output.data + 1 }}'}}}]}}}]"
    )
    script = Script(DOWN, ok("one"), ok(1), DOWN, DOWN, ok("two"), ok(2))
    end = script.drive(pipeline(step))
    assert isinstance(end, Done)
    assert (end.result, end.iter) == ({"a": "two", "b": 2}, {"page": 2})
    assert [
        (run.idempotency_key, run.try_number, run.config.get("url")) for run in script.runs
    ] == [
        ("81/s/-/1/a", 1, 1),
        ("81/s/-/1/a", 2, 1),
        ("81/s/-/1/b", 1, None),
        ("81/s/-/1/a~2", 1, 2),
        ("81/s/-/1/a~2", 2, 2),
        ("81/s/-/1/a~2", 3, 2),
        ("81/s/-/1/b~2", 1, None),
    ]


@pytest.mark.parametrize("to", ["previous", "prev"])
def test_a_jump_may_go_to_the_task_before(to: str) -> None:
    step = step_of(
        "[{name: a, kind: noop}, {name: b, kind: noop}, {name: c, kind: noop, spec: {policy: "
        f"{{rules: [{{when: output.data, then: {{do: jump, to: {to}}}}}]}}}}}}]"
    )
    script = Script(ok(), ok(), ok(True), ok(), ok(False))  # noqa: FBT003 - data of a tool
    script.drive(pipeline(step))
    assert [run.task.name for run in script.runs] == ["a", "b", "c", "b", "c"]


def test_a_jump_forward_leaves_tasks_out_and_an_earlier_error_is_forgotten() -> None:
    step = step_of(
        "[{name: a, kind: noop, spec: {policy: {rules: ["
        "{when: output.error, then: {do: jump, to: a}}, "
        "{then: {do: jump, to: c}}]}}}, {name: b, kind: noop}, "
        "{name: c, kind: noop, result: '{{ [a._status, b] }}'}]"
    )
    script = Script(DOWN, ok(1), ok(3))
    end = script.drive(pipeline(step))
    assert isinstance(end, Done)
    assert (end.result, script.runs[2].config["result"]) == ({"a": 1, "c": 3}, ["ok", None])


def test_break_ends_the_pipeline() -> None:
    step = step_of(
        "[{name: a, kind: noop, spec: {policy: {rules: [{then: {do: break, loop: true}}]}}}, "
        "{name: b, kind: noop}]"
    )
    assert Script(ok(1)).drive(pipeline(step)) == done(
        {"a": 1}, entry("a", 1, "ok", "rules[0]", kind="noop"), ends_loop=True
    )


def test_a_jump_that_leads_nowhere_fails() -> None:
    step = single(rules("{then: {do: jump, to: previous}}"))
    end = Script(ok(1)).drive(pipeline(step))
    assert isinstance(end, Failed)
    assert (end.error.kind, end.error.message) == ("config", "`jump`: there is no task `previous`")


def test_a_pipeline_that_never_ends_is_stopped() -> None:
    step = step_of("[{name: a, kind: noop, spec: {policy: {rules: [{then: {do: jump, to: a}}]}}}]")
    assert Script(*[ok(1)] * 1_003).drive(pipeline(step, limit=1_003)) == Failed(
        error=Error(
            kind="limit",
            code="pipeline_limit",
            message="the pipeline ran 1003 tasks and did not end",
            step="s",
            task="a",
        ),
        result={"a": 1},
        tasks=(
            *[entry("a", 1, "ok", "rules[0]", kind="noop")] * 1_000,
            {"more": 3},
        ),
    )


# ---------------------------------------------------------------------------- before the tool


@pytest.mark.parametrize(
    ("tool", "error"),
    [
        ("{kind: http, url: '{{ nope }}'}", "`url`: `nope` is undefined (at 1:4)"),
        ("{kind: noop, input: {a: '{{ nope }}'}}", "`input.a`: `nope` is undefined (at 1:4)"),
        ("{kind: noop, timeout: '{{ nope }}'}", "`timeout`: `nope` is undefined (at 1:4)"),
    ],
)
def test_an_error_before_the_tool_names_its_place(tool: str, error: str) -> None:
    step = step_of(tool)
    assert pipeline(step).next() == Failed(
        error=Error(kind="template", code="template_undefined", message=error, step="s"),
        result=None,
        tasks=(entry("", 1, "error", kind=step.tools[0].kind),),
    )


def test_rules_also_see_errors_from_before_the_tool() -> None:
    step = step_of(
        "[{name: a, kind: http, url: '{{ nope }}', spec: {policy: {rules: ["
        "{when: output.error.kind == 'template', then: {do: continue}}]}}}, {name: b, kind: noop}]"
    )
    script = Script(ok(1))
    assert script.drive(pipeline(step)) == done(
        {"a": None, "b": 1},
        entry("a", 1, "error", "rules[0]"),
        entry("b", 1, "ok", kind="noop"),
    )


def test_the_step_s_input_is_rendered_once_before_anything_is_written() -> None:
    step = step_of(
        "[{name: a, kind: http, url: u, set: {ctx.n: 2}}, "
        "{name: b, kind: http, url: '{{ keychain.k.t }}', input: {twice: '{{ n * 2 }}'}}]",
        "  input: {n: '{{ ctx.n }}', token: '{{ keychain.k.t }}'}\n",
    )
    pipe = pipeline(step, {"ctx": {"n": 1}})
    assert pipe.needs_keychain() == {"k"}
    secret = {"k": {"t": "s3cret"}}
    run = pipe.next(secret)
    assert isinstance(run, RunTask)
    assert run.input == {"n": 1, "token": "s3cret"}
    pipe.report(ok())
    checkpoint = pipe.checkpoint()
    assert "s3cret" not in json.dumps(checkpoint)
    expected = ({"n": 1, "token": "s3cret", "twice": 2}, "s3cret")
    for going_on in (pipe, pipeline(step, {"ctx": {"n": 1}}, checkpoint=checkpoint)):
        run = going_on.next(secret)
        assert isinstance(run, RunTask)
        assert (run.input, run.config["url"]) == expected
    pipe.report(ok())
    assert pipe.needs_keychain() == frozenset()


def test_a_missing_keychain_entry_fails_before_the_tool_runs() -> None:
    step = step_of("{kind: http, url: '{{ keychain.k.t | default(1) }}'}")
    assert pipeline(step).next() == Failed(
        error=Error(
            kind="auth", code="keychain_missing", message="the keychain has no `k`", step="s"
        ),
        result=None,
        tasks=(entry("", 1, "error"),),
    )


# ---------------------------------------------------------------------------- driving


def test_an_outcome_needs_a_running_task() -> None:
    pipe = pipeline(single(""))
    with pytest.raises(RuntimeError, match="no task is running"):
        pipe.report(ok())
    pipe.next()
    pipe.report(ok())
    with pytest.raises(RuntimeError, match="no task is running"):
        pipe.report(ok())


def test_next_says_the_same_until_the_outcome_is_reported() -> None:
    pipe = pipeline(single(""))
    assert pipe.next() == pipe.next()
    assert pipe.checkpoint() == {"task": "", "passes": {"": 1}}


KINDS = ["ok", "more", "refused", "gone"]
GIVEN = {
    "ok": ok({"v": 1}),
    "more": ok({"v": 2}),
    "refused": replace(DOWN, data={"partial": 1}),
    "gone": GONE,
}
CONDITIONS = [
    "output.error",
    "output.error.retryable",
    "output.status == 'ok' and output.data.v == 2",
    "_attempt > 1",
]
ACTIONS = [
    "{do: continue, set: {ctx.last: '{{ _task }}', iter.tries: '{{ _attempt }}'}}",
    "{do: retry, attempts: 2}",
    "{do: retry, attempts: 4, delay: 5, set: {iter.seen.again: '{{ ctx.last | default(0) }}'}}",
    "{do: jump, to: t0}",
    "{do: jump, to: previous}",
    "{do: break, loop: true}",
    "{do: fail}",
]
MOST_TRIES = 4


@st.composite
def steps(draw: st.DrawFn) -> Step:
    rule = st.builds(
        '{{when: "{}", then: {}}}'.format, st.sampled_from(CONDITIONS), st.sampled_from(ACTIONS)
    )
    tasks = []
    for index in range(draw(st.integers(1, 4))):
        found = ", ".join(draw(st.lists(rule, max_size=3)))
        url = draw(st.sampled_from(["u", "'{{ _prev.v }}'", "'{{ results | length }}'"]))
        tasks.append(
            f"{{name: t{index}, kind: http, url: {url}, "
            f"set: {{ctx.n.t{index}: '{{{{ output.data }}}}'}}, "
            f"spec: {{policy: {{rules: [{found}]}}, retry: {{attempts: 3, delay: 1}}}}}}"
        )
    return step_of(f"[{', '.join(tasks)}]")


def drive(
    step: Step, plan: list[str], interrupted: Callable[[int], bool]
) -> tuple[Done | Failed, list[tuple[str, int, str]]]:
    """Run to the end; whenever told so, go on with a new pipeline from the checkpoint."""
    pipe = pipeline(step, limit=25)
    seen: list[tuple[str, int, str]] = []
    for turn in range(1_000):
        if interrupted(3 * turn):
            pipe = resumed(step, pipe.checkpoint())
        match pipe.next():
            case RunTask() as run:
                if interrupted(3 * turn + 1):
                    pipe = resumed(step, pipe.checkpoint())
                    assert pipe.next() == run
                pipe.report(GIVEN[plan[len(seen) % len(plan)]])
                seen.append((run.task.name, run.try_number, run.idempotency_key))
            case Park() as park:
                if interrupted(3 * turn + 2):
                    pipe = resumed(step, park.checkpoint)
            case end:
                assert resumed(step, pipe.checkpoint()).next() == end
                return end, seen
    raise AssertionError("the pipeline does not end")


def resumed(step: Step, checkpoint: dict[str, Any]) -> Pipeline:
    return pipeline(step, limit=25, checkpoint=json.loads(json.dumps(checkpoint)))


@settings(deadline=None)  # a busy machine is slow, not wrong
@given(
    steps(),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=8),
    st.sets(st.integers(0, 90)),
)
def test_an_interrupted_pipeline_ends_as_one_that_was_not(
    step: Step, plan: list[str], cuts: set[int]
) -> None:
    end, seen = drive(step, plan, lambda _: False)
    assert drive(step, plan, cuts.__contains__) == (end, seen)
    assert drive(step, plan, lambda _: True) == (end, seen)
    assert len(set(seen)) == len(seen) <= 25
    assert all(attempt <= MOST_TRIES for _, attempt, _ in seen)
