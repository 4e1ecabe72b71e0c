"""Keys inside keys: a misspelt one is refused with the nearest name, the rest is as written."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.schema import tool_schema
from noetl.dsl.yaml import load
from noetl.engine.config import config_of

SCOPE = {"x": "X", "yes": True, "n": 3}


def parsed(tool: str):
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
    return parse(f"{head}workflow:\n- step: s\n  tool: {tool}\n")


def rendered(tool: str, key: str) -> Any:
    book = parsed(tool)
    assert isinstance(book.model, Playbook), book.errors
    return config_of(book.model.workflow[0].tools[0], SCOPE)[key]


def fits(tool: str) -> bool:
    document = load(tool)
    kind = document.root["kind"]
    return Draft202012Validator(tool_schema(kind)).is_valid(document.root)


@pytest.mark.parametrize(
    ("tool", "unknown", "meant"),
    [
        ("{kind: duckdb, sql: select 1, attach: [{path: a.db, readonly: true}]}", "readonly",
         "read_only"),
        ("{kind: duckdb, sql: select 1, attach: {a: {pth: a.db}}}", "pth", "path"),
        ("{kind: duckdb, sql: select 1, export: {formatt: csv}}", "formatt", "format"),
        ("{kind: http, url: u, files: {a: {contents: x}}}", "contents", "content"),
        ("{kind: http, url: u, files: {a: [{contents: x}]}}", "contents", "content"),
        ("{kind: http, url: u, files: [{name: a, contents: x}]}", "contents", "content"),
        ("{kind: artifact, action: get, input: {result_rf: x}}", "result_rf", "result_ref"),
        ("{kind: result_fetch, ref: r, rows: {limitt: 1}}", "limitt", "limit"),
        ("{kind: s3, operation: get, bucket: b, key: k, range: {lenght: 1}}", "lenght", "length"),
        ("{kind: agent, framework: custom, on_failure: {troubleshot: p}}", "troubleshot",
         "troubleshoot"),
        ("{kind: script, script: x, job: {imgae: a}}", "imgae", "image"),
        ("{kind: container, image: a, resources: {limit: {cpu: 1}}}", "limit", "limits"),
        ("{kind: container, image: a, volumes: [{name: v, emptydir: {}}]}", "emptydir",
         "empty_dir"),
        (("{kind: container, image: a, volumes: [{name: v, config_map: {name: c, items:"
         " [{key: k, pth: p}]}}]}"), "pth", "path"),
        (("{kind: container, image: a, volumes: [{name: v, secret: {secret_name: s, items:"
         " [{key: k, path: p, modes: 256}]}}]}"), "modes", "mode"),
        ("{kind: python, code: x, libs: {a: {from: os, imports: path}}}", "imports", "import"),
        ("{kind: duckdb, sql: select 1, auth: {a: {type: s3, credential: c, scop: x}}}", "scop",
         "scope"),
        (("{kind: ducklake, sql: select 1, catalog: c, data_path: d, auth:"
         " {a: {type: s3, credental: c}}}"), "credental", "credential"),
    ],
)  # fmt: skip
def test_a_misspelt_key_is_refused_with_the_nearest_name(
    tool: str, unknown: str, meant: str
) -> None:
    (error,) = parsed(tool).errors
    assert (error.code, error.message) == ("DSL030", f"unknown key `{unknown}`")
    assert error.hint == f"did you mean `{meant}`?"
    assert not fits(tool)


@pytest.mark.parametrize(
    ("tool", "key", "given"),
    [
        ("{kind: duckdb, sql: select 1, attach: ['{{ x }}.db', {path: a, read_only: '{{ yes }}'}]}",
         "attach", ["X.db", {"path": "a", "read_only": True}]),
        ("{kind: duckdb, sql: select 1, attach: {a: '{{ x }}.db', b: {uri: 's3://b/{{ x }}.csv'}}}",
         "attach", {"a": "X.db", "b": {"uri": "s3://b/X.csv"}}),
        ("{kind: duckdb, sql: select 1, export: {to: '{{ x }}.parquet'}}", "export",
         {"format": "parquet", "to": "X.parquet"}),
        ("{kind: http, url: u, files: '{{ x }}'}", "files", "X"),
        ("{kind: http, url: u, files: {'{{ x }}': {value: null}, b: '{{ n }}', c: ~, d: [1, {}]}}",
         "files", {"X": {"value": None}, "b": 3, "c": None, "d": [1, {}]}),
        ("{kind: http, url: u, files: {a: [{content: '{{ n }}'}, {data: {x: 1}}]}}", "files",
         {"a": [{"content": 3}, {"data": {"x": 1}}]}),
        ("{kind: http, url: u, files: [{name: a, ref: '{{ x }}'}, '{{ x }}']}", "files",
         [{"name": "a", "ref": "X"}, "X"]),
        ("{kind: result_fetch, ref: r, rows: {limit: '{{ n }}'}}", "rows",
         {"offset": 0, "limit": 3}),
        ("{kind: result_fetch, ref: r, range: {length: '{{ n }}'}}", "range", {"length": 3}),
        ("{kind: container, image: a, volumes: [{name: v, empty_dir: null}]}", "volumes",
         [{"name": "v", "empty_dir": None}]),
        (("{kind: container, image: a, volumes: [{name: v, config_map: {name: c, items:"
         " [{key: k, path: '{{ x }}', mode: 256}]}}]}"), "volumes",
         [{"name": "v", "config_map": {"name": "c", "items":
           [{"key": "k", "path": "X", "mode": 256}]}}]),
        ("{kind: python, code: x, libs: {m: math, a: {from: os, import: path}, b: {import: re}}}",
         "libs", {"m": "math", "a": {"from": "os", "import": "path"}, "b": {"import": "re"}}),
        ("{kind: duckdb, sql: select 1, auth: '{{ x }}'}", "auth", "X"),
        (("{kind: duckdb, sql: select 1, auth: {a: {type: s3, credential: '{{ x }}', scope: s},"
         " b: {type: postgres, auth: {host: '{{ x }}'}, read_only: '{{ yes }}'}}}"), "auth",
         {"a": {"type": "s3", "credential": "X", "scope": "s"},
          "b": {"type": "postgres", "auth": {"host": "X"}, "read_only": True}}),
    ],
)  # fmt: skip
def test_what_is_spelt_well_reaches_the_tool_as_it_was_written(
    tool: str, key: str, given: Any
) -> None:
    assert rendered(tool, key) == given
    assert fits(tool)


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("{kind: container, image: a, volumes: [v]}", "`0` must be a map, not text"),
        ("{kind: http, url: u, files: 7}", "`files` must be text, not a number"),
        ("{kind: duckdb, sql: select 1, attach: [{path: a, read_only: 'yes'}]}",
         "`read_only` must be true or false, not text"),
        ("{kind: duckdb, sql: select 1, auth: {a: own}}", "`a` must be a map, not text"),
        (("{kind: container, image: a, volumes: [{name: v, secret: {secret_name: s, items:"
         " [k]}}]}"), "`0` must be a map, not text"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(tool: str, message: str) -> None:
    assert [error.message for error in parsed(tool).errors] == [message]
    assert not fits(tool)
