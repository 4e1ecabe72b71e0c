import pytest

from noetl.dsl.conformity import MOST_FAULTS, BadSchema, faults
from noetl.dsl.yaml import load

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 3}, "a/b": {"pattern": "^x+$"}},
    "required": ["n"],
}


def test_a_value_that_conforms_has_no_faults():
    assert faults(SCHEMA, {"n": 3, "a/b": "xx"}) == []


def test_every_fault_names_its_place():
    found = faults(SCHEMA, {"n": 1, "a/b": "y"})

    assert sorted(item["pointer"] for item in found) == ["/a~1b", "/n"]
    assert "1 is less than the minimum of 3" in {item["message"] for item in found}


def test_a_missing_key_is_a_fault_of_the_whole():
    assert [item["pointer"] for item in faults(SCHEMA, {})] == [""]


def test_a_schema_that_points_elsewhere_is_refused_and_not_fetched():
    with pytest.raises(BadSchema):
        faults({"$ref": "http://127.0.0.1:9/schema.json"}, {})


def test_a_schema_that_is_none_is_refused():
    with pytest.raises(BadSchema):
        faults({"type": "no such type"}, {})


def test_a_hostile_pattern_does_not_take_long():
    assert faults({"pattern": "^(a+)+$"}, "a" * 5000 + "b") != []


def test_faults_are_bounded():
    schema = {"items": {"type": "string"}}

    assert len(faults(schema, list(range(1000)))) == MOST_FAULTS


def test_values_of_a_parsed_document_are_read_like_any_other():
    parsed = load(b"{properties: {n: {enum: [1, 2]}}}").root

    assert faults(parsed, {"n": 2}) == []
    assert [item["pointer"] for item in faults(parsed, {"n": 3})] == ["/n"]
