import json

UNTIMED = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: a, path: a}
workflow:
  - step: start
    tool:
      kind: http
      url: https://example.org
"""


def test_warnings_are_shown_and_end_with_0(noetl, older):
    code, out, err = noetl("lint", older)

    assert code == 0
    assert out.startswith("older.yaml:7:5: warning DSL123: ")
    assert err.startswith("1 warning in older.yaml\n")


def test_strict_ends_with_7(noetl, older, hello):
    code, _, err = noetl("lint", older, "--strict")

    assert code == 7
    assert err.startswith("error[invalid_playbook]: 1 warning in older.yaml\n")
    code, out, err = noetl("lint", older, "--strict", "--json")
    assert (code, out) == (7, "")
    assert json.loads(err)["error"]["details"]["diagnostics"][0]["severity"] == "warning"
    assert noetl("lint", hello, "--strict") == (0, "", "1 file is valid\n")


def test_findings_are_data_when_the_command_ends_well(noetl, older):
    code, out, _ = noetl("lint", older, "--json")

    assert code == 0
    assert [item["code"] for item in json.loads(out)["items"]] == ["DSL123"]
    assert json.loads(noetl("lint", older, "-o", "jsonl").out)["code"] == "DSL123"


def test_errors_end_with_7(noetl, misspelt):
    code, out, _ = noetl("lint", misspelt)

    assert code == 7
    assert "orders.yaml:9:7: error DSL030: " in out


def test_fix_rewrites_first_and_says_what(noetl, older, tmp_path):
    code, out, err = noetl("lint", older, "--fix", "--strict")

    assert (code, out) == (0, "")
    assert err.startswith("older.yaml: 1 change\n")
    assert err.endswith("1 file is valid\n")
    assert "arcs:" in (tmp_path / older).read_text()


def test_fix_of_standard_input_is_a_usage_error(noetl, older, tmp_path):
    code, out, err = noetl("lint", "-", "--fix", stdin=(tmp_path / older).read_bytes())

    assert (code, out) == (2, "")
    assert err.startswith("error[usage]: `--fix` cannot rewrite standard input\n")


def test_a_rule_is_found_and_a_comment_silences_it(noetl, tmp_path):
    (tmp_path / "a.yaml").write_text(UNTIMED)
    code, out, _ = noetl("lint", "a.yaml", "--json")

    assert code == 0
    (line,) = {item["line"] for item in json.loads(out)["items"] if item["code"] == "DSL205"}
    lines = UNTIMED.splitlines()
    lines[line - 1] += "  # noetl: ignore DSL205"
    (tmp_path / "a.yaml").write_text("\n".join(lines) + "\n")
    codes = [item["code"] for item in json.loads(noetl("lint", "a.yaml", "--json").out)["items"]]
    assert "DSL205" not in codes
