import json

import yaml

from noetl.dsl.parse import parse

SENTENCE = (
    "orders.yaml:9:7: error DSL030: unknown key `itertor` (did you mean `iterator`?) "
    "[/workflow/0/loop/itertor]"
)
FINDING = {
    "file": "orders.yaml",
    "code": "DSL030",
    "severity": "error",
    "message": "unknown key `itertor`",
    "hint": "did you mean `iterator`?",
    "line": 9,
    "column": 7,
    "end_line": 9,
    "end_column": 14,
    "pointer": "/workflow/0/loop/itertor",
    "doc": "/docs/reference/dsl-errors#dsl030",
}


def test_a_misspelt_key_is_named_with_its_place_and_its_spelling(noetl, misspelt):
    assert noetl("validate", misspelt) == (
        7,
        f"{SENTENCE}\n",
        "error[invalid_playbook]: 1 error in orders.yaml\nhint: run `noetl explain DSL030`\n",
    )


def test_a_structured_error_leaves_stdout_empty(noetl, misspelt):
    for form, load in (("json", json.loads), ("jsonl", json.loads), ("yaml", yaml.safe_load)):
        code, out, err = noetl("validate", misspelt, "-o", form)

        assert (code, out) == (7, "")
        assert load(err) == {
            "error": {
                "code": "invalid_playbook",
                "message": "1 error in orders.yaml",
                "hint": "run `noetl explain DSL030`",
                "docs_url": "/docs/reference/errors#invalid_playbook",
                "status": 422,
                "request_id": None,
                "details": {"diagnostics": [FINDING]},
            }
        }


def test_several_files_are_counted(noetl, misspelt, hello, tmp_path):
    (tmp_path / "other.yaml").write_text((tmp_path / misspelt).read_text())
    code, out, err = noetl("validate", str(tmp_path))

    assert code == 7
    assert len(out.splitlines()) == 2
    assert err.startswith("error[invalid_playbook]: 2 errors in 2 files\n")
    assert noetl("validate", hello, hello).err == "1 file is valid\n"


def test_standard_input_is_a_document(noetl, misspelt, tmp_path):
    data = (tmp_path / misspelt).read_bytes()
    code, out, _ = noetl("validate", "-", stdin=data)

    assert code == 7
    assert out.startswith("<stdin>:9:7: error DSL030: ")


def test_warnings_are_not_errors(noetl, older, tmp_path):
    assert parse((tmp_path / older).read_text()).warnings
    assert noetl("validate", older) == (0, "", "1 file is valid\n")


def test_text_of_a_document_has_no_power_over_the_terminal(noetl, misspelt, tmp_path):
    text = (tmp_path / misspelt).read_text().replace("itertor", r'"\e[31mx"')
    (tmp_path / misspelt).write_text(text)

    for form in ("table", "json", "yaml", "jsonl", "sarif", "github"):
        code, out, err = noetl("validate", misspelt, "-o", form)
        assert code == 7
        assert "\x1b" not in out + err


def test_colour_is_there_when_it_is_always_wanted(noetl, misspelt):
    _, out, err = noetl("validate", misspelt, "--color", "always")

    assert "\x1b[1;31merror\x1b[0m" in out
    assert "\x1b[" in err


def test_more_findings_than_are_kept_are_counted(noetl, tmp_path):
    keys = "".join(f"bad{n}: 1\n" for n in range(250))
    (tmp_path / "many.yaml").write_text(f"apiVersion: noetl.io/v2\nkind: Playbook\n{keys}")
    _, out, err = noetl("validate", "many.yaml")

    assert len(out.splitlines()) == 200
    assert "200 errors in many.yaml (" in err
    assert "more are not shown" in err
