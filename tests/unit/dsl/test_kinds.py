"""The words of the catalog for kinds, and the schemas of tools."""

import json

import pytest

from noetl.dsl.kinds import KINDS, word_of
from noetl.dsl.schema import tool_kinds, tool_schema


def test_kinds_have_one_word_however_they_are_written() -> None:
    words = [kind.word for kind in KINDS.values()]
    assert words == [
        "playbook", "subscription", "credential", "wasm_playbook", "mcp", "playbook_test",
    ]  # fmt: skip
    for spelling in ("PlaybookTest", "playbook_test", "PLAYBOOKTEST"):
        assert word_of(spelling) == "playbook_test"
    assert (word_of("Agent"), word_of("nothing")) == ("agent", "nothing")


@pytest.mark.parametrize("kind", tool_kinds())
def test_the_schema_of_a_tool_stands_alone(kind) -> None:
    schema = tool_schema(kind)
    assert schema["title"] == kind
    assert schema["properties"]["kind"]["const"] == kind
    referred = json.dumps(schema).split('"#/$defs/')[1:]
    assert {part.partition('"')[0] for part in referred} <= set(schema["$defs"])


def test_there_is_no_schema_of_nothing() -> None:
    assert tool_schema("nothing") is None
