import json

from noetl.dsl.schema import tool_kinds


def test_every_tool_is_listed_with_a_sentence(noetl):
    found = json.loads(noetl("tools", "list", "--json").out)["items"]

    assert [item["kind"] for item in found][: len(tool_kinds())] == list(tool_kinds())
    assert all(item["about"] for item in found)
    assert noetl("tools", "list", "-o", "name").out.startswith("tool/")
    assert noetl("tools", "list").out.startswith("KIND")


def test_the_schema_of_a_tool_is_printed(noetl):
    found = json.loads(noetl("tools", "schema", "http").out)

    assert (found["title"], "url" in found["properties"]) == ("http", True)
    assert noetl("tools", "schema", "tool/http", "-o", "name").out == "tool/http\n"
    code, _, err = noetl("tools", "schema", "htp")
    told = json.loads(err)["error"]
    assert (code, told["message"]) == (5, "there is no tool `htp`")
    assert told["hint"] == "did you mean `http`?"
