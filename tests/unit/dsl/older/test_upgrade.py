# ruff: noqa: E501 - one case per line
"""Every older form warns at its place and reads as its new form.

`§` marks where the warning must be; it is taken out before the text is read.
"""

from pathlib import Path

import pytest

from noetl.dsl.older.upgrade import Upgrade
from noetl.dsl.parse import parse
from tests.marks import marked

ROOT = Path(__file__).parents[4]
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
TAIL = "  - step: b\n  - step: c\n"
STEP = "workflow:\n  - step: a\n"
TOOL = STEP + "    tool: {kind: noop"


FORMS = [
    # `next` as a name or a list
    ("DSL123", STEP + "    §next: b\n" + TAIL, STEP + "    next: {arcs: [{step: b}]}\n" + TAIL),
    ("DSL123", STEP + "    §next: [b]\n" + TAIL, STEP + "    next: {arcs: [{step: b}]}\n" + TAIL),
    ("DSL123", STEP + "    §next: [b, c]\n" + TAIL, STEP + "    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}\n" + TAIL),
    ("DSL123", STEP + "    §next: {step: b, when: x}\n" + TAIL, STEP + "    next: {arcs: [{step: b, when: x}]}\n" + TAIL),
    ("DSL123", STEP + "    §next: [{step: b, when: x}, c]\n" + TAIL, STEP + "    next: {arcs: [{step: b, when: x}, {step: c}]}\n" + TAIL),
    ("DSL123", STEP + "    §next: [{step: b}, {step: c}]\n    spec: {next_mode: inclusive}\n" + TAIL, STEP + "    next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}\n" + TAIL),
    ("DSL123", STEP + "    §next: [{step: b}, {step: c}]\n    spec: {next_mode: exclusive, timeout: 5}\n" + TAIL, STEP + "    next: {arcs: [{step: b}, {step: c}]}\n    spec: {timeout: 5}\n" + TAIL),
    ("DSL123", STEP + "    next: {arcs: [{step: b}]}\n    spec: {§next_mode: inclusive}\n" + TAIL, STEP + "    next: {spec: {mode: inclusive}, arcs: [{step: b}]}\n" + TAIL),
    ("DSL123", STEP + "    spec: {§next_mode: inclusive}\n" + TAIL, STEP + TAIL),
    # `when` of a step
    ("DSL124", STEP + "    §when: x > 1\n" + TAIL, STEP + "    spec: {policy: {admit: x > 1}}\n" + TAIL),
    ("DSL124", STEP + "    §when: x > 1\n    spec: {timeout: 5}\n" + TAIL, STEP + "    spec: {timeout: 5, policy: {admit: x > 1}}\n" + TAIL),
    # `args` and `cond`
    ("DSL125", STEP + "    §args: {n: 1}\n" + TAIL, STEP + "    input: {n: 1}\n" + TAIL),
    ("DSL125", STEP + "    next: {arcs: [{step: b, §cond: x}]}\n" + TAIL, STEP + "    next: {arcs: [{step: b, when: x}]}\n" + TAIL),
    ("DSL125", STEP + "    next: {arcs: [{step: b, §args: {m: 3}, set: {ctx.n: 2}}]}\n" + TAIL, STEP + "    next: {arcs: [{step: b, set: {ctx.n: 2, ctx.m: 3}}]}\n" + TAIL),
    ("DSL125", STEP + "    next: {arcs: [{step: b, §args: {n: 1}}]}\n" + TAIL, STEP + "    next: {arcs: [{step: b, set: {ctx.n: 1}}]}\n" + TAIL),
    # `outcome` and `output.response`
    ("DSL126", TOOL + ", spec: {policy: {rules: [{§when: \"{{ outcome.status == 'ok' }}\", then: {do: fail}}]}}}\n" + TAIL, TOOL + ", spec: {policy: {rules: [{when: \"{{ output.status == 'ok' }}\", then: {do: fail}}]}}}\n" + TAIL),
    ("DSL126", STEP + "    next: {arcs: [{step: b, §when: outcome.data.outcome > outcome.data.n}]}\n" + TAIL, STEP + "    next: {arcs: [{step: b, when: output.data.outcome > output.data.n}]}\n" + TAIL),
    ("DSL113", STEP + "    set: {§ctx.n: '{{ output.response.n }}', ctx.m: 'output.response'}\n" + TAIL, STEP + "    set: {ctx.n: '{{ output.data.n }}', ctx.m: 'output.response'}\n" + TAIL),
    ("DSL113", STEP + "    set: {§ctx.n: \"output.response is {{ output['response'].n }}\"}\n" + TAIL, STEP + "    set: {ctx.n: 'output.response is {{ output.data.n }}'}\n" + TAIL),
    ("DSL126", STEP + "    tool: {kind: http, url: u, json: {§code: '{{ outcome.status }}', inputs: {§q: '{{ outcome.data }}'}, metadata: {§m: '{{ outcome.data }}'}}}\n" + TAIL, STEP + "    tool: {kind: http, url: u, json: {code: '{{ output.status }}', inputs: {q: '{{ output.data }}'}, metadata: {m: '{{ output.data }}'}}}\n" + TAIL),
    ("DSL126", STEP + "    tool: {kind: http, url: u, headers: {§x-id: '{{ outcome.data }}'}, x-mine: '{{ outcome.data }}'}\n" + TAIL, STEP + "    tool: {kind: http, url: u, headers: {x-id: '{{ output.data }}'}, x-mine: '{{ outcome.data }}'}\n" + TAIL),
    ("DSL126", STEP + "    tool: {kind: http, url: u, paginate: {next: n, §until: outcome.data.done}}\n" + TAIL, STEP + "    tool: {kind: http, url: u, paginate: {next: n, until: output.data.done}}\n" + TAIL),
    ("DSL126", "executor: {spec: {policy: {defaults: {policy: {rules: [{§when: outcome.status == 'error', then: {do: fail}}]}}}}}\n" + STEP + TAIL, "executor: {spec: {policy: {defaults: {policy: {rules: [{when: output.status == 'error', then: {do: fail}}]}}}}}\n" + STEP + TAIL),
    # `set_ctx`, `set_iter`, and `set` without a scope
    ("DSL127", TOOL + ", §set_ctx: {n: 1}}\n" + TAIL, TOOL + ", set: {ctx.n: 1}}\n" + TAIL),
    ("DSL127", TOOL + ", §set_ctx: {n: 1}, §set_iter: {m: 2}}\n" + TAIL, TOOL + ", set: {ctx.n: 1, iter.m: 2}}\n" + TAIL),
    ("DSL127", STEP + "    §set_ctx: {n: 1}\n" + TAIL, STEP + "    set: {ctx.n: 1}\n" + TAIL),
    ("DSL127", TOOL + ", spec: {policy: {rules: [{else: {then: {§set_iter: {m: 2}}}}, {else: {§set_ctx: {n: 1}}}]}}}\n" + TAIL, TOOL + ", spec: {policy: {rules: [{else: {then: {set: {iter.m: 2}}}}, {else: {set: {ctx.n: 1}}}]}}}\n" + TAIL),
    ("DSL111", STEP + "    set: {§n: 1, iter.m: 2}\n" + TAIL, STEP + "    set: {ctx.n: 1, iter.m: 2}\n" + TAIL),
    # `retry` of a tool
    ("DSL128", TOOL + ", §retry: {max_attempts: 4, initial_delay: 2, backoff_multiplier: 2}}\n" + TAIL, TOOL + ", spec: {retry: {attempts: 4, delay: 2, backoff: exponential}}}\n" + TAIL),
    ("DSL128", TOOL + ", §retry: {attempts: 4, retry_delay: 2, backoff_multiplier: 1}, spec: {timeout: 3}}\n" + TAIL, TOOL + ", spec: {timeout: 3, retry: {attempts: 4, delay: 2, backoff: fixed}}}\n" + TAIL),
    ("DSL128", TOOL + ", §retry: {max_attempts: 4, backoff: linear, backoff_multiplier: 3}}\n" + TAIL, TOOL + ", spec: {retry: {attempts: 4, backoff: linear}}}\n" + TAIL),
    # rules on a step with a single tool
    ("DSL129", TOOL + "}\n    spec: {policy: {§rules: [{then: {do: fail}}], on_unmatched: fail}}\n" + TAIL, TOOL + ", spec: {policy: {rules: [{then: {do: fail}}], on_unmatched: fail}}}\n" + TAIL),
    ("DSL129", TOOL + "}\n    spec: {timeout: 5, policy: {§rules: [{then: {do: fail}}], failure: {mode: best_effort}}}\n" + TAIL, TOOL + ", spec: {policy: {rules: [{then: {do: fail}}]}}}\n    spec: {timeout: 5, policy: {failure: {mode: best_effort}}}\n" + TAIL),
    # tasks as keys
    ("DSL120", STEP + "    tool: [{§t: {kind: noop}}, {§u: {kind: noop, name: v}}]\n" + TAIL, STEP + "    tool: [{name: t, kind: noop}, {name: v, kind: noop}]\n" + TAIL),
    ("DSL120", STEP + "    tool: {kind: task_sequence, tasks: [{§t: {kind: noop}}]}\n" + TAIL, STEP + "    tool: [{name: t, kind: noop}]\n" + TAIL),
    # the workbook
    ("DSL104", "§workbook: {w: {kind: noop}}\n" + STEP + TAIL, "workbook: [{name: w, tool: {kind: noop}}]\n" + STEP + TAIL),
    ("DSL104", "§workbook: {w: {desc: d, tool: {kind: noop}}}\n" + STEP + TAIL, "workbook: [{name: w, desc: d, tool: {kind: noop}}]\n" + STEP + TAIL),
    ("DSL105", "workbook: [{name: w, tool: {kind: noop}, §assert: {a: 1}}]\n" + STEP + TAIL, "workbook: [{name: w, tool: {kind: noop}}]\n" + STEP + TAIL),
]  # fmt: skip


@pytest.mark.parametrize(("code", "old", "new"), FORMS)
def test_an_older_form_warns_at_its_place_and_reads_as_the_new_form(code, old, new):
    text, places = marked(HEAD + old)
    parsed, wanted = parse(text), parse(HEAD + new)
    assert wanted.errors == parsed.errors == ()
    found = [(item.span.line, item.span.column) for item in parsed.warnings if item.code == code]
    assert found == places
    assert code not in {item.code for item in wanted.warnings}
    assert parsed.model == wanted.model


def test_a_leading_slash_and_labels_that_are_no_text_are_normalised():
    rest = "workflow: [{step: a}]\n"
    old = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: a, path: /x/y, labels: {{n: 1, t: true, f: 0.5, s: x}}}}\n{rest}"
    new = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: a, path: x/y, labels: {{n: '1', t: 'true', f: '0.5', s: x}}}}\n{rest}"
    parsed = parse(old)
    places = [(item.code, item.span.column) for item in parsed.diagnostics]
    assert places == [("DSL101", 21), ("DSL102", 42), ("DSL102", 48), ("DSL102", 57)]
    assert parsed.model == parse(new).model
    assert parse(new).diagnostics == ()


UNTOUCHED = [
    "workload: {when: outcome, rules: [{when: outcome}]}\n" + STEP,
    STEP + "    input: {policy: {admit: outcome}, arcs: [{cond: outcome}], paginate: {until: outcome}}\n",
    STEP + "    tool: {kind: wait, until: outcome}\n",
    STEP + "    tool: {kind: python, code: 'result = f\"{{ outcome.x }}\"'}\n",
    STEP + "    tool: [{kind: python, name: t, code: 'result = f\"{{ outcome.x }}\"'}]\n",
    STEP + "    tool: {kind: python, script: {uri: x.py, source: {type: inline, code: 'f\"{{ outcome.x }}\"'}}}\n",
    "inputs: {a: {type: string, default: '{{ outcome.x }}'}}\n" + STEP,
    "workbook: [{name: w, tool: {kind: python, code: a}}]\n" + STEP + "    tool: {kind: workbook, name: w, code: 'f\"{{ outcome.x }}\"'}\n",
]  # fmt: skip


@pytest.mark.parametrize("text", UNTOUCHED)
def test_data_of_the_author_and_code_are_no_conditions(text):
    assert "DSL126" not in {item.code for item in parse(HEAD + text).diagnostics}


REFUSED = [
    ("DSL039", STEP + "    set: {§n: 1, ctx.n: 2}\n"),
    ("DSL039", STEP + "    next: {spec: {mode: exclusive}, arcs: []}\n    spec: {§next_mode: inclusive}\n"),
    ("DSL039", STEP + "    §when: x > 1\n    spec: {policy: {admit: y}}\n"),
    ("DSL039", STEP + "    §args: {n: 1}\n    input: {n: 2}\n"),
    ("DSL039", STEP + "    next: {arcs: [{step: a, §cond: x, when: y}]}\n"),
    ("DSL039", STEP + "    next: {arcs: [{step: a, args: {§n: 1, m: 3}, set: {ctx.n: 2}}]}\n"),
    ("DSL039", TOOL + ", §retry: {max_attempts: 4}, spec: {retry: {attempts: 2}}}\n"),
    ("DSL039", TOOL + ", spec: {policy: {rules: []}}}\n    spec: {policy: {§rules: [{then: {do: fail}}]}}\n"),
    ("DSL039", STEP + "    next: [{step: a}]\n    spec: {next_mode: §both}\n"),
    ("DSL080", TOOL + ", §sink: {}}\n"),
    ("DSL080", TOOL + ", §save: {}}\n"),
    ("DSL080", STEP + "    §sink: {}\n"),
    *(("DSL081", STEP + f"    §{name}: []\n") for name in ("case", "type", "pipe", "eval", "expr", "vars", "until")),
    *(("DSL081", TOOL + f", §{name}: []}}\n") for name in ("iterator", "eval", "expr", "case", "pipe", "until", "vars")),
    *(("DSL081", STEP + f"    loop: {{in: 1, iterator: i, §{name}: x}}\n") for name in ("collection", "element", "until", "mode", "max_in_flight")),
    ("DSL081", "§vars: {}\n" + STEP),
    ("DSL081", TOOL + ", spec: {policy: {rules: [{§expr: x, then: {do: fail}}]}}}\n"),
    ("DSL081", TOOL + ", spec: {policy: {rules: [{§eval: x, then: {do: fail}}]}}}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text"), REFUSED)
def test_a_form_without_an_equal_is_refused_once_with_a_hint(code, text):
    text, places = marked(HEAD + text)
    parsed = parse(text)
    assert [(item.code, item.span.line, item.span.column) for item in parsed.errors] == [
        (code, *place) for place in places
    ]
    assert all(item.hint for item in parsed.errors)


@pytest.mark.parametrize(
    "own",
    [
        "workload: {outcome: {x: 1}}\nworkflow:\n  - step: a\n",
        "inputs: {outcome: {type: object}}\nworkflow:\n  - step: a\n",
        "workflow:\n  - step: outcome\n",
        "workflow:\n  - step: a\n    loop: {in: [1], iterator: outcome}\n",
        "workflow:\n  - step: a\n    input: {outcome: {x: 1}}\n",
        "workflow:\n  - step: a\n    next: {arcs: [{step: end, set: {ctx.outcome: 1}}]}\n",
    ],
)
def test_a_name_of_the_author_is_not_the_older_scope(own):
    parsed = parse(HEAD + own + "    tool: {kind: noop, result: '{{ outcome.x }}'}\n")
    assert parsed.errors == ()
    assert parsed.model.workflow[0].tools[0].result == "{{ outcome.x }}"


@pytest.mark.parametrize(
    "text",
    [
        "metadata: 1\nworkbook: 1\nworkflow: 1\n",
        "metadata: {labels: 1}\nworkbook: [1, {tool: 1}]\nworkflow: [1]\n",
        "workflow:\n  - {step: a, when: x, spec: 1, set: 1, set_ctx: 1, loop: 1, next: 1, tool: 1}\n",
        "workflow:\n  - {step: a, when: x, spec: {policy: 1}, next: {arcs: 1}, args: 1, input: 1}\n",
        "workflow:\n  - {step: a, next: {arcs: [1, {step: b, cond: x, when: y, args: 1}]}, tool: [1, {x: 1}]}\n",
        "workflow:\n  - {step: a, tool: {kind: noop, retry: {max_attempts: 2}, spec: 1}, spec: {policy: {rules: 1}}}\n",
        "workflow:\n  - {step: a, tool: {kind: noop, spec: {policy: 1}, retry: 1}, spec: {policy: {rules: [1]}}}\n",
        "workflow:\n  - {step: a, tool: {kind: noop, spec: {policy: {rules: [1, {then: 1}]}}}}\n",
        "workflow:\n  - {step: a, tool: {kind: task_sequence, tasks: 1}, spec: {policy: {rules: []}}}\n",
        "workflow:\n  - {step: a, set_ctx: {n: 1}, set: 1, spec: {next_mode: 1}, next: {arcs: [], spec: 1}}\n",
        "workflow:\n  - {step: a, set_ctx: {n: 1}, set: 1, spec: {next_mode: inclusive}, next: {arcs: [], spec: 1}}\n",
        "workflow:\n  - {step: a, when: '{{ outcome. }}', spec: {policy: {admit: 'outcome.'}}}\n",
        "workflow:\n  - {step: a, next: [1, {step: b}]}\n",
        "workflow:\n  - {step: a, set: {ctx.x: '{{ response }} {{ output[\"res\" ~ 1] }}', x-y: '{{ outcome }}'}}\n",
        "x-a: '{{ outcome }}'\nworkflow: []\n",
    ],
)
def test_a_part_of_a_wrong_type_is_left_to_the_reader(text):
    assert parse("apiVersion: noetl.io/v2\nkind: Playbook\n" + text).errors


def test_refused_keys_stay_when_asked():
    class Recorder:
        def __getattr__(self, name):
            raise AssertionError(name)

    found = []
    upgrade = Upgrade(Recorder(), lambda *told: found.append(told[0]), keeps_refused=True)
    step = {"step": "a", "case": [], "sink": {}}
    upgrade.step(step)
    assert step == {"step": "a", "case": [], "sink": {}}
    assert found == ["DSL080", "DSL081"]


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("tests/compat/*.yaml")), ids=lambda path: path.name
)
def test_the_corpus_of_older_playbooks_is_read_with_the_warnings_it_names(path):
    text = path.read_bytes()
    named = text.decode().replace("\r", "").split("expect-warnings: ")[1].split("\n")[0]
    parsed = parse(text)
    assert parsed.errors == ()
    assert {item.code for item in parsed.warnings} == {*named.split(", ")} - {"none"}
