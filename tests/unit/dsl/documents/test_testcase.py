from __future__ import annotations

import jsonschema
import pytest
import yaml

from noetl.dsl.documents.testcase import (
    Answer,
    Case,
    Expect,
    ExpectedError,
    Failing,
    Mock,
    PlaybookTest,
    SuiteSpec,
)
from noetl.dsl.parse import parse
from noetl.dsl.schema import schema
from noetl.dsl.shape import Fields

HEAD = """\
apiVersion: noetl.io/v2
kind: PlaybookTest
metadata: {name: t, path: demo/t}
spec:
  playbook: demo/tally
"""
EXAMPLE = (
    HEAD
    + """\
  cases:
    - name: retries once, then stores
      payload: {threshold: 3}
      mocks:
        - step: fetch
          sequence: [{raise: {kind: server_error, status: 503}}, {return: {data: {n: 7}}}]
        - {step: store, return: {row_count: 1}}
      expect: {status: COMPLETED, steps: {store: COMPLETED, alarm: SKIPPED}, calls: {fetch: 2},
               ctx: {n: 7}, result: {row_count: 1}, assert: ["{{ store.row_count == 1 }}"],
               max_events: 60}
"""
)


def found(text: str) -> list[tuple[str, str, str]]:
    return [
        (item.code, f"{item.span.line}:{item.span.column}", item.pointer)
        for item in parse(text).errors
    ]


def read(text: str) -> SuiteSpec:
    parsed = parse(text)
    assert parsed.errors == ()
    assert isinstance(parsed.model, PlaybookTest)
    return parsed.model.spec


def mock(text: str) -> Mock:
    return read(HEAD + f"  cases:\n    - name: a\n      mocks: [{text}]\n").cases[0].mocks[0]


def test_the_example_of_the_contract_reads_whole():
    assert read(EXAMPLE) == SuiteSpec(
        playbook="demo/tally",
        gate=False,
        cases=(
            Case(
                name="retries once, then stores",
                payload={"threshold": 3},
                mocks=(
                    Mock(
                        step="fetch",
                        sequence=(
                            Answer(raise_=Failing(kind="server_error", status=503)),
                            Answer(return_={"data": {"n": 7}}),
                        ),
                    ),
                    Mock(step="store", return_={"row_count": 1}),
                ),
                expect=Expect(
                    status="COMPLETED",
                    steps={"store": "COMPLETED", "alarm": "SKIPPED"},
                    calls={"fetch": 2},
                    ctx={"n": 7},
                    result={"row_count": 1},
                    assert_=("{{ store.row_count == 1 }}",),
                    max_events=60,
                ),
            ),
        ),
    )


def test_the_published_schema_accepts_the_example():
    jsonschema.Draft202012Validator(schema("PlaybookTest")).validate(yaml.safe_load(EXAMPLE))


def test_a_case_may_say_little():
    case = read(HEAD + "  gate: true\n  cases: [{name: runs}]\n").cases[0]
    assert case == Case(name="runs")
    assert (case.expect.result, case.expect.status) == ({"$any": True}, None)


def test_an_expected_null_differs_from_no_expectation():
    text = HEAD + "  cases: [{name: a, expect: {result: null}}]\n"
    assert read(text).cases[0].expect.result is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{step: a, return: null}", Mock(step="a")),
        ("{step: a, return_file: rows.json}", Mock(step="a", return_file="rows.json")),
        ("{step: a, hang: true, delay: 30s}", Mock(step="a", hang=True, delay=30.0)),
        ("{step: a, crash: true}", Mock(step="a", crash=True)),
        (
            "{step: a, task: b, index: 0, when: iter.n > 1, return: 1}",
            Mock(step="a", task="b", index=0, when="iter.n > 1", return_=1),
        ),
        (
            (
                "{step: a, raise: {kind: rate_limit, code: X, message: m, status_code: 429, "
                "retryable: true, retry_after_s: 2, details: {a: 1}}}"
            ),
            Mock(
                step="a",
                raise_=Failing(
                    kind="rate_limit",
                    code="X",
                    message="m",
                    status=429,
                    retryable=True,
                    retry_after_s=2,
                    details={"a": 1},
                ),
            ),
        ),
    ],
)
def test_a_mock_answers_in_one_way(text, expected):
    assert mock(text) == expected


def test_an_expected_error_reads():
    text = HEAD + (
        "  cases: [{name: a, expect: {status: FAILED, exact: true, "
        "error: {kind: timeout, step: b, message_matches: slow}}}]\n"
    )
    assert read(text).cases[0].expect == Expect(
        status="FAILED",
        exact=True,
        error=ExpectedError(kind="timeout", step="b", message_matches="slow"),
    )


def test_payloads_answers_and_expected_values_are_never_templates():
    text = HEAD + (
        "  cases:\n"
        "    - name: a\n"
        '      payload: {a: "{{ b"}\n'
        '      mocks: [{step: a, return: "{{ b"}]\n'
        '      expect: {ctx: {a: "{{ b"}, result: "{{ b"}\n'
    )
    parsed = parse(text)
    assert (parsed.errors, parsed.sites) == ((), ())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cases: []", ("DSL039", "6:10", "/spec/cases")),
        ("cases: {}", ("DSL038", "6:10", "/spec/cases")),
        ("cases: [{expect: {}}]", ("DSL037", "6:12", "/spec/cases/0")),
        ("cases: [{name: a}, {name: a}]", ("DSL017", "6:29", "/spec/cases/1/name")),
        ("cases: [{name: a, mocks: [{return: 1}]}]", ("DSL037", "6:30", "/spec/cases/0/mocks/0")),
        ("cases: [{name: a, mocks: [{step: a}]}]", ("DSL039", "6:30", "/spec/cases/0/mocks/0")),
        ("cases: [{name: a, mocks: [{step: a, return: 1, hang: true}]}]",
         ("DSL039", "6:50", "/spec/cases/0/mocks/0/hang")),
        ("cases: [{name: a, mocks: [{step: a, hang: false}]}]",
         ("DSL039", "6:45", "/spec/cases/0/mocks/0/hang")),
        ("cases: [{name: a, mocks: [{step: a, crash: 1}]}]",
         ("DSL038", "6:46", "/spec/cases/0/mocks/0/crash")),
        ("cases: [{name: a, mocks: [{step: a, sequence: []}]}]",
         ("DSL039", "6:49", "/spec/cases/0/mocks/0/sequence")),
        ("cases: [{name: a, mocks: [{step: a, sequence: [{sequence: [], return: 1}]}]}]",
         ("DSL030", "6:51", "/spec/cases/0/mocks/0/sequence/0/sequence")),
        ("cases: [{name: a, mocks: [{step: a, raise: {kind: tired}}]}]",
         ("DSL039", "6:53", "/spec/cases/0/mocks/0/raise/kind")),
        ("cases: [{name: a, mocks: [{step: a, return: 1, when: 'a b'}]}]",
         ("DSL042", "6:59", "/spec/cases/0/mocks/0/when")),
        ("cases: [{name: a, expect: {status: DONE}}]",
         ("DSL039", "6:38", "/spec/cases/0/expect/status")),
        ("cases: [{name: a, expect: {steps: {b: LATE}}}]",
         ("DSL039", "6:41", "/spec/cases/0/expect/steps/b")),
        ("cases: [{name: a, expect: {calls: {b: -1}}}]",
         ("DSL039", "6:41", "/spec/cases/0/expect/calls/b")),
        ("cases: [{name: a, expect: {assert: ['{{ a. }}']}}]",
         ("DSL042", "6:46", "/spec/cases/0/expect/assert/0")),
        ("file: ./a.yaml\n  cases: [{name: a}]", ("DSL039", "6:3", "/spec/file")),
        ("cases: [{name: a, allow: [http, htp]}]", ("DSL050", "6:35", "/spec/cases/0/allow/1")),
        ("cases: [{name: a, allow: htp}]", ("DSL050", "6:28", "/spec/cases/0/allow")),
        ("cases: [{name: a, allow: [7]}]", ("DSL038", "6:29", "/spec/cases/0/allow/0")),
        ("cases: [{name: a, expect: {result: {$typ: string}}}]",
         ("DSL039", "6:39", "/spec/cases/0/expect/result/$typ")),
        ("cases: [{name: a, expect: {ctx: {a: [{b: {$any: 1, $x: 1}}]}}}]",
         ("DSL039", "6:54", "/spec/cases/0/expect/ctx/a/0/b/$x")),
        ("cases: [{name: a, expect: {result: {$type: text}}}]",
         ("DSL039", "6:46", "/spec/cases/0/expect/result/$type")),
        ("cases: [{name: a, expect: {result: {a: {$regex: '['}}}}]",
         ("DSL039", "6:51", "/spec/cases/0/expect/result/a/$regex")),
        ("cases: [{name: a, expect: {result: {$regex: ')('}}}]",
         ("DSL039", "6:47", "/spec/cases/0/expect/result/$regex")),
        ("cases: [{name: a, expect: {result: {$regex: 7}}}]",
         ("DSL038", "6:47", "/spec/cases/0/expect/result/$regex")),
        ("cases: [{name: a, expect: {error: {message_matches: '['}}}]",
         ("DSL039", "6:55", "/spec/cases/0/expect/error/message_matches")),
        ("cases: [{name: a, expect: {error: {message_matches: '(?=a)'}}}]",
         ("DSL039", "6:55", "/spec/cases/0/expect/error/message_matches")),
    ],
)  # fmt: skip
def test_a_test_that_is_not_right_is_refused(line, expected):
    assert found(HEAD + f"  {line}\n") == [expected]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("allow: [htp]", "did you mean `http`?"),
        (
            "expect: {result: {$typ: string}}",
            "the matchers are `$any`, `$type`, `$regex`, `$gt`, `$gte`, `$lt`, `$lte`",
        ),
        ("expect: {result: {$type: strings}}", "did you mean `string`?"),
    ],
)
def test_a_wrong_word_names_the_right_ones(line, hint):
    (fault,) = parse(HEAD + f"  cases: [{{name: a, {line}}}]\n").errors
    assert fault.hint == hint


def test_a_case_may_allow_known_kinds_and_those_of_plugins():
    text = HEAD + "  cases: [{name: a, allow: [http, postgres, mail]}]\n"
    assert parse(text, plugins={"mail": {}}).errors == ()
    assert [item.code for item in parse(text).errors] == ["DSL050"]


def test_matchers_stand_anywhere_in_what_is_expected_and_nowhere_else():
    text = HEAD + (
        "  cases:\n"
        "    - name: a\n"
        "      payload: {$ref: 1}\n"
        "      mocks: [{step: a, return: {$regex: '['}}]\n"
        "      expect:\n"
        "        ctx: {a: {$gt: 1, $lte: 2}}\n"
        "        result: [{$type: string}, {$regex: a.b, x: $y}]\n"
    )
    assert parse(text).errors == ()


@pytest.mark.parametrize(
    "cls", [PlaybookTest, SuiteSpec, Case, Mock, Answer, Failing, Expect, ExpectedError]
)
def test_every_key_has_words_for_the_reference(cls):
    assert all(item.shape.words() for item in Fields.of(cls).keys.values())
