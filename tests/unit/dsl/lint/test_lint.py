# ruff: noqa: E501, S608 - one case per line; the SQL in them is read, never run
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
    ("DSL202", RUN + "    input: {q: 1}\n    tool: {kind: noop, input: {r: 1}, result: '{{ input.q }} {{ args.r }} {{ §input.qq }}'}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, set: {ctx.a: \"{{ §args['q'] }}\"}}\n"),
    ("DSL202", "result: '{{ execution.id }} {{ execution.trace.id }} {{ §execution.idd }}'\n" + RUN),
    ("DSL202", RUN + "    set: {ctx.a: '{{ output.error.kind }} {{ output.error.details.body }} {{ §output.error.knd }}'}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, spec: {policy: {rules: [{when: §output.error.kid == 'x', then: {do: fail}}]}}}\n"),
    ("DSL202", RUN + "    input: {a: '{{ §event.name }}'}\n    tool: {kind: noop, input: {b: '{{ §output.data }}'}, result: '{{ §output }}'}\n"),
    ("DSL202", RUN + "    tool: {kind: duckdb, sql: 'select {{ §output.n | int }}'}\n"),
    ("DSL202", RUN + "    tool:\n      - {name: x, kind: shell, command: 'echo {{ §event.payload | int }}'}\n"),
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
    ("DSL203", RUN + "    tool: {kind: http, url: 'https://u:§p4ssw0rd@host/'}\n"),
    ("DSL203", "workload: {a: 'redis://:§hunter2@{{ b }}', b: h}\n" + RUN),
    ("DSL203", "workload: {a: 'x {{ b }}://{{ b }}:§pw@h', b: h}\n" + RUN),
    ("DSL203", "workload: {a: 'ftp://u:***@h and ftp://u:§pw@h'}\n" + RUN),
    # exclusive arcs
    ("DSL204", RUN + "    next: {arcs: [{step: end}, {step: §start, when: a.b}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: '{{ true }}'}, {step: §start}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, on: any}, {step: §start, on: error}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: a.b}, {step: §start, when: '{{ a.b }}'}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {§arcs: [{step: end, when: a > 1}, {step: start, when: a < 1}]}\n"),
    ("DSL204", RUN + "    next: {§arcs: [{step: end, when: a}, {step: start, when: b}]}\n"),
    ("DSL204", RUN + "    next: {§arcs: [{step: end, when: '{{ a }}{{ b }}'}, {step: start, when: 1 < b < 2}]}\n"),
    ("DSL204", RUN + "    next: {§arcs: [{step: end, when: a in b}, {step: start, when: '7'}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: n > 3}, {step: §start, when: n > 5}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: n >= 3}, {step: §start, when: '{{ 3.0 < n }}'}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: 3 >= n}, {step: §start, when: n <= 3.0}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: n < 0}, {step: §start, when: n <= -1}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: output.status == 'ok' and n > 3}, {step: end, when: a.n <= 4}, {step: §start, when: a.n < 4}, {step: end}]}\n"),
    # a network tool without a timeout
    ("DSL205", RUN + "    tool: {kind: §http, url: 'https://x'}\n"),
    ("DSL205", RUN + "    tool:\n      - {name: x, kind: §mcp, server: s}\n"),
    ("DSL205", "executor: {spec: {policy: {defaults: {idempotent: true}}}}\n" + RUN
     + "    spec: {policy: {lifecycle: {deadline_s: 5}}}\n    tool: {kind: §http, url: 'https://x'}\n"),
    ("DSL205", RUN + "    tool: [{kind: §postgres, auth: a, command: select 1}, {kind: §s3, operation: get, bucket: b},\n"
     "      {kind: §gcs, operation: get, bucket: b}, {kind: §ducklake, catalog: c, data_path: s3://x, command: select 1},\n"
     "      {kind: §snowflake_transfer, source: {kind: http, url: u}, target: {kind: s3, uri: s3://x}}]\n"),
    # a retry of a call that may act twice
    ("DSL206", RUN + "    tool: {kind: shell, command: date, spec: {§retry: {attempts: 2}}}\n"),
    ("DSL206", RUN + "    tool: {kind: mcp, server: s, timeout: 1, spec: {policy: {rules: [\n"
     "      {when: output.error.retryable, then: {do: §retry}}, {else: {do: fail}}]}}}\n"),
    ("DSL206", "executor: {spec: {policy: {defaults: {retry: {attempts: 2}}}}}\n" + RUN
     + "    tool: {kind: §shell, command: date}\n"),
    ("DSL206", RUN + "    spec: {idempotent: false}\n"
     "    tool: {kind: shell, command: echo $NOETL_IDEMPOTENCY_KEY, spec: {§retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: insert into t values (1), spec: {§retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: sqlite, path: f, command: [select 1, 'UPDATE t SET n = n + 1'], spec: {§retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: duckdb, database: f.db, commands: ['select 1; delete from t'], spec: {§retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: duckdb, command: \"ATTACH 'f.db' AS f; insert into f.t values (1)\", spec: {§retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: duckdb, attach: [{path: f.db}], command: insert into f.t values (1), spec: {§retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: ducklake, catalog: c, data_path: s3://x, command: insert into t values (1), spec: {§retry: {}}}\n"),
    ("DSL206", RUN + "    tool:\n      kind: snowflake\n      command: |\n        -- don't\n        {% if true %}/* now */ MERGE INTO t USING u ON t.a = u.a{% endif %}\n      spec: {§retry: {}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: 'with x as (delete from t returning *) select 1', spec: {policy: {rules: [{then: {do: §retry}}]}}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: 'insert into a values (1) on conflict do nothing; insert into b values (2)', spec: {§retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: \"select ';--'; insert into t values (1)\", spec: {§retry: {}}}\n"),
    ("DSL206", "executor: {spec: {policy: {defaults: {retry: {attempts: 2}}}}}\n" + RUN
     + "    tool: {kind: §postgres, auth: a, command: delete from t}\n"),
    ("DSL206", "executor: {spec: {policy: {defaults: {policy: {rules: [{then: {do: retry}}]}}}}}\n" + RUN
     + "    tool: [{kind: §shell, command: date}, {kind: shell, command: date, spec: {policy: {rules: [{then: {do: fail}}]}}}]\n"),
    # untrusted text
    ("DSL207", "workload: {file: x}\n" + RUN + "    tool: {kind: shell, command: 'rm §{{ workload.file }}'}\n"),
    ("DSL207", "workload: {file: x}\n" + RUN + "    tool: {kind: shell, cmds: ['rm §{{ file | upper }}']}\n"),
    ("DSL207", RUN + "    tool: {kind: duckdb, sql: \"select §{{ '1' if start else input.x }}\"}\n"),
    ("DSL207", RUN + "    tool:\n      kind: duckdb\n      sql: |\n        {% for r in start.rows %}\n"
     "        {% set t = r.x %} §{{ t }}\n        {% endfor %}\n"),
    ("DSL207", RUN + "    loop: {in: [1], iterator: i}\n"
     "    tool: [{name: t, kind: duckdb, sql: 'select §{{ i }}, §{{ iter.i }}'}]\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, command: 'echo §{{ n + 1 }} §{{ [n, 2] | join }} §{{ ctx.x | default(n) }} {{ n is none }}'}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, argv: [sh, -c, 'ls §{{ workload.n }}']}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, argv: [/bin/bash, --norc, -ec, 'ls §{{ n }}', '{{ n }}']}\n"),
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
    ("DSL202", RUN + "    input: {'{{ execution_id }}': 1}\n    tool: {kind: noop, result: '{{ input.q }}'}\n    set: {ctx.a: '{{ input.q }}'}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, result: '{{ input.q | default(1) }} {{ input }} {{ input.items() }}'}\n"),
    ("DSL202", RUN + "    tool: {kind: noop, set: {ctx.a: '{{ output.n }}'}, spec: {policy: {rules: [{when: output.n, then: {do: retry, delay: '{{ output.error.retry_after_s }}'}}]}}}\n"
     "    set: {ctx.b: '{{ event.name }}'}\n    next: {arcs: [{step: end, when: event.name == 'call.done', set: {ctx.c: '{{ output.error }}'}}]}\n"),
    ("DSL202", "workload: {event: 1}\n" + RUN + "    input: {output: 1}\n    tool: {kind: noop, result: '{{ event.id }} {{ output.x }}'}\n"),
    ("DSL202", RUN + "    loop: {in: [1], iterator: event}\n    tool: {kind: noop, result: '{{ event.id }}'}\n"),
    ("DSL202", RUN + "    loop: {in: [1], iterator: i, spec: {max_in_flight: '{{ output.n }}'}}\n"),
    ("DSL202", RUN + "    loop: {iterator: i, cursor: {kind: nats, stream: '{{ output.n }}', consumer: c}}\n"),
    ("DSL203", RUN + "    tool: {kind: http, url: 'https://u:{{ keychain.k.p }}@host/', timeout: 1}\nkeychain: [{name: k, kind: credential, credential: c}]\n"),
    ("DSL203", "workload: {a: 'https://u:@host/', b: 'https://u@host:80/x:y@z', c: 'https://u:<password>@h', d: 'https://h?a=b:c@d'}\n" + RUN),
    ("DSL203", RUN + "    tool: {kind: shell, command: 'psql postgres://u:$PGPASSWORD@h/db'}\n"),
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
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: n > 5}, {step: start, when: n > 3}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: n > 3}, {step: start, when: n >= 3}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: n > 3}, {step: start, when: m > 5}, {step: start, when: n < 9}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: n > -x}, {step: start, when: n > true}, {step: start, when: n in 7}, {step: end}]}\n"),
    ("DSL204", RUN + "    next: {arcs: [{step: end, when: n > 3}, {step: start, when: n > 5, on: error}, {step: end}]}\n"),
    ("DSL205", RUN + "    tool: {kind: postgres, auth: a, command: select 1, statement_timeout: 5}\n"),
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
    ("DSL206", RUN + "    tool: {kind: nats, operation: js_publish, subject: s, spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: insert into t values (1) on conflict (id) do update set n = 1, spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: sqlite, path: f, command: insert or replace into t values (1), spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: 'select (a) from t where b = ''delete'' for update -- (insert', spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: 'select deleted from t', commands: [select 1], spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, script: {uri: s3://x}, spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: insert into t values (1)}\n"),
    ("DSL206", RUN + "    tool: {kind: postgres, auth: a, command: 'insert into t (idempotency_key) values (%s)', spec: {retry: {}}}\n"),
    ("DSL206", RUN + "    tool: {kind: duckdb, command: create table t (a int); insert into t values (1), spec: {retry: {}}}\n"),
    ("DSL206", "executor: {spec: {policy: {defaults: {idempotent: true, retry: {}}}}}\n" + RUN + "    tool: {kind: shell, command: date}\n"),
    ("DSL206", "executor: {spec: {policy: {defaults: {timeout: 5}}}}\n" + RUN + "    tool: {kind: shell, command: date}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, command: 'echo {{ n | int }} {{ execution_id }}'}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: duckdb, sql: 'select {{ n | sql_literal }}'}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: duckdb, sql: \"select {{ 'a' if n > 1 else 'b' }}\"}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, argv: [echo, '{{ n }}'], env: {N: '{{ n }}'}}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, argv: [sh, -c, 'ls \"$1\" {{ n | int }}', '{{ n }}']}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: shell, argv: [sh, run.sh, '{{ n }}']}\n"),
    ("DSL207", "workload: {n: 1}\n" + RUN + "    tool: {kind: container, image: i, command: ['{{ n }}'], args: [-c, '{{ n }}'], timeout: 1}\n"),
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
executor: {spec: {policy: {results: {store: {kind: s3, bucket: b, credential: §nope}}}}}
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
    assert list(RULES) == ["DSL116", *(f"DSL{number}" for number in range(201, 211))]
    assert {*RULES} <= {*CODES}


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_clean(path):
    assert lint(parse(path.read_bytes())) == ()


def test_an_unused_workload_key_is_named_by_its_pointer():
    (item,) = lint(parse(HEAD + "workload: {n: 1}\n" + RUN))
    assert (item.code, item.pointer) == ("DSL208", "/workload/n")


def test_a_directive_that_does_not_exist_is_found_at_its_place():
    clean, places = marked(
        HEAD
        + """\
workload:
  region: eu  # ui:title=Region §ui:enm=[eu, us]
  nested:     # §ui:titles=Nested
    deep: "a # ui:x"  # ui:enum=[a, b] §ui:
    flow: {a: 1, b: 2}  # §ui:secrets
    quiet: 1  # ui:secrets # noetl: ignore DSL116
  plain: 1    # see gui:enm, https://ui:enm
"""
        + RUN
        + "    input: {w: '{{ workload }}'}  # ui:enm\n"
    )
    everything = [item for item in lint(parse(clean)) if item.code == "DSL116"]
    assert [(item.span.line, item.span.column) for item in everything] == places
    assert [(item.message, item.hint, item.pointer) for item in everything[:2]] == [
        ("there is no directive `ui:enm`", "did you mean `enum`?", "/workload/region"),
        ("there is no directive `ui:titles`", "did you mean `title`?", "/workload/nested"),
    ]


def test_a_playbook_without_workload_has_no_directives():
    assert found("DSL116", HEAD + RUN + "    desc: x  # ui:enm\n") == []


def test_every_finding_is_told():
    keys = ", ".join(f"k{number}: 1" for number in range(1200))
    assert len(found("DSL208", HEAD + "workload: {" + keys + "}\n" + RUN)) == 1200
