"""Published schemas, and what `explain` says of them."""

import jsonschema
import pytest

from noetl.dsl.explain import explain, near, topics
from noetl.dsl.schema import kinds, schema
from noetl.dsl.tasks import KINDS


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_has_a_valid_schema_with_its_address(kind: str) -> None:
    published = schema(kind)
    assert published is not None
    jsonschema.Draft202012Validator.check_schema(published)
    assert published["$id"] == f"https://noetl.io/schema/v2/{kind}.json"
    assert published["title"] == kind


def test_kinds_are_found_in_any_case_and_unknown_ones_are_not() -> None:
    assert schema("playbook") == schema("Playbook")
    assert schema("Nothing") is None


def test_editors_complete_every_tool_kind_with_a_description() -> None:
    published = schema("Playbook")
    assert published is not None
    tool = published["$defs"]["Tool"]
    described = {item["const"]: item["description"] for item in tool["properties"]["kind"]["oneOf"]}
    assert set(described) == {*KINDS, "workbook", "task_sequence"}
    assert all(described.values())


def test_older_keys_are_marked_as_deprecated() -> None:
    published = schema("Playbook")
    assert published is not None
    assert published["$defs"]["Step"]["properties"]["when"]["deprecated"] is True


def test_a_key_is_explained_with_its_type_default_and_keys() -> None:
    found = explain("Playbook.workflow.loop")
    assert found is not None
    assert (found.title, found.required, found.type) == ("repeat over items", False, "map (Loop)")
    assert [name for name, _, _ in found.keys] == ["in", "cursor", "iterator", "spec"]


def test_a_key_under_spec_is_found_by_the_short_path_that_people_say() -> None:
    short, long = explain("step.loop.mode"), explain("step.loop.spec.mode")
    assert short is not None
    assert long is not None
    assert (short.title, short.type) == (long.title, long.type)


def test_a_tool_and_its_keys_are_explained() -> None:
    tool, key = explain("tool.http"), explain("tool.http.method")
    assert tool is not None
    assert key is not None
    assert tool.text == "Sends one HTTP request."
    assert (key.default, key.title) == ("GET", "HTTP method")
    common = explain("tool.timeout")
    assert common is not None
    assert common.aliases == ("timeout_seconds",)
    inner = explain("Playbook.workflow.tool.auth")
    assert inner is not None
    assert inner.aliases == ("credential",)


@pytest.mark.parametrize("topic", ["DSL030", "dsl030", "source_invalid"])
def test_a_code_is_explained_with_cause_example_and_remedy(topic: str) -> None:
    found = explain(topic)
    assert found is not None
    assert "Example:" in found.text
    assert "Remedy:" in found.text


def test_defaults_are_shown_as_they_are_written() -> None:
    flag, nothing = explain("step.spec.idempotent"), explain("step.desc")
    assert flag is not None
    assert nothing is not None
    assert (flag.default, nothing.default) == ("true", "")


def test_alternatives_lead_to_their_map() -> None:
    found = explain("tool.http.timeout.connect")
    assert found is not None
    assert found.title == "until connected"
    assert explain("tool.shell.env.x") is None


@pytest.mark.parametrize(
    "topic", ["nothing", "Playbook.worklow", "tool.htpp", "step.loop.mode.x", "step.desc.x"]
)
def test_an_unknown_topic_is_none(topic: str) -> None:
    assert explain(topic) is None


def test_near_topics_are_offered() -> None:
    assert "Playbook.workflow" in near("Playbook.worklow")
    assert near("tool.htpp")[0] == "tool.http"
    assert near("zzzzzz") == ()


def test_every_listed_topic_is_explained() -> None:
    assert [topic for topic in topics() if explain(topic) is None] == []
