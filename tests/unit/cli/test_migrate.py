import json

import pytest

from noetl.cli.failures import CommandFailed
from noetl.cli.rewrite import replace


def test_a_file_is_rewritten_in_place_and_keeps_its_mode_and_comments(noetl, older, tmp_path):
    path = tmp_path / older
    path.chmod(0o640)
    code, out, err = noetl("migrate", older)

    assert (code, out) == (0, "")
    assert "older.yaml: 1 change\n" in err
    assert err.endswith("1 file read, 1 changed\n")
    assert "arcs:" in path.read_text()
    assert "# on to the end" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [item.name for item in tmp_path.iterdir()] == [older]
    assert noetl("migrate", older, "--check").code == 0


def test_check_changes_nothing_and_ends_with_7(noetl, older, tmp_path):
    before = (tmp_path / older).read_bytes()
    code, out, err = noetl("migrate", older, "--check")

    assert (code, out) == (7, "")
    assert "error[migration_needed]: 1 file would change\n" in err
    assert (tmp_path / older).read_bytes() == before
    error = json.loads(noetl("migrate", older, "--check", "--json").err)["error"]
    assert [item["file"] for item in error["details"]["files"]] == [older]


def test_standard_input_goes_to_standard_output(noetl, older, tmp_path):
    data = (tmp_path / older).read_bytes()
    code, out, err = noetl("migrate", "-", stdin=data)

    assert code == 0
    assert "arcs:" in out
    assert err.startswith("<stdin>: 1 change\n")
    item = json.loads(noetl("migrate", "-", "--json", stdin=data).out)["items"][0]
    assert (item["file"], item["changed"], item["text"]) == ("<stdin>", True, out)


def test_a_file_in_todays_form_stays_as_it_is(noetl, hello, tmp_path):
    before = (tmp_path / hello).stat()

    assert noetl("migrate", hello) == (0, "", "1 file read, 0 changed\n")
    assert (tmp_path / hello).stat().st_mtime_ns == before.st_mtime_ns
    assert json.loads(noetl("migrate", hello, "--json").out)["items"] == [
        {"file": hello, "changed": False, "changes": [], "remaining": []}
    ]


def test_what_a_program_cannot_rewrite_ends_with_7(noetl, misspelt):
    code, out, err = noetl("migrate", misspelt)

    assert (code, out) == (7, "")
    assert "orders.yaml:9:7: error DSL030: " in err
    assert "error[invalid_playbook]: " in err
    code, out, err = noetl("migrate", misspelt, "--json")
    assert (code, out) == (7, "")
    assert json.loads(err)["error"]["details"]["diagnostics"][0]["code"] == "DSL030"


def test_bytes_that_are_not_text_are_left_alone(noetl, tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff\n")
    code, _, err = noetl("migrate", "bytes.yaml")

    assert code == 7
    assert "bytes.yaml:1:4: error DSL001: " in err
    assert (tmp_path / "bytes.yaml").read_bytes() == b"a: \xff\n"


def test_a_link_stays_a_link(noetl, older, tmp_path):
    (tmp_path / "link.yaml").symlink_to(older)

    assert noetl("migrate", "link.yaml").code == 0
    assert (tmp_path / "link.yaml").is_symlink()
    assert "arcs:" in (tmp_path / older).read_text()


def test_a_file_that_cannot_be_replaced_is_an_error_and_nothing_is_left_behind(tmp_path):
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(CommandFailed) as caught:
        replace(tmp_path / "folder.yaml", "text")

    assert (caught.value.code, caught.value.exit_code) == ("file_unwritable", 1)
    assert [item.name for item in tmp_path.iterdir()] == ["folder.yaml"]


def test_a_folder_that_went_away_is_an_error(tmp_path):
    with pytest.raises(CommandFailed, match="cannot be rewritten"):
        replace(tmp_path / "nowhere" / "a.yaml", "text")
