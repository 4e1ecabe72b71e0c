"""Result views and outcomes: one object with stable access, computed by rule."""

import pytest

from noetl.dsl.template import UndefinedName, compile_condition, compile_template
from noetl.dsl.views import Form, Outcome, OutputView, Reference, StepResult, StepView


def shown(expression: str, **names: object) -> object:
    return compile_template("{{ " + expression + " }}").render(names)


def is_defined(expression: str, **names: object) -> object:
    return compile_condition(expression + " is defined").render(names)


def test_a_map_result_reads_the_same_through_data() -> None:
    view = StepView(StepResult(data={"n": 1}))
    assert [shown(text, s=view) for text in ("s", "s.n", "s.data.n", "s.output.n")] == [
        {"n": 1}, 1, 1, 1,
    ]  # fmt: skip


def test_a_map_result_with_its_own_data_keeps_it() -> None:
    view = StepView(StepResult(data={"data": {"n": 2}, "n": 1}))
    assert [shown(text, s=view) for text in ("s.data.n", "s.n")] == [2, 1]


def test_a_pipeline_reads_by_task_by_results_and_flat_with_later_tasks_winning() -> None:
    data = {"a": {"f": 1, "g": 2}, "b": {"f": 3}, "c": 7}
    view = StepView(StepResult(form="pipeline", data=data))
    texts = ("s.a.f", "s.results.b.f", "s.f", "s.g", "s.c", "s.data.c", "s.results")
    assert [shown(text, s=view) for text in texts] == [1, 3, 3, 2, 7, 7, data]


def test_a_loop_is_a_list_in_index_order_with_its_statistics() -> None:
    view = StepView(
        StepResult(
            form="loop",
            data=[10, None, 30],
            stats={"total": 3, "success": 2, "failed": 1},
            errors=[{"index": 1, "kind": "timeout"}],
        )
    )
    texts = (
        "s",
        "s.results",
        "s.data",
        "s[2]",
        "s.stats.failed",
        "s.errors[0].index",
        "s | length",
    )
    assert [shown(text, s=view) for text in texts] == [
        [10, None, 30], [10, None, 30], [10, None, 30], 30, 1, 1, 3,
    ]  # fmt: skip


def test_a_cursor_loop_says_what_it_drained() -> None:
    data = {"cursor": "drained", "frames": 2, "rows": 9}
    view = StepView(StepResult(form="cursor", data=data, stats={"total": 9}))
    assert [shown(text, s=view) for text in ("s.rows", "s.stats.total")] == [9, 9]


def test_a_child_reads_as_its_result_and_names_its_execution() -> None:
    view = StepView(StepResult(form="child", data={"x": 1}, child_execution_id="77"))
    assert [shown(text, s=view) for text in ("s.x", "s.data.x", "s._execution_id")] == [1, 1, "77"]


def test_a_value_of_the_step_scope_is_read_unless_the_result_has_the_name() -> None:
    view = StepView(StepResult(data={"n": 1}, writes={"n": 2, "m": 3}))
    assert [shown(text, s=view) for text in ("s.n", "s.m")] == [1, 3]


@pytest.mark.parametrize("form", ["single", "pipeline", "loop", "cursor", "child"])
def test_the_data_of_a_step_is_its_data_whatever_the_step_wrote(form: Form) -> None:
    view = StepView(StepResult(form=form, data=1, writes={"data": 4, "output": 5}))
    assert [shown(text, s=view) for text in ("s.data", "s.output")] == [1, 5]
    own = StepView(StepResult(data={"data": 2}, writes={"data": 4}))
    assert [shown(text, s=own) for text in ("s.data", "s.output")] == [2, {"data": 2}]


def test_every_view_tells_status_error_and_store() -> None:
    plain = StepView(StepResult(data=5))
    texts = ("s._status", "s._error", "s._store", "s._preview", "s._size")
    assert [shown(text, s=plain) for text in texts] == ["ok", None, "inline", None, None]
    assert is_defined("s._ref", s=plain) is False
    assert is_defined("s._execution_id", s=plain) is False
    stored = StepView(
        StepResult(
            status="error",
            error={"kind": "timeout"},
            reference=Reference(ref="noetl://s/2", store="kv", size=9, preview=[1]),
        )
    )
    assert [shown(text, s=stored) for text in texts] == [
        "error", {"kind": "timeout"}, "kv", [1], 9,
    ]  # fmt: skip
    assert shown("s._ref", s=stored) == "noetl://s/2"


def test_a_name_that_no_view_has_is_undefined() -> None:
    with pytest.raises(UndefinedName) as caught:
        shown("s.nothing", s=StepView(StepResult(data={"n": 1})))
    assert caught.value.name == "s.nothing"
    assert is_defined("s.rows", s=StepView(StepResult(form="loop", data=[]))) is False
    assert is_defined("s._odd", s=StepView(StepResult(data={}))) is False


def test_a_step_that_did_not_run_is_null_and_false() -> None:
    assert shown("1 if never_ran else 2", never_ran=None) == 2


def test_the_fields_of_an_outcome_are_always_present() -> None:
    done = OutputView(Outcome(data={"rows": [1]}))
    texts = (
        "output.status", "output.error.retryable", "output.error", "output.http.status",
        "output.pg.sqlstate", "output.py.exception", "output.meta.attempt", "output.ref",
    )  # fmt: skip
    assert [shown(text, output=done) for text in texts] == ["ok", *[None] * 7]


def test_an_outcome_is_its_data_and_lends_its_fields() -> None:
    done = OutputView(Outcome(data={"rows": [1], "status": "shadowed"}))
    texts = ("output", "output.rows", "output.data.rows", "output.status", "output | tojson")
    assert [shown(text, output=done) for text in texts] == [
        {"rows": [1], "status": "shadowed"}, [1], [1], "ok", '{"rows":[1],"status":"shadowed"}',
    ]  # fmt: skip
    assert is_defined("output.nothing", output=done) is False
    assert is_defined("output.rows", output=OutputView(Outcome(data=[1]))) is False
    inner = StepView(StepResult(form="loop", data=[], stats={"total": 0}))
    assert shown("output.stats.total", output=OutputView(Outcome(data=inner))) == 0


@pytest.mark.parametrize(
    ("error", "retryable", "status"),
    [
        ({"kind": "connection", "retryable": True}, True, None),
        ({"kind": "not_found", "retryable": False, "status_code": 404}, False, 404),
        ({"kind": "server_error", "retryable": True, "status": 503}, True, 503),
    ],
)
def test_an_error_tells_whether_to_try_again(
    error: dict[str, object], *, retryable: bool, status: int | None
) -> None:
    failed = OutputView(Outcome(status="error", error=error))
    texts = ("output.error.retryable", "output.error.status", "output.error.status_code")
    assert [shown(text, output=failed) for text in texts] == [retryable, status, status]
    whole = shown("output.error", output=failed)
    assert isinstance(whole, dict)
    assert (whole["kind"], whole["message"]) == (error["kind"], None)
