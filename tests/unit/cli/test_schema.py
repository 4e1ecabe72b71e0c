import json

import yaml
from jsonschema import Draft202012Validator

from noetl.dsl.schema import kinds


def test_without_a_kind_the_kinds_are_listed(noetl):
    assert [line.split()[0] for line in noetl("schema").out.splitlines()] == list(kinds())
    assert noetl("schema", "-o", "name").out == "".join(f"kind/{kind}\n" for kind in kinds())
    items = json.loads(noetl("schema", "--json").out)["items"]
    assert [item["kind"] for item in items] == list(kinds())


def test_a_schema_is_json_of_the_2020_dialect_in_any_case_of_the_kind(noetl):
    for kind in kinds():
        document = json.loads(noetl("schema", kind.lower()).out)
        Draft202012Validator.check_schema(document)
        assert document["title"] == kind


def test_a_schema_is_yaml_or_a_name_too(noetl):
    as_json = json.loads(noetl("schema", "Credential", "--json").out)

    assert yaml.safe_load(noetl("schema", "Credential", "-o", "yaml").out) == as_json
    assert noetl("schema", "credential", "-o", "name").out == "kind/Credential\n"


def test_an_unknown_kind_is_not_found(noetl):
    assert noetl("schema", "Playbok") == (
        5,
        "",
        "error[not_found]: there is no kind `Playbok`\nhint: did you mean `Playbook`?\n",
    )
