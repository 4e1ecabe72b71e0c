"""Published schemas, and what `explain` says of them."""

import jsonschema
import pytest

from noetl.dsl.explain import explain, near, topics
from noetl.dsl.parse import parse
from noetl.dsl.schema import kinds, schema
from noetl.dsl.tasks import KINDS
from noetl.dsl.yaml import load


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


HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t}\n"
TOOLS = [
    "{kind: http, url: u, spec: {timeout: {connect: 1, total: 3}}}",
    "{kind: task_sequence, taskz: 1, tasks: [{kind: noop}]}",
    "{kind: task_sequence, tasks: [{kind: nop}]}",
    "{kind: task_sequence, spec: {timeout: 3}, tasks: [{kind: noop}]}",
    "{kind: task_sequence, spec: {retry: {}}, tasks: [{kind: noop}]}",
    "{kind: task_sequence, auth: a, tasks: [{kind: noop}]}",
    "{kind: http, url: ''}",
    "{kind: noop, spec: {policy: {rules: [{then: {do: jump}}]}}}",
    "{kind: http, url: u, files: {}, form: {}}",
]
STEPS = [
    "{step: s, loop: {in: 1, iterator: i, spec: {mode: cursor}}}",
    "{step: s, loop: {in: 1, iterator: i, spec: {frame: {}}}}",
    "{step: s, args: {}, input: {}}",
    "{step: s, tool: [{kind: noop}], spec: {policy: {rules: []}}}",
    "{step: s, tool: {kind: noop}, spec: {policy: {rules: []}}}",
    *(f"{{step: s, tool: {tool}}}" for tool in TOOLS),
]


@pytest.mark.parametrize("step", STEPS)
def test_schema_and_parser_agree_on_keys_that_depend_on_others(step: str) -> None:
    published = schema("Playbook")
    assert published is not None
    text = f"{HEAD}workflow: [{step}]\n"
    accepted = jsonschema.Draft202012Validator(published).is_valid(load(text).root)
    assert accepted == (not parse(text).errors)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("step.when", "write `spec.policy.admit`"),
        ("tool.rhai", "use `python`"),
        ("tool.task_sequence", "A pipeline under `tasks`"),
        ("step.tool.spec.policy.rules.then.do", "Continue keeps the result"),
        ("step.spec.policy.admit.rules", "Rules."),
        ("step.tool.output.select.path", "Path such as"),
        ("PlaybookTest.spec.cases.mocks", "What stands in for tools"),
    ],
)
def test_older_refused_and_nested_topics_are_explained(topic: str, words: str) -> None:
    found = explain(topic)
    assert found is not None
    assert words in found.text


def test_a_workbook_call_is_explained_like_a_tool() -> None:
    found = explain("tool.workbook")
    assert found is not None
    assert "task" in [name for name, _, _ in found.keys]
    assert explain("step.when.x") is None


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
