# ruff: noqa: E501 - one case per line
"""Refused forms that have one equal are rewritten; what has none stays and is reported."""

import pytest

from noetl.dsl.migrate.rewrite import migrate
from noetl.dsl.parse import parse

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
STEP = "workflow:\n  - step: start\n"
TAIL = "  - step: b\n  - step: c\n"

MECHANICAL = {
    "a typed step": (
        """\
    type: http
    url: https://x
    input: {q: 1}
    retry: {max_attempts: 2}
    next: b
""",
        """\
    tool:
      kind: http
      url: https://x
      spec:
        retry: {attempts: 2}
    input: {q: 1}
    next:
      arcs:
        - step: b
""",
    ),
    "a typed step of the workbook": (
        "    type: workbook\n    task: w\n",
        "    tool:\n      kind: workbook\n      task: w\n",
    ),
    "a pipe": (
        "    pipe:\n      - t: {kind: noop}\n",
        "    tool:\n      - {name: t, kind: noop}\n",
    ),
    "a loop in old words": (
        '    loop: {collection: "{{ workload.x }}", element: e}\n',
        '    loop: {in: "{{ workload.x }}", iterator: e}\n',
    ),
    "a loop without its spec": (
        "    loop: {in: [1], iterator: i, mode: parallel, max_in_flight: 3}\n",
        "    loop: {in: [1], iterator: i, spec: {mode: parallel, max_in_flight: 3}}\n",
    ),
    "a loop beside its spec": (
        "    loop: {in: [1], iterator: i, spec: {mode: parallel}, max_in_flight: 3}\n",
        "    loop: {in: [1], iterator: i, spec: {mode: parallel, max_in_flight: 3}}\n",
    ),
    "variables of a step": (
        "    vars: {n: 1, ctx.m: 2}\n",
        "    set: {ctx.n: 1, ctx.m: 2}\n",
    ),
    "variables beside set": (
        "    vars: {n: 1}\n    set:\n      ctx.m: 2\n",
        "    set:\n      ctx.m: 2\n      ctx.n: 1\n",
    ),
    "variables of a task": (
        "    tool: [{kind: noop, vars: {n: 1}}]\n",
        "    tool: [{kind: noop, set: {ctx.n: 1}}]\n",
    ),
    "a rule with expr": (
        """\
    tool:
      kind: noop
      spec:
        policy:
          rules:
            - expr: "{{ output.status == 'error' }}"
              then: {do: fail}
            - then: {do: break}
""",
        """\
    tool:
      kind: noop
      spec:
        policy:
          rules:
            - when: "{{ output.status == 'error' }}"
              then: {do: fail}
            - then: {do: break}
""",
    ),
    "an admission rule with expr": (
        "    spec: {policy: {admit: {rules: [{expr: x, then: {allow: true}}]}}}\n",
        "    spec: {policy: {admit: {rules: [{when: x, then: {allow: true}}]}}}\n",
    ),
    "a sink of a single tool": (
        """\
    tool:
      kind: noop
      sink: {tool: {kind: duckdb, sql: select 1}}
""",
        """\
    tool:
      - name: main
        kind: noop
      - {name: sink, kind: duckdb, sql: select 1}
""",
    ),
    "a sink of a named tool, and one of the step": (
        """\
    tool: {kind: noop, name: sink, sink: {kind: noop}}
    save:
      tool: {kind: noop, name: last}
""",
        """\
    tool:
      - {kind: noop, name: sink}
      - {name: sink_2, kind: noop}
      - {kind: noop, name: last}
""",
    ),
    "sinks of a pipeline": (
        """\
    tool:
      - t: {kind: noop, save: {kind: noop}}
      - {name: u, kind: noop, sink: {kind: noop}}
    sink: {kind: noop}
""",
        """\
    tool:
      - {name: t, kind: noop}
      - {name: save, kind: noop}
      - {name: u, kind: noop}
      - {name: sink, kind: noop}
      - {name: sink_2, kind: noop}
""",
    ),
    "a sink in a sink, and a save": (
        """\
    tool: [{kind: noop, sink: {kind: noop, sink: {kind: noop}}, save: {kind: noop}}]
""",
        """\
    tool: [{kind: noop}, {name: sink, kind: noop}, {name: save, kind: noop}, {name: sink_2, kind: noop}]
""",
    ),
    "a case that routes": (
        """\
    case:
      - when: "{{ x }}"
        then:
          next:
            - step: b
              args: {n: 1}
      - when: "{{ y }}"
        then: {next: c}
      - else: {next: {step: b}, set: {m: 2}}
""",
        """\
    next:
      arcs:
        - step: b
          set: {ctx.n: 1}
          when: "{{ x }}"
        - step: c
          when: "{{ y }}"
        - {step: b, set: {ctx.m: 2}}
""",
    ),
    "a case with a tool, and the arcs of the step after it": (
        """\
    case:
      - when: "{{ x }}"
        then:
          - tool: {kind: noop, sink: {kind: noop}}
          - set: {ctx.m: 2}
          - next: [b]
    next: c
""",
        """\
    next:
      arcs:
        - step: start_case_1
          when: "{{ x }}"
        - step: c
  - step: start_case_1
    set: {ctx.m: 2}
    tool:
      - {name: main, kind: noop}
      - {name: sink, kind: noop}
    next:
      arcs:
        - step: b
""",
    ),
    "a case before the arcs of a router": (
        """\
    next:
      arcs:
        - step: c
    case:
      - then: {tool: {kind: noop}}
""",
        """\
    next:
      arcs:
        - step: start_case_1
        - step: c
  - step: start_case_1
    tool: {kind: noop}
""",
    ),
    "a case before an older list": (
        """\
    next:
      - step: c
        when: z
      - b
    case:
      - when: x
        then: {next: b}
""",
        """\
    next:
      arcs:
        - step: b
          when: x
        - step: c
          when: z
        - step: b
""",
    ),
    "a case with several targets, with conditions, and with two writes": (
        """\
    case:
      - when: x
        then: {next: [b, c], set: {ctx.n: 1}}
      - when: y
        then: {next: [{step: b, when: z}, {step: c}]}
      - else: {then: {next: {step: c, set: {ctx.n: 1}}, set_ctx: {n: 2}}}
""",
        """\
    next:
      arcs:
        - step: start_case_1
          set: {ctx.n: 1}
          when: x
        - step: start_case_2
          when: y
        - step: start_case_3
          set: {ctx.n: 2}
  - step: start_case_1
    next:
      spec:
        mode: inclusive
      arcs:
        - step: b
        - step: c
  - step: start_case_2
    next:
      arcs:
        - {step: b, when: z}
        - {step: c}
  - step: start_case_3
    next:
      arcs:
        - {step: c, set: {ctx.n: 1}}
""",
    ),
    "a case that only writes": (
        "    case:\n      - when: x\n        then: {set: {ctx.n: 1}}\n    next: [b]\n",
        """\
    next:
      arcs:
        - step: end
          set: {ctx.n: 1}
          when: x
        - step: b
""",
    ),
}


@pytest.mark.parametrize(("old", "new"), MECHANICAL.values(), ids=MECHANICAL)
def test_a_refused_form_with_an_equal_is_rewritten(old, new):
    done = migrate(HEAD + STEP + old + TAIL)
    assert done.text == HEAD + STEP + new + TAIL
    assert done.changes
    assert migrate(done.text) == type(done)(done.text, (), done.remaining)


@pytest.mark.parametrize("name", sorted({*MECHANICAL} - {"a typed step of the workbook"}))
def test_the_rewritten_form_is_right(name):
    done = migrate(HEAD + STEP + MECHANICAL[name][0] + TAIL)
    assert [item.code for item in done.remaining if item.severity == "error"] == []


def test_the_head_of_an_earlier_release_is_rewritten():
    done = migrate("apiVersion: noetl.io/v1\nkind: agent\nmetadata:\n  name: a\n" + STEP)
    assert done.text == (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: a\n  agent: true\n" + STEP
    )
    assert done.remaining == ()
    assert done.changes == (
        "line 1: `apiVersion` is now `noetl.io/v2`",
        "line 2: `Agent` is a Playbook with `metadata.agent`",
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vars: {n: 1}  # v\n", "workload: {n: 1}  # v\n"),
        ("vars: {n: 1}\nworkload: {m: 2}\n", "workload: {m: 2, n: 1}\n"),
    ],
)
def test_variables_of_the_playbook_are_its_workload(old, new):
    done = migrate(HEAD + old + STEP)
    assert (done.text, done.remaining) == (HEAD + new + STEP, ())


@pytest.mark.parametrize("old", ["vars: {n: 1}\nworkload: {n: 2}\n", "vars: 1\n"])
def test_variables_of_the_playbook_that_have_no_equal_stay(old):
    done = migrate(HEAD + old + STEP)
    assert done.text == HEAD + old + STEP
    assert [item.code for item in done.remaining] == ["DSL081"]


NOT_MECHANICAL = {
    "a type beside a tool": "    type: http\n    tool: {kind: noop}\n",
    "an unknown type": "    type: iterator\n",
    "a type that is no text": "    type: 1\n",
    "a pipe beside a tool": "    pipe: []\n    tool: {kind: noop}\n",
    "a pipe that is no list": "    pipe: 1\n",
    "a loop with both words": "    loop: {in: [1], iterator: i, collection: 2, element: j}\n",
    "a loop that says its mode twice": (
        "    loop: {in: [1], iterator: i, mode: parallel, spec: {mode: sequential}}\n"
    ),
    "a loop with a wrong spec": "    loop: {in: [1], iterator: i, mode: parallel, spec: 1}\n",
    "a loop until": "    loop: {in: [1], iterator: i, until: x}\n",
    "a loop that is no map": "    loop: 1\n    case: 1\n",
    "variables that are no map": "    vars: 1\n",
    "variables that are already set": "    vars: {n: 1}\n    set: {ctx.n: 2}\n",
    "variables that are already set without a scope": "    vars: {n: 1}\n    set: {n: 2}\n",
    "variables that say the same twice": "    vars: {n: 1, ctx.n: 2}\n",
    "variables beside a wrong set": "    vars: {n: 1}\n    set: 1\n",
    "a rule with expr and when": (
        "    tool:\n      kind: noop\n"
        "      spec: {policy: {rules: [{expr: x, when: y, then: {do: fail}}, 1]}}\n"
    ),
    "a sink that names a storage": "    tool: {kind: noop, sink: {storage: x}}\n",
    "a sink that is no map": "    tool: [{kind: noop, sink: x}, 1, {a: 1}]\n",
    "a sink of a step with rules": (
        "    tool: {kind: noop, sink: {kind: noop}}\n"
        "    spec: {policy: {rules: [{then: {do: fail}}]}}\n"
    ),
    "a sink of a sequence": "    tool: {kind: task_sequence, tasks: [], sink: {kind: noop}}\n",
    "a case that is no list": "    case: {when: x}\n",
    "a branch that is no map": "    case: [1]\n",
    "a branch with other keys": "    case: [{when: x, do: y}]\n",
    "a branch without a body": "    case: [{when: x}]\n",
    "an empty branch": "    case: [{when: x, then: []}]\n",
    "a branch with other parts": "    case: [{when: x, then: {retry: 1}}]\n",
    "a branch that says a part twice": "    case: [{then: [{next: b}, {next: c}]}]\n",
    "a branch to nowhere": "    case: [{then: {next: [{steps: b}, 1]}}]\n",
    "a case before inclusive arcs": (
        "    case: [{then: {next: b}}]\n    next: {spec: {mode: inclusive}, arcs: [{step: c}]}\n"
    ),
    "a case before wrong arcs": "    case: [{then: {next: b}}]\n    next: {spec: 1, arcs: 1}\n",
    "a case before two names": "    case: [{then: {next: b}}]\n    next: [b, c]\n",
    "a case with an inclusive mode": (
        "    case: [{then: {next: b}}]\n    spec: {next_mode: inclusive}\n"
    ),
    "a case before something else": "    case: [{then: {next: b}}]\n    next: [1]\n",
}


@pytest.mark.parametrize("text", NOT_MECHANICAL.values(), ids=NOT_MECHANICAL)
def test_what_has_no_equal_stays_and_stays_refused(text):
    written = HEAD + STEP + text + TAIL
    done = migrate(written)
    refused = {"DSL080", "DSL081"}
    before = [item.code for item in parse(written).errors if item.code in refused]
    after = [item.code for item in done.remaining if item.code in refused]
    assert (after, done.text.count("\n") >= written.count("\n") - 1) == (before, True)
    assert before or "type" in text or "loop: 1" in text


def test_a_wrong_item_of_a_pipeline_is_no_obstacle():
    done = migrate(HEAD + STEP + "    tool: [1, {kind: noop, sink: {kind: noop}}]\n")
    assert "tool: [1, {kind: noop}, {name: sink, kind: noop}]\n" in done.text


def test_a_case_that_only_writes_stays_where_end_is_a_step():
    text = HEAD + STEP + "    case: [{then: {set: {ctx.n: 1}}}]\n  - step: end\n"
    assert migrate(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "workflow: 1\n",
        "workflow: [1]\n",
        "metadata: 1\nworkflow: []\n",
        "workflow: [{step: a, spec: {policy: {rules: 1, admit: 1}}, tool: 1}]\n",
    ],
)
def test_parts_of_a_wrong_type_are_left_alone(text):
    text = "apiVersion: noetl.io/v2\nkind: Agent\n" + text
    assert migrate(text).text.endswith(text.removeprefix("apiVersion: noetl.io/v2\nkind: Agent\n"))
