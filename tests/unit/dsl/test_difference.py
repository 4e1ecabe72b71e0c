"""What differs between two versions of a document."""

from pathlib import Path

import pytest

from noetl.dsl.difference import MOST_LINES, Breaking, ChangedStep, ValueChange, difference, unified
from noetl.dsl.parse import parse

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: demo/it}\n"
STEPS = """
workflow:
  - step: start
    tool: {kind: http, url: "https://a.example.com", timeout: 5s}
    next: {arcs: [{step: last}]}
  - step: last
    tool: [{name: one, kind: noop}, {name: two, kind: noop}]
"""
EXAMPLES = Path(__file__).parents[3] / "examples"


def compare(before, after, **more):
    return difference(parse(HEAD + before), parse(HEAD + after), **more)


def test_the_same_text_has_no_difference() -> None:
    found = compare(STEPS, STEPS.replace("\n", "\r\n"))
    assert (found.unified, found.added, found.removed, found.changed) == ("", (), (), ())
    assert (found.workload, found.breaking) == ((), ())


def test_a_step_tells_the_keys_that_changed() -> None:
    after = STEPS.replace("a.example", "b.example").replace("5s", "6s").replace("two", "three")
    found = compare(STEPS, after)
    assert found.changed == (
        ChangedStep("start", ("tool.timeout", "tool.url")),
        ChangedStep("last", ("tool",)),
    ) or found.changed == (
        ChangedStep("start", ("tool.url", "tool.timeout")),
        ChangedStep("last", ("tool",)),
    )


def test_another_kind_of_tool_is_another_tool() -> None:
    after = STEPS.replace('{kind: http, url: "https://a.example.com", timeout: 5s}', "{kind: noop}")
    assert compare(STEPS, after).changed == (ChangedStep("start", ("tool",)),)


def test_one_tool_is_not_a_list_of_one() -> None:
    one = "workflow: [{step: start, tool: {name: a, kind: noop}}]"
    many = "workflow: [{step: start, tool: [{name: a, kind: noop}]}]"
    assert compare(one, many).changed == (ChangedStep("start", ("tool",)),)


def test_keys_of_the_authors_own_count() -> None:
    one = "workflow: [{step: start, x-team: a, tool: {kind: noop}}]"
    two = "workflow: [{step: start, x-team: b, tool: {kind: noop}}]"
    assert compare(one, two).changed == (ChangedStep("start", ("x-team",)),)


def test_steps_come_and_go_and_who_names_them_is_told() -> None:
    after = STEPS.replace("last", "end_of_it")
    found = compare(STEPS, after, named={"last": ["tests/a", "tests/b"], "other": ["x"]})
    assert (found.added, found.removed) == (("end_of_it",), ("last",))
    message = "the step `last` is gone, and tests/a, tests/b names it"
    assert found.breaking == (Breaking("step_removed", "last", message),)
    assert compare(STEPS, after).breaking == ()


def test_defaults_of_the_workload_are_compared_by_type_too() -> None:
    before = "workload: {a: 1, b: [1], c: x, d: true}" + STEPS
    after = "workload: {a: true, b: [1], d: true, e: null}" + STEPS
    found = compare(before, after)
    assert found.workload == (
        ValueChange("a", "changed", before=1, after=True),
        ValueChange("c", "removed", before="x"),
        ValueChange("e", "added"),
    )
    assert [(one.code, one.name) for one in found.breaking] == [
        ("input_type", "a"),
        ("input_removed", "c"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a: {type: string}", "b: {type: string}", [("input_removed", "a")]),
        ("a: {type: string}", "a: {type: integer}", [("input_type", "a")]),
        ("a: {type: integer}", "a: {type: number}", []),
        ("a: {type: integer}", "a: {type: any}", []),
        ("a: {type: any}", "a: {type: integer}", []),
        ("a: {type: any}", "a: {type: any, required: true}", [("input_required", "a")]),
        ("a: {type: any, required: true}", "a: {required: true}", []),
        ("a: {}", "a: {}, b: {required: true, default: 3}", []),
        ("a: {}", "a: {}, b: {required: true}", [("input_required", "b")]),
    ],
)
def test_inputs_that_callers_may_stumble_over(before, after, expected) -> None:
    found = compare(f"inputs: {{{before}}}" + STEPS, f"inputs: {{{after}}}" + STEPS)
    assert [(one.code, one.name) for one in found.breaking] == expected


def test_a_default_that_is_a_template_has_any_type() -> None:
    before = 'workload: {a: "{{ execution_id }}", b: null}' + STEPS
    assert compare(before, "workload: {a: 1, b: 2}" + STEPS).breaking == ()


def test_an_input_with_a_default_elsewhere_need_not_be_passed() -> None:
    after = "inputs: {a: {type: integer, required: true}}\nworkload: {a: 3}" + STEPS
    assert compare(STEPS, after).breaking == ()


def test_another_kind_of_document_is_told() -> None:
    before = parse(HEAD + STEPS)
    text = "apiVersion: noetl.io/v2\nkind: PlaybookTest\nmetadata: {name: demo}\n"
    after = parse(text + "spec: {playbook: demo/it, cases: [{name: a}]}")
    found = difference(before, after)
    assert [one.code for one in found.breaking] == ["kind_changed"]
    assert found.unified.startswith("--- before\n+++ after\n@@ ")


def test_what_no_longer_parses_is_compared_as_text() -> None:
    found = difference(parse("not a document"), parse(HEAD + STEPS), ("a@1", "a@2"))
    assert found.unified.startswith("--- a@1\n+++ a@2\n")
    assert (found.added, found.breaking) == ((), ())


def test_a_large_change_replaces_the_whole() -> None:
    shared = ["same"] * 5
    old = [f"old {n}" for n in range(MOST_LINES + 1)]
    new = ["new"] * 3
    found = unified("\n".join(shared + old + shared), "\n".join(shared + new + shared), ("a", "b"))
    lines = found.splitlines()
    assert lines[:3] == ["--- a", "+++ b", f"@@ -6,{MOST_LINES + 1} +6,3 @@"]
    assert len(lines) == 3 + MOST_LINES + 1 + 3


def test_two_examples_differ_as_a_reader_would_say() -> None:
    texts = [(EXAMPLES / f"pagination_{way}.yaml").read_text() for way in ("cycle", "pipeline")]
    found = difference(*map(parse, texts))
    assert (found.added, found.removed) == ((), ("page", "sum_up"))
    assert [one.step for one in found.changed] == ["start"]
    assert [(one.name, one.change) for one in found.workload] == [
        ("pages", "removed"),
        ("base_url", "added"),
        ("most_pages", "added"),
    ]
    assert [one.code for one in found.breaking] == ["input_removed"]
