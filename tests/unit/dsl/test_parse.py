"""From text to model: all faults in one pass, the normal form, and the rules of the language."""

from textwrap import dedent

import pytest

from noetl.dsl.diagnostics import MOST_DIAGNOSTICS, InvalidDocument
from noetl.dsl.parse import Parsed, parse, read
from noetl.dsl.playbook.document import Playbook
from noetl.dsl.playbook.policy import AdmitRule
from noetl.dsl.playbook.step import Step
from noetl.dsl.subscription.document import Subscription

HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo, path: demo/it}
"""


def book(body: str) -> str:
    return HEAD + dedent(body)


def steps(body: str) -> str:
    return HEAD + "workflow:\n" + dedent(body)


def found(parsed: Parsed) -> list[tuple[str, int, int]]:
    return [(item.code, item.span.line, item.span.column) for item in parsed.diagnostics]


def model(text: str) -> Playbook:
    return read(text, Playbook)


def step(text: str, name: str) -> Step:
    result = model(text).step(name)
    assert result is not None
    return result


def test_an_unknown_key_names_its_place_and_the_nearest_key() -> None:
    parsed = parse(HEAD + "worklow: []\nworkflow: [{step: start}]\n")
    assert [item.as_json() for item in parsed.diagnostics] == [
        {
            "code": "DSL030",
            "severity": "error",
            "message": "unknown key `worklow`",
            "hint": "did you mean `workflow`?",
            "line": 4,
            "column": 1,
            "end_line": 4,
            "end_column": 8,
            "pointer": "/worklow",
            "doc": "/docs/reference/dsl-errors#dsl030",
        }
    ]


def test_a_misspelt_required_key_is_one_finding() -> None:
    text = steps("- {step: start, loop: {inn: [1], itertor: i}}\n- {stepp: a}\n")
    assert found(parse(text)) == [("DSL030", 5, 24), ("DSL030", 5, 34), ("DSL030", 6, 4)]
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {nmae: a}\nworkflow: [{step: s}]\n"
    assert found(parse(text)) == [("DSL037", 3, 12)]


def test_ten_faults_give_ten_diagnostics_in_the_order_of_the_text() -> None:
    parsed = parse(
        book("""\
        metdata: 1
        workload: [1]
        executor: {profile: lokal}
        keychain: [{name: a}]
        triggers: [{cron: "* * * * * *"}]
        workflow:
          - step: 1
          - step: a
            tool: {kind: htpp}
            nxt: b
            next: {arcs: [{step: nowhere}]}
            loop: {in: "{{ x", iterator: i}
        """)
    )
    assert [item.code for item in parsed.errors] == [
        "DSL030", "DSL038", "DSL039", "DSL037", "DSL070",
        "DSL038", "DSL050", "DSL030", "DSL018", "DSL042",
    ]  # fmt: skip
    assert found(parsed) == sorted(found(parsed), key=lambda item: (item[1], item[2]))


def test_at_most_two_hundred_diagnostics_are_kept_and_the_rest_is_counted() -> None:
    keys = "".join(f"zz{index}: 1\n" for index in range(MOST_DIAGNOSTICS + 5))
    parsed = parse(HEAD + keys + "workflow: [{step: start}]\n")
    assert (len(parsed.diagnostics), parsed.overflow) == (MOST_DIAGNOSTICS, 5)


def test_read_raises_with_every_diagnostic() -> None:
    with pytest.raises(InvalidDocument) as caught:
        read(HEAD + "workflow: [{step: start, a: 1, b: 2}]\n", Playbook, name="a.yaml")
    assert (caught.value.code, caught.value.status) == ("invalid_playbook", 422)
    assert str(caught.value) == "2 errors in a.yaml"
    assert [item.code for item in caught.value.diagnostics] == ["DSL030", "DSL030"]


def test_read_refuses_a_document_of_another_kind() -> None:
    with pytest.raises(InvalidDocument) as caught:
        read(HEAD + "workflow: [{step: start}]\n", Subscription)
    assert str(caught.value) == "1 error"
    assert caught.value.diagnostics[0].message == "expected Subscription, found Playbook"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", [("DSL021", 1, 1)]),
        ("- a\n", [("DSL038", 1, 1)]),
        ("just text\n", [("DSL038", 1, 1)]),
        ("# c\n\nmetadata: {name: a}\n", [("DSL021", 3, 1)]),
        ("kind: 7\n", [("DSL038", 1, 7)]),
        ("kind: Playbok\n", [("DSL020", 1, 7)]),
        ("kind: [\n", [("DSL001", 2, 1)]),
    ],
)
def test_a_document_without_a_known_kind_is_refused(
    text: str, where: list[tuple[str, int, int]]
) -> None:
    parsed = parse(text)
    assert (found(parsed), parsed.model, parsed.kind) == (where, None, "")


def test_the_kind_is_matched_in_any_case() -> None:
    text = "apiVersion: noetl.io/v10\nkind: PLAYBOOK\nmetadata: {name: a}\nworkflow: [{step: s}]\n"
    assert (model(text).kind, model(text).path) == ("Playbook", "a")


def test_an_agent_is_a_playbook_with_a_warning() -> None:
    text = "apiVersion: noetl.io/v2\nkind: Agent\nmetadata: {name: a}\nworkflow: [{step: s}]\n"
    parsed = parse(text)
    assert found(parsed) == [("DSL103", 2, 7)]
    assert isinstance(parsed.model, Playbook)
    assert parsed.model.metadata.agent is True


def test_extension_keys_are_kept_everywhere_and_never_read() -> None:
    text = book("""\
    x-team: {on: call}
    workflow:
      - step: start
        x-note: [1]
        tool: {kind: noop, x-tool: 1}
    """)
    first = step(text, "start")
    assert model(text).extra == {"x-team": {"on": "call"}}
    assert (first.extra, first.tools[0].extra) == ({"x-note": [1]}, {"x-tool": 1})


def test_literals_keep_their_type() -> None:
    text = steps("""\
    - step: start
      tool: {kind: python, code: "result = 1",
             input: {a: "007", b: "1e5", c: "true", d: "[1]", e: 7, f: true}}
    """)
    assert step(text, "start").tools[0].input == {
        "a": "007", "b": "1e5", "c": "true", "d": "[1]", "e": 7, "f": True,
    }  # fmt: skip


# ---------------------------------------------------------------------------- normal form


def test_a_name_and_a_list_of_next_become_arcs() -> None:
    text = steps("""\
    - {step: start, next: [a, b]}
    - {step: a, next: b}
    - {step: b, next: [{step: a, when: "{{ x }}"}, {step: end}]}
    - {step: c, spec: {next_mode: inclusive}, next: [{step: end, when: true}]}
    """)
    parsed = parse(text)
    assert {item.code for item in parsed.diagnostics} == {"DSL123", "DSL114"}
    book_model = parsed.model
    assert isinstance(book_model, Playbook)
    routes = [
        (item.next.mode, [(arc.step, arc.when) for arc in item.arcs])
        for item in book_model.workflow
        if item.next
    ]
    assert routes == [
        ("inclusive", [("a", None), ("b", None)]),
        ("exclusive", [("b", None)]),
        ("exclusive", [("a", "{{ x }}"), ("end", None)]),
        ("inclusive", [("end", True)]),
    ]


def test_aliases_read_as_the_key_they_stand_for() -> None:
    one = steps("""\
    - step: start
      input: {a: 1}
      tool: {kind: postgres, auth: db, command: "select 1", timeout: 5}
    """)
    other = steps("""\
    - step: start
      input: {a: 1}
      tool: {kind: postgres, credential: db, sql: "select 1", spec: {timeout: 5}}
    """)
    assert step(other, "start").tools[0].auth == "db"
    assert [task.timeout for task in step(other, "start").tools] == [5]
    assert step(one, "start").tools[0].input == step(other, "start").tools[0].input
    assert step(one, "start").tools[0].command == step(other, "start").tools[0].command  # type: ignore[attr-defined] - postgres


def test_two_spellings_of_one_key_are_refused() -> None:
    text = steps("""\
    - step: start
      tool: {kind: http, url: "http://a", endpoint: "http://b"}
    """)
    assert found(parse(text)) == [("DSL039", 6, 39)]


def test_admission_reads_as_rules_whatever_its_form() -> None:
    def rules(spec: str) -> tuple[AdmitRule, ...]:
        text = steps(f"- {{step: start, spec: {{policy: {{admit: {spec}}}}}}}\n")
        found_spec = step(text, "start").spec
        assert found_spec is not None
        assert found_spec.policy is not None
        return found_spec.policy.admit

    closed = AdmitRule(allow=False)
    assert rules('"{{ workload.on }}"') == (AdmitRule(when="{{ workload.on }}"), closed)
    assert rules("false") == (AdmitRule(when=False), closed)
    assert rules("{rules: [{when: a, then: {allow: true}}, {else: {then: {allow: false}}}]}") == (
        AdmitRule(when="a"), closed,
    )  # fmt: skip
    assert rules("{rules: [{then: {allow: false}}, {else: {allow: true}}], mode: exclusive}") == (
        closed, AdmitRule(allow=True),
    )  # fmt: skip


def test_rules_read_the_same_in_every_accepted_form() -> None:
    text = steps("""\
    - step: start
      tool:
        kind: noop
        spec:
          policy:
            rules:
              - {when: true, then: {do: retry, attempts: 2}}
              - {then: {do: continue}}
              - {else: {do: continue, set: {ctx.a: 1}}}
              - {else: {then: {do: continue, set: {ctx.a: 1}}}}
    """)
    rules = step(text, "start").tools[0].rules
    assert [rule.when for rule in rules] == [True, None, None, None]
    assert rules[0].then.attempts == 2
    assert rules[2].then == rules[3].then
    assert rules[2].then.set == {"ctx.a": 1}


def test_a_selection_reads_as_names_and_paths_whatever_its_form() -> None:
    def selected(text: str) -> object:
        tool = f"{{kind: noop, output: {{select: {text}}}}}"
        output = step(steps(f"- {{step: start, tool: {tool}}}\n"), "start").tools[0].output
        assert output is not None
        return output.select

    assert selected("[a, $.b.c]") == {"a": "$.a", "c": "$.b.c"}
    assert selected('[{path: "$.a.b", as: x}]') == {"x": "$.a.b"}
    assert selected('{x: "$.a.b"}') == {"x": "$.a.b"}


def test_durations_and_sizes_are_read_as_seconds_and_bytes() -> None:
    text = steps("""\
    - {step: a, spec: {timeout: 500ms}, next: {arcs: [{step: b}]}}
    - {step: b, spec: {timeout: 1d}, tool: {kind: http, url: u, timeout: {connect: 2, read: 1m},
                                            max_bytes: 10Ki}}
    """)
    first, second = model(text).workflow
    assert first.spec is not None
    assert first.spec.timeout == 0.5
    assert second.spec is not None
    assert second.spec.timeout == 86400
    task = second.tools[0]
    assert (task.timeout.connect, task.timeout.read, task.max_bytes) == (2, 60, 10240)  # type: ignore[attr-defined] - http


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ("{timeout: 0}", ("DSL039", 5, 33)),
        ("{timeout: 5 min}", ("DSL039", 5, 33)),
        ("{timeout: true}", ("DSL038", 5, 33)),
        ("{timeout: [1]}", ("DSL038", 5, 33)),
    ],
)
def test_a_bad_duration_is_refused(spec: str, where: tuple[str, int, int]) -> None:
    assert found(parse(steps(f"- {{step: start, spec: {spec}}}\n"))) == [where]


def test_the_entry_is_declared_or_start_or_the_first() -> None:
    assert model(steps("- step: a\n- step: start\n")).entry == "start"
    assert model(steps("- step: a\n")).entry == "a"
    text = book("""\
    executor: {spec: {entry_step: b, final_step: a}}
    workflow: [{step: start}, {step: a}, {step: b}]
    """)
    assert (model(text).entry, model(text).final) == ("b", "a")
    assert model(steps("- step: a\n")).final is None
    assert model(steps("- step: a\n")).step("nowhere") is None


def test_a_tool_of_a_plugin_is_read_when_its_kind_is_known() -> None:
    text = steps("- {step: start, tool: {kind: acme_crm, anything: 1, timeout: 3}}\n")
    assert [item.code for item in parse(text).errors] == ["DSL050"]
    parsed = parse(text, plugins={"acme_crm": {}})
    assert isinstance(parsed.model, Playbook)
    assert parsed.model.workflow[0].tools[0].extra == {"anything": 1}


# ---------------------------------------------------------------------------- whole-document rules


@pytest.mark.parametrize(
    ("loop", "codes"),
    [
        ("{in: [1], iterator: i}", []),
        ("{iterator: i}", ["DSL039"]),
        ("{in: [1], cursor: {kind: nats, stream: s}, iterator: i}", ["DSL039"]),
        ("{in: [1], iterator: i, spec: {mode: cursor}}", ["DSL039"]),
        ("{in: [1], iterator: i, spec: {frame: {max_rows: 2}}}", ["DSL039"]),
        ("{in: [1], iterator: i, spec: {max_in_flight: 0}}", ["DSL039"]),
        ("{in: [1], iterator: i, spec: {max_in_flight: 1001}}", ["DSL039"]),
        ("{cursor: {kind: postgres, auth: a}, iterator: i}", ["DSL051"]),
        ("{cursor: {kind: postgres, auth: a, claim: x}, iterator: i, spec: {mode: parallel}}",
         ["DSL039"]),
        ("{cursor: {kind: postgres, auth: a, claim: x}, iterator: i, spec: {mode: cursor}}", []),
        ("{cursor: {kind: nats, stream: s, consumer: c}, iterator: i}", []),
        ("{in: [1]}", ["DSL037"]),
    ],
)  # fmt: skip
def test_loops_are_checked(loop: str, codes: list[str]) -> None:
    assert [
        item.code for item in parse(steps(f"- {{step: start, loop: {loop}}}\n")).errors
    ] == codes


def test_the_mode_of_a_loop_is_written_or_implied() -> None:
    def mode(loop: str) -> str:
        found_loop = step(steps(f"- {{step: start, loop: {loop}}}\n"), "start").loop
        assert found_loop is not None
        return found_loop.mode

    assert mode("{in: 3, iterator: i}") == "sequential"
    assert mode("{in: 3, iterator: i, spec: {mode: parallel}}") == "parallel"
    assert mode("{cursor: {kind: nats, stream: s}, iterator: i}") == "cursor"


def test_iterations_that_run_together_are_warned_of_shared_writes() -> None:
    text = steps("""\
    - step: start
      loop: {in: [1], iterator: i, spec: {mode: parallel}}
      tool:
        kind: noop
        set: {ctx.a: 1, iter.b: 2}
        spec: {policy: {rules: [{then: {do: continue, set: {ctx.c: 3}}}]}}
      set: {iter.x: 1, ctx.y: 2}
    """)
    assert found(parse(text)) == [("DSL112", 9, 11), ("DSL112", 10, 57), ("DSL032", 11, 9)]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("- step: a\n- step: a\n", [("DSL017", 6, 9)]),
        ("- {step: a, next: {arcs: [{step: b}]}}\n", [("DSL018", 5, 34)]),
        ("- step: start\n- step: lost\n", [("DSL114", 6, 9)]),
        ("- {step: output, tool: {kind: noop}}\n", [("DSL110", 5, 10)]),
        ("- {step: s, output: {}, tool: {kind: noop, output: {}}}\n", [("DSL033", 5, 13)]),
        ("- {step: s, url: x, tool: {kind: http, url: y}}\n", [("DSL052", 5, 13)]),
        ("- {step: s, tool: []}\n", [("DSL039", 5, 19)]),
        ("- {step: s, tool: [{kind: noop, name: a}, {kind: noop, name: a}]}\n",
         [("DSL034", 5, 62)]),
        ("- {step: s, tool: {kind: noop, spec: {policy: {rules: [{then: {do: jump}}]}}}}\n",
         [("DSL037", 5, 64)]),
        ("- {step: s, tool: {kind: noop, spec: {retry: {kinds: [tiemout]}}}}\n",
         [("DSL039", 5, 55)]),
        ("- {step: s, tool: {kind: subscription, source: nats, stream: x}}\n", [("DSL051", 5, 20)]),
        (("- {step: s, tool: {kind: transfer, mode: upsert, source: {kind: http, url: x},\n"
         "                   target: {kind: sqlite, path: f, table: t}}}\n"), [("DSL039", 5, 42)]),
    ],
)  # fmt: skip
def test_a_rule_of_the_whole_document_is_checked_at_its_place(
    body: str, where: list[tuple[str, int, int]]
) -> None:
    assert found(parse(steps(body))) == where


@pytest.mark.parametrize(
    ("tool", "where"),
    [
        ('{kind: http, url: ""}', ("DSL051", 5, 37)),
        ('{kind: postgres, auth: a, command: " "}', ("DSL051", 5, 54)),
        ('{kind: python, code: ""}', ("DSL051", 5, 40)),
        ("{kind: playbook, path: a//b}", ("DSL016", 5, 42)),
        ("{kind: http, url: u, form: {}, files: {}}", ("DSL039", 5, 40)),
        ("{kind: http, url: u, credential: c, auth: d}", ("DSL039", 5, 55)),
        ("{kind: noop, set: {ctx.a: 1, ctx.a.b: 2}}", ("DSL039", 5, 48)),
        ("{kind: noop, spec: {policy: {rules: [{then: {do: continue, attempts: 4}}]}}}",
         ("DSL039", 5, 78)),
        ("{kind: noop, spec: {policy: {rules: [{then: {do: retry, to: x}}]}}}", ("DSL039", 5, 75)),
        ("{kind: subscription}", ("DSL051", 5, 20)),
        ("{kind: gateway, operation: progress, progress: 1.5}", ("DSL039", 5, 66)),
        ("{kind: gateway, operation: tell}", ("DSL039", 5, 46)),
        (("{kind: noop, spec: {policy: {rules: [{then: {do: fail,"
         " message: '{{ keychain.a.b }}'}}]}}}"), ("DSL041", 5, 87)),
    ],
)  # fmt: skip
def test_what_a_tool_cannot_mean_is_refused(tool: str, where: tuple[str, int, int]) -> None:
    assert found(parse(steps(f"- {{step: s, tool: {tool}}}\n"))) == [where]


def test_a_kind_that_no_worker_runs_is_warned_of() -> None:
    tool = "{kind: wasm, plugin: p}"
    parsed = parse(steps(f"- {{step: s, tool: {tool}}}\n- {{step: t, tool: {{kind: noop}}}}\n"))
    assert [(item.code, item.message) for item in parsed.diagnostics if item.code != "DSL114"] == [
        ("DSL117", "no worker of this release runs `wasm`: the step will fail")
    ]
    assert parsed.model is not None


def test_a_kind_that_no_worker_runs_is_warned_of_once_where_a_workbook_has_it() -> None:
    text = book(
        """\
        workbook: [{name: w, tool: {kind: wasm, plugin: p}}]
        workflow: [{step: s, tool: {kind: workbook, name: w}}]
        """
    )
    assert found(parse(text)) == [("DSL117", 4, 35)]


def test_two_spellings_are_both_named() -> None:
    text = steps("- {step: s, tool: {kind: http, url: u, credential: c, auth: d}}\n")
    assert parse(text).errors[0].message == "`auth` and `credential` say the same"


@pytest.mark.parametrize("source", ["true", "1.5", "-1", "~"])
def test_a_source_that_no_loop_can_go_over_is_refused(source: str) -> None:
    text = steps(f"- {{step: s, loop: {{in: {source}, iterator: i}}}}\n")
    assert found(parse(text)) == [("DSL039", 5, 24)]


def test_an_iterator_named_like_a_scope_is_warned_of() -> None:
    text = steps("- {step: s, loop: {in: [1], iterator: ctx}}\n")
    assert found(parse(text)) == [("DSL110", 5, 39)]


def test_two_timeouts_of_a_step_are_one_too_many() -> None:
    text = steps("- {step: s, spec: {timeout: 5, policy: {lifecycle: {timeout_s: 90}}}}\n")
    assert found(parse(text)) == [("DSL039", 5, 53)]


def test_the_defaults_of_tasks_are_checked_like_tasks() -> None:
    text = book("""\
    executor: {spec: {policy: {defaults: {retry: {kinds: [conection]}}}}}
    workflow: [{step: start}]
    """)
    assert found(parse(text)) == [("DSL039", 4, 55)]


@pytest.mark.parametrize(
    ("field", "where"),
    [
        ('{type: string, pattern: "["}', ("DSL039", 4, 37)),
        ("{type: integer, min: 5, max: 1}", ("DSL039", 4, 34)),
        ("{type: integer, default: abc}", ("DSL039", 4, 38)),
        ("{type: integer, default: true}", ("DSL039", 4, 38)),
        ("{enum: [a, b], default: c}", ("DSL039", 4, 37)),
        ("{type: object, properties: {b: {type: boolean, default: 1}}}", ("DSL039", 4, 69)),
    ],
)
def test_an_input_that_nothing_can_satisfy_is_refused(
    field: str, where: tuple[str, int, int]
) -> None:
    assert found(parse(book(f"inputs: {{a: {field}}}\nworkflow: [{{step: s}}]\n"))) == [where]


def test_times_of_a_trigger_are_times() -> None:
    text = book("""\
    triggers: [{interval: 1m, start_at: yesterday, end_at: "2026-01-01T00:00:00Z"}]
    workflow: [{step: start}]
    """)
    assert found(parse(text)) == [("DSL070", 4, 37)]


def test_a_keychain_entry_sees_only_earlier_ones() -> None:
    text = book("""\
    keychain:
      - {name: a, kind: bearer, token: "{{ keychain.b.token }}"}
      - {name: b, kind: bearer, token: "{{ keychain.a.token }}"}
    workflow: [{step: start, tool: {kind: python, code: "x = '{{ keychain.c.d }}'"}}]
    """)
    assert found(parse(text)) == [("DSL018", 5, 40), ("DSL018", 7, 59), ("DSL121", 7, 59)]


def test_an_arc_that_is_a_template_is_one_finding() -> None:
    text = steps("- {step: s, next: {arcs: [{step: '{{ x }}'}]}}\n")
    assert found(parse(text)) == [("DSL015", 5, 34)]


def test_a_merge_key_is_one_finding() -> None:
    text = book("workflow: [{step: s, tool: &t {kind: noop}}]\nx-a: *t\nmetadat: 1\n")
    assert found(parse(text)) == [("DSL030", 6, 1)]
    text = book("x-a: &t {kind: noop}\nworkflow: [{step: s, tool: {<<: *t, kind: noop}}]\n")
    assert found(parse(text)) == [("DSL012", 5, 29)]


def test_rules_on_a_step_with_a_pipeline_say_where_they_belong() -> None:
    text = steps("- {step: s, tool: [{kind: noop}], spec: {policy: {rules: []}}}\n")
    assert parse(text).errors[0].hint == "write the rules on the tool: `tool.spec.policy`"


def test_a_jump_names_a_task_of_its_pipeline() -> None:
    def codes(to: str) -> list[str]:
        rules = f"{{policy: {{rules: [{{then: {{do: jump, to: {to}}}}}]}}}}"
        tasks = f"{{kind: noop, name: a}}, {{kind: noop, name: b, spec: {rules}}}"
        text = steps(f"- {{step: s, tool: [{tasks}]}}\n")
        return [item.code for item in parse(text).errors]

    assert [codes(to) for to in ("a", "previous", "prev", "c")] == [[], [], [], ["DSL018"]]


@pytest.mark.parametrize(
    ("executor", "codes"),
    [
        ("{version: noetl-runtime/1.4}", []),
        ("{version: noetl-runtime/2}", ["DSL060"]),
        ("{runtime: wasm}", ["DSL037"]),
        ("{runtime: wasm, plugin: {path: a}}", []),
        ("{spec: {entry_step: nowhere}}", ["DSL018"]),
        ("{spec: {final_step: nowhere}}", ["DSL018"]),
        ("{spec: {concurrency: {key: a, limit: 0}}}", ["DSL039"]),
    ],
)
def test_the_executor_is_checked(executor: str, codes: list[str]) -> None:
    text = book(f"executor: {executor}\nworkflow: [{{step: start}}]\n")
    assert [item.code for item in parse(text).errors] == codes


def test_a_name_that_is_no_path_needs_a_path() -> None:
    text = steps("- step: s\n").replace("{name: demo, path: demo/it}", "{name: My book}")
    assert found(parse(text)) == [("DSL016", 3, 18)]


def test_a_default_has_one_home() -> None:
    text = book("""\
    inputs: {n: {type: integer, default: 1}, m: {type: integer}}
    workload: {n: 2, m: 3}
    workflow: [{step: start}]
    """)
    assert found(parse(text)) == [("DSL036", 4, 29)]


# ---------------------------------------------------------------------------- templates and code


def test_a_keychain_value_may_not_reach_what_events_keep() -> None:
    text = book("""\
    keychain: [{name: api, kind: bearer, credential: c}]
    workflow:
      - step: start
        tool: {kind: http, url: u, headers: {a: "{{ keychain.api.token }}"},
               set: {ctx.t: "{{ keychain.api.token }}"}}
        loop: {in: "{{ keychain.api.list }}", iterator: i}
        set: {ctx.u: "{{ keychain.api.token }}"}
        next: {arcs: [{step: child, when: "{{ keychain.api.token }}"}]}
      - step: child
        input: {t: "{{ keychain.api.token }}"}
        tool: [{kind: noop}, {kind: playbook, path: p, input: {t: "{{ keychain.api.token }}"}}]
    """)
    assert [(code, line) for code, line, _ in found(parse(text))] == [
        ("DSL041", 8), ("DSL041", 9), ("DSL041", 10), ("DSL041", 11), ("DSL041", 13),
        ("DSL041", 14),
    ]  # fmt: skip


def test_a_word_that_only_looks_like_the_keychain_is_fine() -> None:
    text = steps('- {step: s, tool: {kind: http, url: "{{ workload.keychain }}"}}\n')
    assert found(parse(text)) == []


def test_the_failure_mode_of_a_step_is_written_or_fail_fast() -> None:
    text = steps("""\
    - {step: a, next: {arcs: [{step: b}]}}
    - {step: b, spec: {policy: {failure: {mode: best_effort}}}}
    """)
    assert [item.failure_mode for item in model(text).workflow] == ["fail_fast", "best_effort"]


def test_a_tool_needs_a_kind_that_is_text() -> None:
    assert found(parse(steps("- {step: s, tool: {kind: 7}}\n"))) == [("DSL038", 5, 26)]


def test_known_error_kinds_may_be_retried() -> None:
    text = steps("- {step: s, tool: {kind: noop, spec: {retry: {kinds: [timeout]}}}}\n")
    assert found(parse(text)) == []


def test_a_keychain_entry_must_exist() -> None:
    text = steps('- {step: s, tool: {kind: http, url: "{{ keychain.apy.url }}"}}\n')
    assert found(parse(text)) == [("DSL018", 5, 41)]


def test_an_event_name_that_never_occurs_is_warned_of() -> None:
    text = steps("""\
    - step: start
      next:
        arcs:
          - {step: end, when: "{{ event.name == 'call.done' }}"}
          - {step: end, when: "{{ event.name in ['loop.done', 'loop.finished'] }}"}
          - {step: end, when: "event.step == 'x' and 'oops' == event.name"}
          - {step: end, when: "{{ eventual.name == 'x' }}"}
    """)
    assert found(parse(text)) == [("DSL115", 9, 59), ("DSL115", 10, 50)]


@pytest.mark.parametrize(
    ("sql", "warned"),
    [
        ("select {{ workload.n | int }}", False),
        ("select {{ workload.n | sql_literal }} from {{ t | sql_ident }}", False),
        ("select '{{ x | tojson }}'", False),
        ("select {{ 7 }}", False),
        ("select {{ a | int if b else c | int }}", False),
        ("select {{ a | int if b }}", False),
        ("select {{ workload.n }}", True),
        ("select {{ a | int if b else c }}", True),
        ("limit {{ __frame_max_rows }}", False),
    ],
)
def test_a_template_in_sql_is_warned_of_unless_it_quotes(sql: str, *, warned: bool) -> None:
    text = steps(f'- {{step: s, tool: {{kind: postgres, auth: a, command: "{sql}"}}}}\n')
    assert [item.code for item in parse(text).diagnostics] == (["DSL122"] if warned else [])


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("result = 1", []),
        ("return 5", []),
        ("await x()", []),
        ('print(f"{{x}}")', []),
        ("s = '{% if x %}'", []),
        ("result = (", [("DSL044", 8, 18)]),
        ("n = {{ workload.n }}", [("DSL121", 8, 13)]),
        ("n = {{ 1 if workload.n }}", [("DSL121", 8, 13)]),
        ("n = {{ nobody.n }}", []),
        ("a = '\\d'", []),
        ("if True:\n            pass\n           x", [("DSL044", 10, 11)]),
    ],
)
def test_python_code_is_parsed_with_its_templates(
    code: str, where: list[tuple[str, int, int]]
) -> None:
    text = steps("- step: s\n  tool:\n    kind: python\n    code: |\n").replace(
        "    code: |\n", "    code: |\n        " + code + "\n"
    )
    assert [item[0] for item in found(parse(text))] == [item[0] for item in where]


def test_code_with_templates_switched_off_is_left_alone() -> None:
    text = steps("""\
    - {step: s, tool: {kind: python, template: false, code: "n = {{ workload.n }}"}}
    """)
    assert found(parse(text)) == []


def test_code_that_is_too_deep_or_holds_a_null_is_a_finding_not_a_crash() -> None:
    deep = "(" * 3000 + ")" * 3000
    parsed = parse(steps(f'- {{step: s, tool: {{kind: python, code: "{deep}"}}}}\n'))
    assert [item.code for item in parsed.errors] == ["DSL044"]
    parsed = parse(steps('- {step: s, tool: {kind: python, code: "a\\0b"}}\n'))
    assert [item.code for item in parsed.errors] == ["DSL044"]
    signs = "-" * 60_000 + "1"
    parsed = parse(steps(f'- {{step: s, tool: {{kind: python, code: "{signs}"}}}}\n'))
    assert [item.code for item in parsed.errors] == ["DSL044"]


def test_code_in_the_workbook_is_parsed_too() -> None:
    text = book("""\
    workbook: [{name: w, tool: {kind: python, code: "result = ("}}]
    workflow: [{step: start, tool: {kind: noop}}]
    """)
    assert [item.code for item in parse(text).errors] == ["DSL044"]


def test_an_event_name_read_by_subscript_is_checked_too() -> None:
    text = steps("""\
    - {step: start, next: {arcs: [{step: end, when: "event['name'] == 'oops'"}]}}
    """)
    assert [item.code for item in parse(text).diagnostics] == ["DSL115"]


def test_code_with_too_many_templates_is_a_finding() -> None:
    code = "{{ workload.a }}" * 1_001
    text = steps(f'- {{step: s, tool: {{kind: python, code: "{code}"}}}}\n')
    assert [item.code for item in parse(text).errors] == ["DSL043"]


def test_a_template_in_a_block_text_is_located_at_its_line() -> None:
    text = steps("""\
    - step: s
      tool:
        kind: shell
        command: |
          echo one
          echo {{ a | nofilter }}
    """)
    assert found(parse(text)) == [("DSL040", 10, 19)]


def test_a_template_in_a_folded_text_is_located_at_its_start() -> None:
    text = steps('- {step: s, tool: {kind: shell, command: "a\n\n      {{ b | nofilter }}"}}\n')
    assert found(parse(text)) == [("DSL040", 5, 42)]


def test_a_key_may_be_a_template_and_is_checked() -> None:
    text = steps("""\
    - {step: s, tool: {kind: http, url: u, json: {"{{ a }}": 1, "{{ b | nofilter }}": 2}}}
    """)
    assert found(parse(text)) == [("DSL040", 5, 61)]


def test_data_is_never_a_template() -> None:
    text = book("""\
    triggers: [{interval: 1m, input: {a: "{{ broken"}}]
    inputs: {a: {default: "{{ broken"}}
    metadata_: 1
    workflow: [{step: start}]
    """).replace("metadata_: 1\n", "")
    assert found(parse(text)) == []
