import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from noetl.cli.findings import Finding
from noetl.cli.sarif import sarif
from noetl.dsl.diagnostics import Diagnostic, Span

SCHEMA = json.loads(Path(__file__).with_name("sarif.schema.json").read_text())


def finding(code="DSL030", file="a.yaml", severity="error", pointer="/a"):
    return Finding(
        file,
        Diagnostic(
            code=code, severity=severity, message="m", span=Span(1, 2, 3, 4), pointer=pointer
        ),
    )


def check(document):
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(document)
    return document["runs"][0]


def test_the_command_writes_a_log_of_the_standard_and_still_ends_with_7(noetl, misspelt):
    code, out, err = noetl("validate", misspelt, "-o", "sarif")
    run = check(json.loads(out))

    assert code == 7
    assert err.startswith("error[invalid_playbook]: ")
    assert run["results"] == [
        {
            "ruleId": "DSL030",
            "ruleIndex": 0,
            "level": "error",
            "message": {"text": "unknown key `itertor` (did you mean `iterator`?)"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "orders.yaml"},
                        "region": {
                            "startLine": 9,
                            "startColumn": 7,
                            "endLine": 9,
                            "endColumn": 14,
                        },
                    },
                    "logicalLocations": [{"fullyQualifiedName": "/workflow/0/loop/itertor"}],
                }
            ],
        }
    ]


def test_no_finding_is_a_log_without_results(noetl, hello):
    code, out, _ = noetl("validate", hello, "-o", "sarif")

    assert code == 0
    assert check(json.loads(out))["results"] == []


def test_each_rule_is_listed_once_and_each_result_points_to_its_own():
    run = check(
        sarif(
            [
                finding("DSL205", severity="warning"),
                finding("DSL030"),
                finding("DSL030"),
                finding("spool_invalid", pointer=""),
            ]
        )
    )
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]

    assert rules == sorted(set(rules))
    assert [rules[item["ruleIndex"]] for item in run["results"]] == [
        item["ruleId"] for item in run["results"]
    ]
    assert [item["level"] for item in run["results"]] == ["warning", "error", "error", "error"]


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("./a b.yaml", "a%20b.yaml"),
        ("/x/ü.yaml", "file:///x/%C3%BC.yaml"),
        ("<stdin>", "%3Cstdin%3E"),
        ("\udcff.yaml", "%FF.yaml"),
    ],
)
def test_a_file_name_becomes_a_reference(file, uri):
    run = check(sarif([finding(file=file)]))
    location = run["results"][0]["locations"][0]["physicalLocation"]

    assert location["artifactLocation"]["uri"] == uri
