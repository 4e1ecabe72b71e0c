# ruff: noqa: E501 - one case per line
"""Each lint rule finds its fault at the exact place, and keeps still about the near miss.

`§` marks where the finding must be; it is taken out before the text is read.
"""

from pathlib import Path

import pytest

from noetl.dsl.codes import CODES
from noetl.dsl.lint import RULES, lint
from noetl.dsl.parse import parse
from tests.marks import marked

ROOT = Path(__file__).parents[4]
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\n"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"  # joined late: no file of ours holds a token
RUN = "workflow:\n  - step: start\n"


def found(code, text, known=None):
    parsed = parse(text)
    assert not parsed.errors
    everything = lint(parsed, known_credentials=known)
    assert list(everything) == sorted(everything, key=lambda item: item.span)
    assert all(item.severity == "warning" for item in everything)
    return [(item.span.line, item.span.column) for item in everything if item.code == code]


FINDINGS = [
    # a step without `next` beside a defined `end`
    ("DSL201", RUN + "    next: {arcs: [{step: lost}]}\n  - step: §lost\n  - step: end\n"),
    ("DSL201", RUN + "    next: {arcs: [{step: b}]}\n  - step: §b\n    next: {arcs: []}\n  - step: end\n"),
    # a name read but never written
    ("DSL202", RUN + '    tool: {kind: noop, result: "n {{ §nobody }}"}\n'),
    ("DSL202", RUN + '    tool: {kind: noop, result: "{{ §ctx.cuont }}"}\n    set: {ctx.count: 1}\n'),
    ("DSL202", RUN + "    next: {arcs: [{step: end, when: §steps.other.x}]}\n"),
    ("DSL202", 'workload: {a: 1, b: "{{ a }} {{ §c }}"}\n' + RUN + "    input: {a: '{{ §workload.c }}'}\n"),
    ("DSL202", "inputs: {a: {type: string}}\n" + RUN + "    input: {a: '{{ §workload.b }}'}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, result: '{{ §iter.x }}'}\n    set: {iter.y: 1}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, result: {§'{{ who }}': 1}}\n"),
    ("DSL202", "result:\n  a: |\n    text\n    and {{ §nobody.x }}\n" + RUN),
    (
        "DSL202",
        "workbook:\n  - {name: w, tool: {kind: noop, input: {a: 1}, result: '{{ a }}{{ §b }}'}}\n"
        + RUN + "    tool: {kind: workbook, name: w}\n",
    ),
    ("DSL202", RUN + "    tool:\n      - {name: x, kind: noop, input: {i: 1}}\n"
     "      - {name: y, kind: noop, result: '{{ §i }}'}\n"),
    # a value that looks like a secret
    ("DSL203", RUN + "    tool: {kind: http, url: 'https://x', headers: {X-Api-Key: §abc123}}\n"),
    ("DSL203", "workload: {clientSecret: §hunter2}\n" + RUN),
    ("DSL203", "workload: {note: 'use §ghp_" + LETTERS + "'}\n" + RUN),
    ("DSL203", "workload: {k: ['§AKIA" + "ABCDEFGHIJKLMNOP']}\n" + RUN),
    ("DSL203", "workload:\n  key: |\n    §-----BEGIN RSA" + " PRIVATE KEY-----\n    abc\n" + RUN),
    ("DSL203", "workload: {a: '§eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.c2lnbmF0dXJl'}\n" + RUN),
    ("DSL203", "workload: {a: '§xoxb-1234567890-abc'}\n" + RUN),
    ("DSL203", RUN + "    tool: {kind: http, url: 'https://x', headers: {Authorization: §Bearer abcdefghij}}\n"),
    ("DSL203", "keychain: [{name: k, kind: static, map: {password: §hunter2}}]\n" + RUN),
    # exclusive arcs
    ("DSL204", RUN + "    next: {arcs: [{step: end}, {step: §start, when: a.b}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: '{{ true }}'}, {step: §start}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, on: any}, {step: §start, on: error}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a.b}, {step: §start, when: '{{ a.b }}'}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {§arcs: [{step: end, when: a > 1}, {step: start, when: a < 1}]}\n"),
    ("DSL204", RUN + "    next: {§arcs: [{step: end, when: a}, {step: start, when: b}]}\n"),
    ("DSL204", RUN + "    next: {§arcs: [{step: end, when: '{{ a }}{{ b }}'}, {step: start, when: 1 < b < 2}]}\n"),
    ("DSL204", RUN + "    next: {§arcs: [{step: end, when: a in b}, {step: start, when: '7'}]}\n"),
    # a network tool without a timeout
    ("DSL205", RUN + "    tool: {kind: §http, url: 'https://x'}\n"),
    ("DSL205", RUN + "    tool:\n      - {name: x, kind: §mcp, server: s}\n"),
    ("DSL205", "executor: {spec: {policy: {defaults: {idempotent: true}}}}\n" + RUN
     + "    spec: {policy: {lifecycle: {deadline_s: 5}}}\n    tool: {kind: §http, url: 'https://x'}\n"),
    # a retry of a call that may act twice
    ("DSL206", RUN + "    tool: {kind: shell, command: date, spec: {§retry: {attempts: 2}}}\n"),
    ("DSL206", RUN + "    tool: {kind: mcp, server: s, timeout: 1, spec: {policy: {rules: [\n"
     "      {when: output.error.retryable, then: {do: §retry}}, {else: {do: fail}}]}}}\n"),
    ("DSL206", "executor: {spec: {policy: {defaults: {retry: {attempts: 2}}}}}\n" + RUN
     + "    tool: {kind: §shell, command: date}\n"),
    ("DSL206", RUN + "    spec: {idempotent: false}\n"
     "    tool: {kind: shell, command: echo $NOETL_IDEMPOTENCY_KEY, spec: {§retry: {}}}\n"),
    # untrusted text
    ("DSL207", "workload: {file: x}\n" + RUN + "    tool: {kind: shell, command: 'rm §{{ workload.file }}'}\n"),
    ("DSL207", "workload: {file: x}\n" + RUN + "    tool: {kind: shell, cmds: ['rm §{{ file | upper }}']}\n"),
    ("DSL207", RUN + "    tool: {kind: duckdb, sql: \"select §{{ '1' if start else input.x }}\"}\n"),
    ("DSL207", RUN + "    tool:\n      kind: duckdb\n      sql: |\n        {% for r in start.rows %}\n"
     "        {% set t = r.x %} §{{ t }}\n        {% endfor %}\n"),
    ("DSL207", RUN + "    loop: {in: [1], iterator: i}\n"
     "    tool: [{name: t, kind: duckdb, sql: 'select §{{ i }}, §{{ iter.i }}'}]\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, command: 'echo §{{ n + 1 }} §{{ [n, 2] | join }} §{{ ctx.x | default(n) }} {{ n is none }}'}\n"),
    # what nothing uses
    ("DSL208", "workbook: [{name: §w, tool: {kind: noop}}]\n" + RUN),
    ("DSL208", "keychain: [{name: §k, kind: static, map: {a: b}}]\n" + RUN),
    ("DSL208", "workload: {§never_read: 1}\n" + RUN + "    tool: {kind: python, code: 'result = 1'}\n"),
    ("DSL208", "workload: {§a: 1, request_id: 2}\nexecutor: {runtime: yaml}\n" + RUN
     + "    tool: {kind: gateway}\n"),
    ("DSL208", "keychain: [{name: §k, kind: static, map: {a: b}}]\n" + RUN
     + "    tool: {kind: python, code_b64: cmVzdWx0ID0gMQ==}\n"),
    # a loop over an unbounded source
    ("DSL209", RUN + "    loop: {in: §'{{ workload.rows }}', iterator: r, spec: {mode: parallel}}\n"),
]  # fmt: skip
STILL = [
    ("DSL201", RUN + "    next: {arcs: [{step: end}]}\n"),
    ("DSL201", "executor: {spec: {final_step: z}}\n" + RUN
     + "    next: {arcs: [{step: end}]}\n  - step: z\n  - step: end\n"),
    ("DSL202", RUN + '    tool: {kind: noop, result: "{{ nobody | default(1) }} {{ a.b is defined }}"}\n'),
    ("DSL202", "workload: {a: '{{ request_id }}'}\n" + RUN + "    input: {x: '{{ a }} {{ workload.a.b }}'}\n"),
    ("DSL202", RUN + "    input: {x: '{{ workload.anything }}'}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, result: '{{ workload }} {{ ctx }} {{ steps.start }}'}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, set: {ctx.a.b: 1}}\n    set: {ctx.c: '{{ ctx.a.z }} {{ a }}'}\n"),
    ("DSL202", RUN + "    next: {arcs: [{step: end, set: {ctx.n: 1}}]}\nresult: '{{ n }}'\n"),
    ("DSL202", RUN + "    loop: {in: [1], iterator: i}\n    tool:\n"
     "      - {name: t, kind: noop, result: '{{ i }} {{ iter.i }} {{ iter._last }} {{ _index }} {{ loop.index }}'}\n"
     "      - {name: u, kind: noop, result: '{{ t.x }} {{ _prev }} {{ results.t }}'}\n"),
    ("DSL202", RUN + "    loop: {iterator: r, cursor: {kind: nats, stream: s, consumer: c}}\n"
     "    tool: {kind: noop, result: '{{ frame.rows }} {{ __frame_max_rows }}'}\n"),
    ("DSL202", RUN + "    input: {x: 1}\n    tool: {kind: http, url: '{{ x }}/{{ y }}', input: {y: 2}, timeout: 1,\n"
     "      paginate: {next: '{{ page.next }}'}}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, result: '{{ iter.pages }} {{ whole }}',\n"
     "      output: {as: whole, accumulate: {manifest_as: pages}}}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, result: '{% for x in [1] %}{{ x }}{% endfor %}'}\n    output: {scope: step}\n"),
    ("DSL202", "workbook: [{name: w, tool: {kind: noop, result: '{{ a }}'}}]\n" + RUN
     + "    tool: {kind: workbook, name: w, input: {a: 1}}\n"),
    ("DSL203", "workload: {token: '', password: '{{ x }}', api_key: <yours>, secret: '***', max_tokens: 5}\n" + RUN),
    ("DSL203", RUN + "    tool: {kind: http, url: 'https://x', auth: my_token, params: {page_token: abc}}\n"),
    ("DSL203", "keychain: [{name: k, kind: secret_manager, provider: vault, map: {password: kv/mail}}]\n" + RUN),
    ("DSL203", RUN + "    tool: {kind: container, image: i, timeout: 1,\n"
     "      env: [{name: K, value_from: {secret_name: a, secret_key: b}}]}\n"),
    ("DSL203", RUN + "    tool: {kind: http, url: 'https://x', headers: {Authorization: 'Bearer {{ keychain.k.t }}',\n"
     "      X: sk-short}, timeout: 1}\nkeychain: [{name: k, kind: credential, credential: c}]\n"),
    ("DSL203", RUN + "    tool: {kind: http, url: 'https://x', headers: {Authorization: none}}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: start, when: a.b}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: start, when: a.b}]}\n"),
    ("DSL204", RUN + "    next: {spec: {mode: inclusive}, arcs: [{step: end}, {step: start, when: a}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end}, {step: start, on: error}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a}, {step: start, when: not a}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a == b}, {step: start, when: '{{ a != b }}'}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a < b}, {step: start, when: a >= b}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a < b}, {step: start, when: b <= a}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a < 1}, {step: start, when: a == 1}, {step: end, when: a > 1}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a in b}, {step: start, when: a not in b}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a is none}, {step: start, when: a is not none}]}\n"),
    ("DSL204", RUN + "    next: {spec: {on_no_match: complete}, arcs: [{step: end, when: a}, {step: start, when: b}]}\n"),
    ("DSL204", "executor: {spec: {no_next_is_error: true}}\n" + RUN
     + "    next: {arcs: [{step: end, when: a}, {step: start, when: b}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: event.name == 'call.done'}, {step: start, when: x > 1}]}\n"),
    ("DSL204", RUN + "    loop: {in: 3, iterator: i}\n"
     "    next: {arcs: [{step: start, when: x > 1}, {step: end, when: event.name == 'loop.done'}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: output.status == 'error'}, {step: end, when: x}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: false}, {step: end, when: '{{ false }}'}, {step: end, when: x}]}\n"),
    ("DSL205", RUN + "    tool: {kind: http, url: 'https://x', timeout: 5}\n"),
    ("DSL205", RUN + "    tool: {kind: http, url: 'https://x', spec: {timeout: 5}}\n"),
    ("DSL205", RUN + "    spec: {timeout: 9}\n    tool: {kind: http, url: 'https://x'}\n"),
    ("DSL205", RUN + "    spec: {policy: {lifecycle: {timeout_s: 9}}}\n    tool: {kind: http, url: 'https://x'}\n"),
    ("DSL205", "executor: {spec: {policy: {defaults: {timeout: 5}}}}\n" + RUN + "    tool: {kind: http, url: 'https://x'}\n"),
    ("DSL205", RUN + "    tool: {kind: nats, operation: request, subject: s, timeout_ms: 5}\n"),
    ("DSL205", RUN + "    tool: {kind: python, code: 'result = 1'}\n"),
    ("DSL206", RUN + "    tool: {kind: shell, command: date, spec: {idempotent: true, retry: {}}}\n"),
    ("DSL206", RUN + "    spec: {idempotent: true}\n    tool: {kind: shell, command: date, spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: shell, argv: [x, $NOETL_IDEMPOTENCY_KEY], spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    input: {idempotency_key: '{{ execution_id }}'}\n    tool: {kind: shell, command: x, spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: shell, command: date, spec: {retry: {attempts: 1}}}\n"),
    ("DSL206", RUN + "    tool: {kind: shell, command: date, spec: {policy: {rules: [{then: {do: fail}}]}}}\n"),
    ("DSL206", RUN + "    tool: {kind: mcp, server: s, method: tools/list, timeout: 1, spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: http, method: POST, url: 'https://x', spec: {retry: {}}}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, command: 'echo {{ n | int }} {{ execution_id }}'}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: duckdb, sql: 'select {{ n | sql_literal }}'}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: duckdb, sql: \"select {{ 'a' if n > 1 else 'b' }}\"}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, argv: [echo, '{{ n }}'], env: {N: '{{ n }}'}}\n"),
    ("DSL207", RUN + "    tool: {kind: duckdb, sql: \"{% set t = 'x' %}select '{{ t }}'\"}\n"),
    ("DSL207", "workbook:\n  - {name: w, tool: {kind: duckdb, sql: 'select {{ ctx.t }}'}}\n" + RUN
     + "    set: {ctx.t: 1}\n"),
    ("DSL208", "workbook: [{name: w, tool: {kind: noop}}]\n" + RUN + "    tool: {kind: workbook, name: w}\n"),
    ("DSL208", "keychain: [{name: k, kind: static, map: {a: b}}]\n" + RUN + "    tool: {kind: http, url: '{{ keychain.k.a }}'}\n"),
    ("DSL208", "keychain: [{name: k, kind: static, map: {a: b}}]\n" + RUN + "    tool: {kind: http, url: 'https://x', auth: k}\n"),
    ("DSL208", "workload: {a: 1, b: 2, x-c: 3}\n" + RUN + "    input: {p: '{{ workload.a }}', q: '{{ b.c }}'}\n"),
    ("DSL208", "workload: {a: 1}\n" + RUN + "    input: {p: '{{ workload | tojson }}'}\n"),
    ("DSL208", "workload: {a: 1}\n" + RUN + "    tool: {kind: python, code: 'result = context[\"workload\"]'}\n"),
    ("DSL208", "workload: {a: 1}\n" + RUN + "    tool: {kind: python, code_b64: cmVzdWx0ID0gMQ==}\n"),
    ("DSL208", "workload: {a: 1}\nexecutor: {runtime: wasm, plugin: {path: p}}\n" + RUN),
    ("DSL209", RUN + "    loop: {in: '{{ workload.r }}', iterator: r, spec: {mode: parallel, max_in_flight: 4}}\n"),
    ("DSL209", RUN + "    loop: {in: '{{ workload.r }}', iterator: r}\n"),
    ("DSL209", RUN + "    loop: {in: '{{ range(3) }}', iterator: r, spec: {mode: parallel}}\n"),
    ("DSL209", RUN + "    loop: {in: [1, 2], iterator: r, spec: {mode: parallel}}\n"),
    ("DSL209", RUN + "    loop: {in: 'a, b', iterator: r, spec: {mode: parallel}}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text"), FINDINGS)
def test_a_rule_finds_its_fault_at_the_exact_place(code, text):
    clean, places = marked(HEAD + text)
    assert found(code, clean) == places


@pytest.mark.parametrize(("code", "text"), STILL)
def test_a_rule_keeps_still_about_the_near_miss(code, text):
    assert found(code, HEAD + text) == []


def test_an_unknown_credential_is_found_wherever_an_alias_may_stand():
    clean, places = marked(
        HEAD
        + """\
keychain:
  - {name: k, kind: credential, credential: §nope}
executor: {spec: {policy: {results: {store: {credential: §nope}}}}}
workbook:
  - {name: w, tool: {kind: postgres, auth: §nope, command: select 1}}
workflow:
  - step: start
    tool:
      - {kind: postgres, auth: §warehous, command: select 1}
      - {kind: postgres, auth: warehouse, command: select 1}
      - {kind: postgres, auth: '{{ workload.db }}', command: select 1}
      - {kind: postgres, auth: k, command: select 1}
      - {kind: http, url: 'https://x', auth: {type: bearer, credential: §nope}}
      - {kind: ducklake, catalog: §lake, data_path: s3://x, command: select 1}
      - {kind: python, code: result = 1, input: {auth: not_an_alias}}
      - {kind: workbook, task: w}
"""
    )
    assert found("DSL210", clean, known=frozenset({"warehouse"})) == places
    assert found("DSL210", clean) == []


def test_an_ignore_comment_silences_only_its_rule_on_only_its_line():
    text = HEAD + (
        "workflow:\n"
        "  - step: start\n"
        "    tool: {kind: http, url: 'https://x', auth: {password: abcdefg}}  # noetl: ignore DSL205\n"
        "    next: {arcs: [{step: b}]}\n"
        "  - step: b  # noetl: ignore DSL205\n"
        "    tool: {kind: http, url: 'https://x'}\n"
    )
    assert found("DSL205", text) == [(9, 18)]
    assert found("DSL203", text) == [(6, 59)]


@pytest.mark.parametrize("comment", ["DSL203, DSL205", "DSL205 DSL203", "DSL203,DSL205 because"])
def test_one_comment_may_name_several_codes(comment):
    line = "    tool: {kind: http, url: 'https://x', auth: {password: abcdefg}}"
    text = f"{HEAD}{RUN}{line}  #noetl: ignore {comment}\n"
    assert lint(parse(text)) == ()


def test_warnings_of_the_parser_can_be_silenced_and_errors_cannot():
    text = (
        HEAD + RUN + "    next: end  # noetl: ignore DSL123\n    bogus: 1  # noetl: ignore DSL030\n"
    )
    assert [item.code for item in lint(parse(text))] == ["DSL030"]


def test_a_document_with_errors_is_not_linted_further():
    parsed = parse(HEAD + RUN + "    tool: {kind: http}\n")
    assert lint(parsed) == parsed.diagnostics
    assert [item.code for item in lint(parsed)] == ["DSL051"]


def test_a_text_without_lines_is_no_trouble():
    parsed = parse("")
    assert lint(parsed) == parsed.diagnostics


def test_other_kinds_have_no_rules():
    text = "apiVersion: noetl.io/v2\nkind: PlaybookTest\nmetadata: {name: a, path: /a}\nspec: {playbook: b, cases: []}\n"
    parsed = parse(text)
    assert lint(parsed) == parsed.diagnostics


def test_every_rule_is_a_documented_warning():
    assert list(RULES) == [f"DSL{number}" for number in range(201, 211)]
    assert {*RULES} <= {*CODES}


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_clean(path):
    assert lint(parse(path.read_bytes())) == ()
