"""What a tool receives."""

from typing import Any

import pytest

from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.tasks.task import Task
from noetl.engine.config import Unrendered, config_of, duration, keychain_names, map_of, timeout_s

SCOPE: dict[str, Any] = {
    "x": "X",
    "n": 3,
    "wait": "5m",
    "size": "1Ki",
    "keychain": {"k": {"t": "s3cret"}},
}
HTTP = {
    "method": "GET",
    "response_type": "auto",
    "follow_redirects": True,
    "verify": True,
    "max_bytes": 16_777_216,
}
PYTHON = {"sandbox": "standard", "network": "on", "isolation": "warm"}
SQL = {"max_rows": 100_000, "max_bytes": 67_108_864, "as_objects": True}


def task(text: str) -> Task:
    """One tool, read from flow-style YAML."""
    names = ["a", "b", "c", "d", "e", "f", "g", "h", "k"]
    entries = ", ".join(f"{{name: {name}, kind: credential, credential: {name}}}" for name in names)
    source = (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
        f"keychain: [{entries}]\nworkflow:\n- step: s\n  tool: {text}\n"
    )
    parsed = parse(source, plugins={"acme": {}})
    assert isinstance(parsed.model, Playbook), parsed.errors
    return parsed.model.workflow[0].tools[0]


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (
            (
                "{kind: http, url: 'http://{{ x }}', headers: {A: '{{ n }}'}, auth: 'a-{{ x }}', "
                "method: '{{ \"post\" }}', ok_status: [200], max_bytes: '{{ size }}'}"
            ),
            HTTP
            | {
                "url": "http://X",
                "headers": {"A": 3},
                "auth": "a-X",
                "method": "post",
                "ok_status": [200],
                "max_bytes": 1024,
            },
        ),
        (
            (
                "{kind: http, url: u, max_bytes: '{{ x }}', "
                "timeout: {connect: 2, total: '{{ wait }}'}}"
            ),
            HTTP | {"url": "u", "max_bytes": "X", "timeout": {"connect": 2, "total": 300.0}},
        ),
        (
            (
                "{kind: http, url: u, auth: {type: bearer, token: '{{ keychain.k.t }}'}, "
                "paginate: {next: '{{ page.body.next }}', max_pages: '{{ n }}'}}"
            ),
            HTTP
            | {
                "url": "u",
                "auth": {"type": "bearer", "token": "s3cret"},
                "paginate": {
                    "next": "{{ page.body.next }}",
                    "into": "url",
                    "max_pages": 3,
                    "max_items": 100_000,
                },
            },
        ),
        (
            "{kind: python, code: \"result = f'{{y}} {{ x }}'\"}",
            PYTHON | {"code": "result = f'{{y}} X'", "template": True},
        ),
        (
            "{kind: python, code: \"result = '{{ x }}'\", template: false}",
            PYTHON | {"code": "result = '{{ x }}'", "template": False},
        ),
        (
            (
                "{kind: python, script: {source: {type: inline, code: '{{ x }}', "
                "region: '{{ x }}'}}, libs: {j: json}, env: {A: '{{ x }}'}}"
            ),
            PYTHON
            | {
                "script": {
                    "source": {
                        "type": "inline",
                        "code": "{{ x }}",
                        "region": "X",
                    }
                },
                "libs": {"j": "json"},
                "env": {"A": "X"},
                "template": True,
            },
        ),
        (
            (
                "{kind: postgres, auth: pg, query: ['select {{ n }}', 'select 2'], "
                "params: ['{{ x }}'], statement_timeout: '{{ wait }}'}"
            ),
            SQL
            | {
                "auth": "pg",
                "command": ["select 3", "select 2"],
                "params": ["X"],
                "statement_timeout": 300.0,
                "transaction": True,
                "read_only": False,
            },
        ),
        (
            "{kind: nats, operation: kv_put, name: t, key: '{{ x }}', ttl: '{{ x }}', ack: true}",
            {
                "operation": "kv_put",
                "key": "X",
                "ttl": "X",
                "batch": 100,
                "timeout_ms": 1000,
                "ack": True,
                "last": False,
            },
        ),
        (
            "{kind: secrets, provider: env, name: '{{ x }}', version: 3}",
            {"provider": "env", "name": "X", "version": 3},
        ),
        ("{kind: noop, result: {a: ['{{ n }}']}}", {"result": {"a": [3]}}),
        ("{kind: acme, level: '{{ n }}', x-note: '{{ y }}'}", {"level": 3}),
    ],
)
def test_a_tool_receives_its_keys_rendered(text: str, config: dict[str, Any]) -> None:
    assert config_of(task(text), SCOPE) == config


def test_sql_may_be_longer_than_other_templates() -> None:
    text = "select {{ n }} -- " + "x" * 100_000
    tool = task("{kind: postgres, auth: a, command: '" + text + "'}")
    assert config_of(tool, SCOPE)["command"] == text.replace("{{ n }}", "3")
    assert keychain_names(tool, (), {}) == frozenset()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "{kind: http, url: '{{ y }}'}",
            ("template", "template_undefined", "`url`: `y` is undefined (at 1:4)"),
        ),
        (
            "{kind: http, url: '{{ keychain.k.u }}'}",
            ("auth", "keychain_missing", "`url`: `keychain.k.u` is undefined (at 1:14)"),
        ),
        (
            "{kind: http, url: u, timeout: {read: '{{ y }}'}}",
            ("template", "template_undefined", "`timeout`: `y` is undefined (at 1:4)"),
        ),
        (
            "{kind: acme, level: '{{ 1 + }}'}",
            (
                "template",
                "DSL042",
                "`level`: expected an expression, found the end of the expression (at 1:8)",
            ),
        ),
    ],
)
def test_a_template_that_fails_names_its_key(text: str, error: tuple[str, str, str]) -> None:
    with pytest.raises(Unrendered) as caught:
        config_of(task(text), SCOPE)
    kind, code, message = error
    assert caught.value.error == {
        "kind": kind,
        "code": code,
        "message": message,
        "retryable": False,
    }


def test_the_keys_of_a_map_are_rendered_too() -> None:
    assert map_of({"{{ x }}": "{{ n }}", "b": [1]}, "input", SCOPE) == {"X": 3, "b": [1]}


def test_two_keys_of_a_map_cannot_become_one() -> None:
    with pytest.raises(Unrendered, match=r"`input\.{{ x }}`: two keys of a map render to the same"):
        map_of({"X": 1, "{{ x }}": 2}, "input", SCOPE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{kind: noop}", None),
        ("{kind: noop, timeout: 7}", 7),
        ("{kind: noop, timeout: 500ms}", 0.5),
        ("{kind: noop, timeout: '{{ wait }}'}", 300.0),
        ("{kind: noop, timeout: '{{ none }}'}", None),
        ("{kind: noop, timeout: {read: 1}}", None),
        ("{kind: noop, timeout: {read: 1, total: '{{ n }}'}}", 3),
    ],
)
def test_a_timeout_is_in_seconds(text: str, expected: float | None) -> None:
    assert timeout_s(task(text).timeout, SCOPE) == expected


@pytest.mark.parametrize("value", [0, -1, "soon", True, [1], float("inf")])
def test_a_timeout_that_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(Unrendered, match=r"`timeout`: `.*` is not a duration"):
        duration(value, "timeout", zero=False)


def test_a_delay_may_be_nothing() -> None:
    assert duration(0, "delay") == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{kind: noop}", set()),
        ("{kind: http, url: '{{ keychain.a.t }}', json: ['{{ keychain[\"b\"].t }}']}", {"a", "b"}),
        ("{kind: python, code: \"x = '{{ keychain.c.t }}'\"}", {"c"}),
        ("{kind: shell, command: 'echo {{ keychain.d.t }}'}", {"d"}),
        (
            "{kind: http, url: u, input: {a: '{{ keychain.e.t }}'}, timeout: '{{ keychain.f.t }}'}",
            {"e", "f"},
        ),
        (
            (
                "{kind: http, url: u, spec: {policy: {rules: ["
                "{when: output.data == keychain.g.t, "
                "then: {do: retry, delay: '{{ keychain.h.t }}'}}]}}}"
            ),
            {"g", "h"},
        ),
        ("{kind: http, url: '{{ keychain }}'}", set()),
    ],
)
def test_a_task_names_the_keychain_entries_that_it_needs(text: str, names: set[str]) -> None:
    tool = task(text)
    assert keychain_names(tool, tool.rules, {"s": "{{ keychain.step.t }}"}) == names | {"step"}
