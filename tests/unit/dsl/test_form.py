"""The form of a playbook, from inputs, workload and comments."""

from typing import Any

from noetl.dsl.form import ui_schema
from noetl.dsl.parse import parse

BOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: orders, path: etl/orders, description: "# Orders", exposed_in_ui: false}
inputs:
  city: {type: string, required: true, title: City, description: IATA code, order: 2}
  tier: {type: string, enum: [gold, blue], order: 1}
  pin: {type: string, secret: true, default: "1234"}
  box: {type: object, properties: {w: {type: number, default: 2.5}}}
  any: {description: free}
workload:
  region: eu          # ui:enum=[eu, us] ui:description=where to run
  token: "a # b"      # ui:secret
  api: crm_main       # ui:credential=crm_* ui:title=CRM
  inner: 1            # ui:hidden
  nested:             # ui:title=Nested
    a: 1
    b: [x]
  rate: 0.5
  flag: true
  none: ~
  count: 3  # plain comment
workflow: [{step: start}]
"""


def test_a_form_has_a_field_for_every_input_and_default() -> None:
    answer = ui_schema(parse(BOOK), version=4, generated_at="2026-01-01T00:00:00Z")
    fields = answer.pop("fields")
    assert answer == {
        "path": "etl/orders", "version": 4, "kind": "Playbook", "title": "orders",
        "description_markdown": "# Orders", "exposed_in_ui": False,
        "generated_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    assert [(item["name"], item["kind"]) for item in fields] == [
        ("pin", "string"), ("box", "object"), ("any", "string"), ("region", "enum"),
        ("token", "string"), ("api", "string"), ("nested", "object"), ("rate", "number"),
        ("flag", "boolean"), ("none", "null"), ("count", "integer"), ("tier", "enum"),
        ("city", "string"),
    ]  # fmt: skip
    by_name = {item["name"]: item for item in fields}
    assert by_name["region"] == {
        "name": "region", "kind": "enum", "default": "eu", "required": False, "title": None,
        "description": "where to run", "secret": False, "credential_glob": None,
        "options": ["eu", "us"], "children": [],
    }  # fmt: skip
    assert (by_name["token"]["secret"], by_name["token"]["default"]) == (True, None)
    assert (by_name["pin"]["secret"], by_name["pin"]["default"]) == (True, None)
    assert (by_name["api"]["credential_glob"], by_name["api"]["title"]) == ("crm_*", "CRM")
    assert (by_name["city"]["required"], by_name["city"]["title"]) == (True, "City")
    assert by_name["tier"]["options"] == ["gold", "blue"]
    assert by_name["nested"]["title"] == "Nested"
    assert [child["kind"] for child in by_name["nested"]["children"]] == ["integer", "array"]
    assert by_name["box"]["children"][0]["default"] == 2.5
    assert by_name["count"]["title"] is None


def test_a_broken_document_has_no_fields() -> None:
    answer = ui_schema(parse("kind: ["), version=1, generated_at="t")
    assert answer == {
        "path": "", "version": 1, "kind": "", "title": "", "description_markdown": "",
        "exposed_in_ui": False, "fields": [], "generated_at": "t",
    }  # fmt: skip


def test_an_enum_that_is_no_list_is_its_one_option() -> None:
    text = BOOK.replace("ui:enum=[eu, us] ui:description=where to run", "ui:enum=eu")
    fields = ui_schema(parse(text), version=1, generated_at="t")["fields"]
    assert next(item for item in fields if item["name"] == "region")["options"] == ["eu"]


def fields_of(workload: str) -> list[dict[str, Any]]:
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\nworkload:\n"
    parsed = parse(f"{text}{workload}workflow: [{{step: start}}]\n")
    assert parsed.errors == ()
    fields: list[dict[str, Any]] = ui_schema(parsed, version=1, generated_at="t")["fields"]
    return fields


def test_directives_reach_nested_keys_in_block_form() -> None:
    (nest,) = fields_of(
        "  nest:  # ui:title=Nest\n"
        "    deep: x  # ui:enum=[a, b] ui:title=Deep\n"
        "    more:\n"
        "      pin: 7  # ui:secret\n"
        "      n: 1\n"
        "    gone: 2  # ui:hidden\n"
    )
    deep, more = nest["children"]
    assert (nest["title"], nest["default"]) == ("Nest", {"deep": "x", "more": {"n": 1}})
    assert (deep["kind"], deep["options"], deep["title"]) == ("enum", ["a", "b"], "Deep")
    assert [(item["name"], item["secret"], item["default"]) for item in more["children"]] == [
        ("pin", True, None), ("n", False, 1),
    ]  # fmt: skip


def test_the_comment_after_a_map_on_one_line_is_about_the_map() -> None:
    (flow,) = fields_of("  flow: {a: 1}  # ui:title=Flow\n")
    assert (flow["title"], flow["children"][0]["title"]) == ("Flow", None)


def test_what_is_inside_a_secret_is_secret() -> None:
    (key,) = fields_of("  key: {id: 1, parts: {a: 2}}  # ui:secret\n")
    assert (key["secret"], key["default"]) == (True, None)
    first, parts = key["children"]
    assert (first["secret"], first["default"], parts["default"]) == (True, None, None)
    assert (parts["children"][0]["secret"], parts["children"][0]["default"]) == (True, None)


def test_words_after_a_directive_do_not_undo_it() -> None:
    one, two, three = fields_of(
        "  one: 1  # ui:secret never logged\n"
        "  two: a  # ui:enum=[a, b] the first is usual\n"
        "  three: 3  # ui:description=[beta] a=b ui:nothing\n"
    )
    assert (one["secret"], one["default"]) == (True, None)
    assert (two["options"], three["description"]) == (["a", "b"], "[beta] a=b")
