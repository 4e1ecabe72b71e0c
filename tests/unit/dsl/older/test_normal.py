# ruff: noqa: E501 - one case per line
"""Whatever accepted form was written, there is one normal form."""

import pytest

from noetl.dsl.older.normal import TreeEditor
from noetl.dsl.parse import parse
from noetl.dsl.yaml import Map, Seq, load
from tests.marks import marked

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
STEP = "workflow:\n  - step: a\n"
BOOK = """\
workbook:
  - name: w
    tool: {kind: python, name: own, input: {a: 1, b: 2}, code: result = 1, timeout: 5}
  - {name: q, tool: {kind: postgres, args: {a: 1}, command: select 1}}
  - {name: s, tool: {kind: script, script: echo, args: [1]}}
  - {name: p, tool: {kind: noop, x-mine: 1}}
"""


def model_of(text):
    parsed = parse(HEAD + text)
    assert parsed.diagnostics == ()
    return parsed.model


SAME = [
    # a workbook call is its task; the caller's keys win and inputs merge
    (BOOK + STEP + "    tool: {kind: workbook, name: w}\n",
     BOOK + STEP + "    tool: {kind: python, input: {a: 1, b: 2}, code: result = 1, timeout: 5}\n"),
    (BOOK + STEP + "    tool: {kind: workbook, name: w, input: {b: 3, c: 4}, timeout_seconds: 9}\n",
     BOOK + STEP + "    tool: {kind: python, input: {a: 1, b: 3, c: 4}, code: result = 1, timeout: 9}\n"),
    (BOOK + STEP + "    tool: [{kind: workbook, name: w}, {kind: workbook, name: x, task: w}]\n",
     BOOK + STEP + "    tool: [{kind: python, name: w, input: {a: 1, b: 2}, code: result = 1, timeout: 5},\n"
     "      {kind: python, name: x, input: {a: 1, b: 2}, code: result = 1, timeout: 5}]\n"),
    (BOOK + STEP + "    tool: [{kind: workbook, task: w, args: {a: 0}}]\n",
     BOOK + STEP + "    tool: [{kind: python, name: task_0, input: {a: 0, b: 2}, code: result = 1, timeout: 5}]\n"),
    (BOOK + STEP + "    tool: {kind: workbook, name: q, query: select 2, input: {b: 2}}\n",
     BOOK + STEP + "    tool: {kind: postgres, input: {a: 1, b: 2}, command: select 2}\n"),
    (BOOK + STEP + "    tool: {kind: workbook, name: s, args: [2], input: {n: 1}}\n",
     BOOK + STEP + "    tool: {kind: script, script: echo, args: [2], input: {n: 1}}\n"),
    (BOOK + STEP + "    tool: {kind: workbook, name: p, x-mine: 2, x-yours: 3}\n",
     BOOK + STEP + "    tool: {kind: noop, x-mine: 2, x-yours: 3}\n"),
    # a task sequence is a pipeline
    (STEP + "    tool: {kind: task_sequence, name: n, desc: d, args: {x: 1}, tasks: [{name: t, kind: noop}]}\n",
     STEP + "    input: {x: 1}\n    tool: [{name: t, kind: noop}]\n"),
    (STEP + "    input: {y: 1}\n    tool: {kind: task_sequence, input: {x: 1}, tasks: [{name: t, kind: noop}]}\n",
     STEP + "    input: {y: 1, x: 1}\n    tool: [{name: t, kind: noop}]\n"),
    (STEP + "    tool: {kind: task_sequence, output: {scope: step}, set: {ctx.a: 1}, timeout_seconds: 9, x-a: 1, tasks: [{name: t, kind: noop}]}\n",
     STEP + "    output: {scope: step}\n    set: {ctx.a: 1}\n    spec: {timeout: 9}\n    x-a: 1\n    tool: [{name: t, kind: noop}]\n"),
    (STEP + "    set: {ctx.b: 2}\n    spec: {pool: p}\n    x-a: 1\n    tool: {kind: task_sequence, output_select: [n], set: {ctx.a: 1}, spec: {timeout: 9, idempotent: false}, x-a: 2, tasks: [{name: t, kind: noop}]}\n",
     STEP + "    output: {select: [n]}\n    set: {ctx.b: 2, ctx.a: 1}\n    spec: {pool: p, timeout: 9, idempotent: false}\n    x-a: 1\n    tool: [{name: t, kind: noop}]\n"),
    # tasks without a name are numbered by their place
    (STEP + "    tool: [{kind: noop}, {kind: noop, name: b}, {kind: noop}]\n",
     STEP + "    tool: [{kind: noop, name: task_0}, {kind: noop, name: b}, {kind: noop, name: task_2}]\n"),
    # keys with two homes
    (STEP + "    tool: {kind: noop, spec: {timeout: 5}}\n", STEP + "    tool: {kind: noop, timeout: 5}\n"),
    (STEP + "    tool: {kind: noop, spec: {timeout_s: 5, retry: {attempts: 2}}}\n",
     STEP + "    tool: {kind: noop, timeout: 5, spec: {retry: {attempts: 2}}}\n"),
    (STEP + "    tool: {kind: noop, output_select: [n]}\n", STEP + "    tool: {kind: noop, output: {select: [n]}}\n"),
    (STEP + "    tool: {kind: noop, output: {scope: step}, output_select: {n: $.n}}\n",
     STEP + "    tool: {kind: noop, output: {scope: step, select: {n: $.n}}}\n"),
    (STEP + "    output_select: [n]\n", STEP + "    output: {output_select: [n]}\n"),
    (STEP + "    tool: {kind: noop, output_select: [n], spec: {idempotent: true}}\n",
     STEP + "    tool: {kind: noop, output: {select: [n]}, spec: {idempotent: true}}\n"),
    # aliases without a warning
    (STEP + "    tool: {kind: postgres, credential: c, sql: select 1, args: {a: 1}, timeout_seconds: 5}\n",
     STEP + "    tool: {kind: postgres, auth: c, command: select 1, input: {a: 1}, timeout: 5}\n"),
    (STEP + "    tool: {kind: playbook, path: x, workload: {a: 1}, result_step: s}\n",
     STEP + "    tool: {kind: playbook, path: x, input: {a: 1}, return_step: s}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "normal"), SAME)
def test_accepted_forms_read_as_their_normal_form(written, normal):
    assert model_of(written) == model_of(normal)


def test_which_workbook_tasks_are_used_is_told():
    parsed = parse(
        HEAD + BOOK + STEP + "    tool: [{kind: workbook, task: w}, {kind: workbook, name: q}]\n"
    )
    assert parsed.workbook_used == {"w", "q"}


FAULTS = [
    ("DSL018", STEP + "    tool: {kind: workbook, name: §nowhere}\n"),
    ("DSL018", STEP + "    tool: [{kind: workbook, task: §nowhere, name: t}]\n"),
    ("DSL018", STEP + "    tool: [{kind: workbook, task: §7}]\n"),
    ("DSL051", STEP + "    tool: {§kind: workbook}\n"),
    ("DSL053", "workbook: [{name: a, tool: {kind: §workbook, name: b}}]\n" + STEP),
    ("DSL053", "workbook: [{name: a, tool: {kind: §task_sequence}}]\n" + STEP),
    ("DSL050", STEP + "    tool: [{kind: §task_sequence, tasks: []}]\n"),
    ("DSL051", STEP + "    tool: {§kind: task_sequence}\n"),
    ("DSL030", STEP + "    tool: {kind: task_sequence, tasks: [], §taks: []}\n"),
    *(("DSL030", STEP + f"    tool: {{kind: task_sequence, tasks: [{{kind: noop}}], {keys}}}\n")
      for keys in ("§auth: c", "§credential: c", "spec: {§policy: {rules: []}}", "spec: {§retry: {attempts: 2}}", "spec: {§polcy: 1}")),
    *(("DSL039", STEP + f"    set: {{ctx.a: 1}}\n    spec: {{timeout: 3, idempotent: true}}\n    tool: {{kind: task_sequence, tasks: [{{kind: noop}}], {keys}}}\n")
      for keys in ("set: {§ctx.a: 2}", "§timeout: 4", "spec: {§timeout: 4}", "spec: {§idempotent: false}", "input: {}, §args: {}")),
    ("DSL033", STEP + "    output: {scope: step}\n    tool: {kind: task_sequence, tasks: [{kind: noop}], §output: {scope: step}}\n"),
    ("DSL038", STEP + "    tool: {kind: task_sequence, tasks: [{kind: noop}], spec: §1}\n"),
    ("DSL038", STEP + "    spec: §1\n    tool: {kind: task_sequence, tasks: [{kind: noop}], timeout: 1}\n"),
    *(("DSL039", STEP + f"    tool: {tool}\n") for tool in (
        "{kind: noop, timeout: 3, spec: {§timeout: 60}}", "[{kind: noop, timeout_seconds: 3, spec: {§timeout_s: 60}}]",
        "{kind: noop, spec: {timeout: 60, §timeout_s: 60}}")),
    ("DSL039", "workbook: [{name: w, tool: {kind: noop, timeout: 3, spec: {§timeout: 60}}}]\n" + STEP + "    tool: {kind: workbook, name: w}\n"),
    ("DSL030", STEP + "    tool: {kind: noop, output: {select: [a]}, §output_select: [n]}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text"), FAULTS)
def test_what_cannot_be_resolved_is_an_error_at_its_place(code, text):
    text, places = marked(HEAD + text)
    errors = [item for item in parse(text).errors if item.code == code]
    assert [(item.span.line, item.span.column) for item in errors] == places


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ("auth: c", "write `auth` on each task"),
        ("spec: {policy: {rules: []}}", "write `spec.policy` on each task"),
        ("taks: []", "did you mean `tasks`?"),
        ("spec: {polcy: 1}", "did you mean `policy`?"),
    ],
)
def test_what_a_whole_sequence_cannot_say_is_told_where_to_write(keys, hint):
    parsed = parse(HEAD + STEP + f"    tool: {{kind: task_sequence, tasks: [], {keys}}}\n")
    assert hint in [item.hint for item in parsed.errors]


@pytest.mark.parametrize(
    "text",
    [
        "workflow: 1\nworkbook: 1\n",
        "workbook: [1, {name: a}, {name: a, tool: 1}, {tool: {kind: noop}}]\nworkflow: [1]\n",
        "workflow: [{step: a, tool: [1]}, {step: b, tool: 1}]\n",
        "workbook: [{name: w, tool: {kind: noop, input: 1}}]\nworkflow: [{step: a, tool: {kind: workbook, name: w, input: 2}}]\n",
        "workflow: [{step: a, output: 1, output_select: [n]}]\n",
    ],
)  # fmt: skip
def test_parts_of_a_wrong_type_are_left_to_the_reader(text):
    assert parse(HEAD + text).errors


def test_the_editor_keeps_the_marks_of_what_it_moves():
    root = load("a: 1\nb: {c: 2}\nd: [3]\n").root
    marks = {name: root.at[name] for name in root}
    edit = TreeEditor()
    edit.rename(root, "a", "z")
    assert list(root) == ["z", "b", "d"]
    assert root.at["z"] == marks["a"]
    made = edit.map()
    edit.move(root, "b", made, "y")
    assert (made, made.at["y"], list(root)) == ({"y": {"c": 2}}, marks["b"], ["z", "d"])
    edit.put(made, "name", "d", (root, "d"), of_key=True)
    assert made.at["name"] == (*marks["d"][:2], *marks["d"][:2])
    items = edit.seq()
    edit.append(items, 3, (root["d"], 0))
    assert items.at == root["d"].at
    edit.drop(root, "d")
    assert root == {"z": 1}


def test_the_editor_writes_without_marks_where_there_are_none():
    edit = TreeEditor()
    plain = {"a": 1}
    edit.rename(plain, "a", "b")
    edit.put(plain, "c", 2, (plain, "b"))
    assert plain == {"b": 1, "c": 2}
    made, items = Map(), Seq()
    edit.put(made, "c", 2, (plain, "b"))
    edit.append(items, 3, (items, 9))
    edit.append(plain_items := [], 3, (items, 9))
    assert (made.at, items.at, plain_items) == ({}, [], [3])
