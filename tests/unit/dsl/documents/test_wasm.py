from __future__ import annotations

import jsonschema
import pytest
import yaml

from noetl.dsl.documents.wasm import WasmLimits, WasmModule, WasmPlaybook, WasmSpec
from noetl.dsl.parse import parse
from noetl.dsl.schema import schema
from noetl.dsl.shape import Fields

DIGEST = "sha256:" + "2c26b46b" * 8
HEAD = f"""\
apiVersion: noetl.io/v2
kind: WasmPlaybook
metadata: {{name: rater, path: insurance/rater}}
spec:
  module: {{ref: insurance/rater@2, digest: "{DIGEST}"}}
"""


def found(text: str) -> list[tuple[str, str, str]]:
    return [
        (item.code, f"{item.span.line}:{item.span.column}", item.pointer)
        for item in parse(text).errors
    ]


def test_a_module_reads_with_its_defaults():
    model = parse(HEAD).model
    assert isinstance(model, WasmPlaybook)
    assert model.spec == WasmSpec(
        module=WasmModule(ref="insurance/rater@2", digest=DIGEST),
        entry="run",
        capabilities=(),
        limits=WasmLimits(fuel=10**9, memory=64 * 1024**2, deadline=10.0),
    )


def test_capabilities_and_limits_read():
    text = HEAD + (
        "  entry: rate\n"
        "  capabilities: [log, clock, credential_get:rates, tool:http, system_call:events]\n"
        "  limits: {fuel: 100, memory: 512Mi, deadline: 1m}\n"
    )
    model = parse(text).model
    assert isinstance(model, WasmPlaybook)
    assert model.spec.limits == WasmLimits(fuel=100, memory=512 * 1024**2, deadline=60.0)
    jsonschema.Draft202012Validator(schema("WasmPlaybook")).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("entry: 1st", ("DSL039", "6:10", "/spec/entry")),
        ("capabilities: [network]", ("DSL039", "6:18", "/spec/capabilities/0")),
        ("capabilities: ['tool:']", ("DSL039", "6:18", "/spec/capabilities/0")),
        ("limits: {fuel: 100000000001}", ("DSL039", "6:18", "/spec/limits/fuel")),
        ("limits: {memory: 513Mi}", ("DSL039", "6:20", "/spec/limits/memory")),
        ("limits: {deadline: 61s}", ("DSL039", "6:22", "/spec/limits/deadline")),
        ("limits: {deadline: soon}", ("DSL039", "6:22", "/spec/limits/deadline")),
        ("limits: {deadline: true}", ("DSL038", "6:22", "/spec/limits/deadline")),
        ("limits: {stack: 1}", ("DSL030", "6:12", "/spec/limits/stack")),
    ],
)
def test_a_module_that_is_not_right_is_refused(line, expected):
    assert found(HEAD + f"  {line}\n") == [expected]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("{ref: a@1}", ("DSL037", "5:12", "/spec/module")),
        (f"{{ref: a, digest: '{DIGEST}'}}", ("DSL039", "5:17", "/spec/module/ref")),
        ("{ref: a@1, digest: abc}", ("DSL039", "5:30", "/spec/module/digest")),
    ],
)
def test_a_module_is_pinned(module, expected):
    head = HEAD.partition("  module:")[0]
    assert found(head + f"  module: {module}\n") == [expected]


@pytest.mark.parametrize("cls", [WasmPlaybook, WasmSpec, WasmLimits, WasmModule])
def test_every_key_has_words_for_the_reference(cls):
    assert all(item.shape.words() for item in Fields.of(cls).keys.values())
