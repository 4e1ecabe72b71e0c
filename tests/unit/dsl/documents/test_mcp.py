from __future__ import annotations

import jsonschema
import pytest
import yaml

from noetl.dsl.documents.mcp import McpAuth, McpServer, McpSpec, McpTool
from noetl.dsl.parse import parse
from noetl.dsl.schema import schema

HEAD = """\
apiVersion: noetl.io/v1
kind: Mcp
metadata: {name: desk, path: mcp/desk}
spec:
"""


def found(text: str) -> list[tuple[str, str, str]]:
    return [
        (item.code, f"{item.span.line}:{item.span.column}", item.pointer)
        for item in parse(HEAD + text).errors
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  endpoint: https://a.example/mcp\n", McpSpec(endpoint="https://a.example/mcp")),
        (
            (
                "  endpoint: https://a.example/mcp\n  transport: sse\n  auth: desk_token\n"
                "  tools: [search, {name: open, description: a, input_schema: {type: object}}]\n"
            ),
            McpSpec(
                endpoint="https://a.example/mcp",
                transport="sse",
                auth="desk_token",
                tools=(
                    "search",
                    McpTool(name="open", description="a", input_schema={"type": "object"}),
                ),
            ),
        ),
        (
            (
                "  transport: stdio\n  argv: [desk-mcp, --quiet]\n"
                "  auth: {type: api_key, credential: desk, header: X-Key, scopes: a}\n"
            ),
            McpSpec(
                transport="stdio",
                argv=("desk-mcp", "--quiet"),
                auth=McpAuth(type="api_key", credential="desk", header="X-Key", scopes=("a",)),
            ),
        ),
    ],
)
def test_a_server_reads_whole(text, expected):
    model = parse(HEAD + text).model
    assert isinstance(model, McpServer)
    assert model.spec == expected
    jsonschema.Draft202012Validator(schema("Mcp")).validate(yaml.safe_load(HEAD + text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  tools: []\n", [("DSL037", "5:3", "/spec")]),
        ("  transport: stdio\n", [("DSL037", "5:3", "/spec")]),
        ("  endpoint: https://a\n  argv: [a]\n", [("DSL039", "6:3", "/spec/argv")]),
        (
            "  transport: stdio\n  endpoint: https://a\n  argv: [a]\n",
            [("DSL039", "6:3", "/spec/endpoint")],
        ),
        ("  endpoint: ftp://a\n", [("DSL039", "5:13", "/spec/endpoint")]),
        ("  endpoint: 'https://{{ host }}'\n", [("DSL039", "5:13", "/spec/endpoint")]),
        ("  endpoint: https://a\n  transport: post\n", [("DSL039", "6:14", "/spec/transport")]),
        ("  endpoint: https://a\n  auth: 'a b'\n", [("DSL039", "6:9", "/spec/auth")]),
        ("  endpoint: https://a\n  auth: {token: a}\n", [("DSL030", "6:10", "/spec/auth/token")]),
        ("  endpoint: https://a\n  tools: [{}]\n", [("DSL037", "6:11", "/spec/tools/0")]),
    ],
)
def test_a_server_that_is_not_right_is_refused_by_the_parser(text, expected):
    assert found(text) == expected


@pytest.mark.parametrize("text", ["  tools: []\n", "  endpoint: https://a\n  argv: [a]\n"])
def test_the_schema_knows_how_a_server_is_reached(text):
    validator = jsonschema.Draft202012Validator(schema("Mcp"))
    assert not validator.is_valid(yaml.safe_load(HEAD + text))
