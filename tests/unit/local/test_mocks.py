import asyncio

import pytest

from noetl.dsl.documents.testcase import PlaybookTest
from noetl.dsl.parse import read
from noetl.dsl.tasks import Python
from noetl.dsl.views import Outcome
from noetl.local.mocks import Mocks
from noetl.local.virtual import run_virtually
from noetl.tools.base import ToolContext, Traits, run_tool

SUITE = """\
apiVersion: noetl.io/v2
kind: PlaybookTest
metadata: {name: t, path: t}
spec:
  file: t.yaml
  cases:
    - name: c
      mocks:
"""


class Echo:
    """A tool that returns its input."""

    kind = "python"
    Config = Python
    traits = Traits(side_effects=False)

    def __init__(self):
        self.cancelled = 0

    async def run(self, config, ctx):
        del config
        return Outcome(data=dict(ctx.input))

    async def cancel(self, ctx):
        del ctx
        self.cancelled += 1


def mocks_of(text, folder=None, **more):
    lines = "".join(f"        {line}\n" for line in text.splitlines())
    case = read(SUITE + lines, PlaybookTest).spec.cases[0]
    return Mocks(case.mocks, folder, **more)


def call(mocks, kind="python", *, step="s", task="", place="-", values=None, **config):  # noqa: PLR0913 - one call of a test
    tool = mocks.over({"python": Echo()})[kind]
    ctx = ToolContext(
        execution_id="7", step=step, command_id="c", idempotency_key=f"7/{step}/{place}/1",
        task=task, input=values or {}, scope={"workload": {"n": 3}, "variables": {"v": 1}},
    )  # fmt: skip
    config = {"code": "1"} if kind == "python" else config
    return run_virtually(run_tool(tool, {"kind": kind, **config}, ctx))


def test_a_mock_answers_for_its_step_and_no_other():
    mocks = mocks_of("- {step: s, return: {n: 1}}")

    assert call(mocks).data == {"n": 1}
    assert call(mocks, step="other", values={"x": 1}).data == {"x": 1}
    assert mocks.calls == {"s": 1, "other": 1}
    assert mocks.steps == {"s"}


def test_the_first_mock_that_fits_answers():
    mocks = mocks_of(
        "- {step: s, task: b, return: task}\n"
        "- {step: s, index: 1, return: second}\n"
        "- {step: s, when: '{{ input.x == 5 and workload.n == 3 and ctx.v == 1 }}', return: five}\n"
        "- {step: s, when: false, return: never}\n"
        "- {step: s, return: rest}\n"
    )

    assert call(mocks, task="b").data == "task"
    assert call(mocks, place="1").data == "second"
    assert call(mocks, place="f2.1").data == "second"
    assert call(mocks, values={"x": 5}).data == "five"
    assert call(mocks, place="0", values={"x": 4}).data == "rest"


def test_a_condition_that_cannot_be_evaluated_fails_the_call():
    outcome = call(mocks_of("- {step: s, when: '{{ nothing.x }}', return: 1}"))

    assert (outcome.error["kind"], outcome.error["code"]) == ("template", "template_undefined")
    assert outcome.error["message"].startswith("`when` of a mock of `s`: ")


def test_a_sequence_gives_one_answer_a_call_and_the_last_one_stays():
    mocks = mocks_of("- {step: s, sequence: [{return: 1}, {raise: {kind: timeout}}, {return: 3}]}")

    outcomes = [call(mocks) for _ in range(4)]

    assert [outcome.data for outcome in outcomes] == [1, None, 3, 3]
    assert outcomes[1].error == {
        "kind": "timeout", "code": "timeout", "message": "mocked timeout", "retryable": True,
        "status_code": None, "retry_after_s": None, "details": None,
    }  # fmt: skip


def test_an_error_has_every_fact_that_rules_look_at():
    outcome = call(
        mocks_of(
            "- {step: s, raise: {kind: server_error, code: E, message: m, status: 503, "
            "retryable: false, retry_after_s: 4, details: {a: 1}}}"
        )
    )

    assert outcome.http == {"status": 503, "headers": {}}
    assert outcome.error == {
        "kind": "server_error", "code": "E", "message": "m", "retryable": False,
        "status_code": 503, "retry_after_s": 4, "details": {"a": 1},
    }  # fmt: skip


def test_an_answer_of_http_tells_its_status():
    mocks = mocks_of("- {step: s, return: {status_code: 201, headers: {a: b}}}")

    assert call(mocks, "http", url="http://x").http == {"status": 201, "headers": {"a": "b"}}


def test_data_comes_from_a_file_beside_the_test(tmp_path):
    (tmp_path / "d.json").write_text('{"n": [1]}')
    (tmp_path / "d.txt").write_text("plain")
    text = "- {step: a, return_file: d.json}\n- {step: b, return_file: d.txt}\n- {step: c, return_file: no}"  # noqa: E501 - one document
    mocks = mocks_of(text, tmp_path)

    assert call(mocks, step="a").data == {"n": [1]}
    assert call(mocks, step="b").data == "plain"
    assert call(mocks, step="c").error["code"] == "mock_file"


def test_a_delay_takes_virtual_time():
    mocks = mocks_of("- {step: s, return: 1, delay: 1h}")
    tool = mocks.over({})["python"]
    ctx = ToolContext(execution_id="7", step="s", command_id="c", idempotency_key="7/s/-/1")

    async def main():
        await tool.run(None, ctx)
        return round(asyncio.get_running_loop().time())

    assert run_virtually(main()) == 3600


def test_a_tool_that_hangs_ends_by_its_deadline_and_a_crash_is_told():
    crashed = []
    mocks = mocks_of(
        "- {step: s, hang: true}\n- {step: t, crash: true}", crash=lambda: crashed.append(1)
    )
    tool = mocks.over({"python": Echo()})["python"]

    async def main(step):
        deadline = asyncio.get_running_loop().time() + 300
        ctx = ToolContext(
            execution_id="7", step=step, command_id="c", idempotency_key="7/s/-/1",
            deadline=deadline,
        )  # fmt: skip
        return await run_tool(tool, {"kind": "python", "code": "1"}, ctx)

    assert run_virtually(main("s")).error["kind"] == "timeout"
    assert crashed == []
    assert run_virtually(main("t")).error["kind"] == "timeout"
    assert crashed == [1]


@pytest.mark.parametrize(
    ("kind", "config"), [("http", {"url": "http://x"}), ("duckdb", {"sql": "select 1", "database": "x.db"})]  # noqa: E501 - one table
)  # fmt: skip
def test_a_tool_with_effects_that_is_not_mocked_is_noted(kind, config):
    mocks = mocks_of("- {step: other, return: 1}")

    assert call(mocks, kind, **config).error["code"] == "unmocked_tool"
    assert mocks.unmocked == {"s": kind}


def test_kinds_that_are_allowed_and_harmless_ones_may_run():
    class Database:
        database = ":memory:"

    strict, allowing = mocks_of("- {step: o, return: 1}"), mocks_of(
        "- {step: o, return: 1}", allow=frozenset({"http"})
    )  # fmt: skip

    assert not strict.may_run("http", None)
    assert allowing.may_run("http", None)
    assert strict.may_run("python", None)
    assert strict.may_run("duckdb", Database)
    assert mocks_of("- {step: o, return: 1}", allow=None).may_run("shell", None)
