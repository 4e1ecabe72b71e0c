import json

import pytest

from noetl.cli.init import TEMPLATES


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_valid_and_its_test_passes(noetl, template):
    code, out, err = noetl("init", template)

    assert (code, out) == (0, f"{template}.yaml\n{template}.test.yaml\n")
    assert f"noetl test {template}.test.yaml" in err
    assert noetl("lint", "--strict", f"{template}.yaml").code == 0
    tested = noetl("test", f"{template}.test.yaml")
    assert tested.code == 0, tested


def test_a_playbook_gets_its_own_name_and_folder(noetl, tmp_path):
    found = json.loads(noetl("init", "--name", "orders", "--dir", "flows", "--json").out)

    assert found == {
        "name": "orders",
        "path": "starters/orders",
        "files": ["flows/orders.yaml", "flows/orders.test.yaml"],
    }
    assert "path: starters/orders\n" in (tmp_path / "flows/orders.yaml").read_text()
    assert noetl("test", "flows").code == 0


def test_a_file_is_replaced_only_when_somebody_agrees(noetl, tmp_path):
    (tmp_path / "hello.yaml").write_text("mine")
    code, out, err = noetl("init")

    assert (code, out) == (2, "")
    assert err == "error[confirmation_required]: replace hello.yaml?\nhint: add `--yes`\n"
    assert (tmp_path / "hello.yaml").read_text() == "mine"
    assert noetl("init", "--yes").code == 0
    assert (tmp_path / "hello.yaml").read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("helo",), 5, "did you mean `hello`?"),
        (("hello", "--name", "../x"), 2, "cannot be the name of a playbook"),
        (("hello", "--dir", "hello.yaml/x"), 1, "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_said(noetl, tmp_path, words, code, said):
    (tmp_path / "hello.yaml").write_text("")
    done = noetl("init", *words)

    assert done.code == code
    assert said in done.err
