"""`inputs` as JSON Schema."""

import jsonschema

from noetl.dsl.parse import read
from noetl.dsl.playbook.document import Playbook
from noetl.dsl.playbook.inputs import input_schema

BOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: a}
inputs:
  city:  {type: string, required: true, title: City, pattern: "^[A-Z]{3}$", min_length: 3}
  limit: {type: integer, default: 20, min: 1, max: 500}
  tags:  {type: array, items: {type: string}, max_length: 2}
  box:   {type: object, properties: {w: {type: number, required: true}}}
  tier:  {enum: [a, b], default: ~}
  pin:   {type: string, secret: true, format: password, description: four digits}
workflow: [{step: s}]
"""


def test_inputs_compile_to_json_schema() -> None:
    schema = input_schema(read(BOOK, Playbook).inputs, strict=True)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "city": {"type": "string", "pattern": "^[A-Z]{3}$", "title": "City", "minLength": 3},
            "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 20},
            "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
            "box": {
                "type": "object",
                "properties": {"w": {"type": "number"}},
                "required": ["w"],
            },
            "tier": {"enum": ["a", "b"], "default": None},
            "pin": {
                "type": "string",
                "format": "password",
                "description": "four digits",
                "writeOnly": True,
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_a_request_is_checked_with_a_pointer_per_fault() -> None:
    validator = jsonschema.Draft202012Validator(input_schema(read(BOOK, Playbook).inputs))
    faults = validator.iter_errors({"city": "x", "limit": 0, "box": {}, "more": 1})
    assert sorted(fault.json_path for fault in faults) == ["$.box", "$.city", "$.city", "$.limit"]


def test_fields_without_a_required_one_need_nothing() -> None:
    text = BOOK.replace("required: true, title", "title").replace(", required: true", "")
    assert "required" not in input_schema(read(text, Playbook).inputs)
