import json
import os
import pty
import sys

import pytest

from noetl.cli.app import main
from tests.servers.memory import MemoryServer

TOKEN = "cli-token-5c1"  # noqa: S105 - a canary of these tests
OTHER = "cli-token-5c2"
PAIR = {"user": "kim", "password": "5c-pw"}
DOCUMENT = f"""\
apiVersion: noetl.io/v1
kind: Credential
metadata: {{name: shop, path: shop, description: of the shop}}
spec: {{type: basic, data: {{username: kim, password: {TOKEN}}}}}
"""


@pytest.fixture
def served():
    """A server of its own: it keeps no credential."""
    with MemoryServer() as server:
        yield server


@pytest.fixture
def write(tmp_path):
    def wrote(text, name):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return wrote


def one(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


def put(remote, *words, text=TOKEN):
    words = ("put", *words, "--from-file", "-", "-o", "json")
    return remote("credentials", *words, stdin=text.encode())


def test_a_single_secret_of_standard_input_is_kept_and_not_shown(remote):
    made = put(remote, "crm", "--type", "bearer", "--tag", "sales", "--description", "the CRM")

    assert (one(made)["name"], one(made)["type"], one(made)["tags"]) == ("crm", "bearer", ["sales"])
    shown = remote("credentials", "get", "crm", "-o", "json")
    listed = remote("credentials", "list")
    assert listed.out.splitlines()[1].split()[:3] == ["crm", "bearer", "sales"]
    assert TOKEN not in made.out + made.err + shown.out + listed.out
    revealed = one(remote("credentials", "get", "credential/crm", "--reveal", "-o", "json"))
    assert revealed["data"] == {"token": TOKEN}


@pytest.mark.parametrize(
    ("text", "words", "data"),
    [
        ('{"user": "kim", "password": "5c-pw"}', ("-t", "postgres"), PAIR),
        ("user: kim\npassword: 5c-pw\n", ("-t", "postgres"), PAIR),
        ("type: api_key\nkey: 5c-key\n", (), {"key": "5c-key"}),
        (DOCUMENT, (), {"username": "kim", "password": TOKEN}),
    ],
)  # fmt: skip
def test_fields_come_from_a_file(remote, write, text, words, data):
    file = write(text, "fields")
    made = one(remote("credentials", "put", "shop", *words, "--from-file", file, "-o", "json"))

    assert one(remote("credentials", "get", made["name"], "--reveal", "-o", "json"))["data"] == data


def test_a_document_names_its_credential(remote, write):
    made = one(remote("credentials", "create", "--from-file", write(DOCUMENT, "c.yaml"), "--json"))

    assert (made["name"], made["type"], made["description"]) == ("shop", "basic", "of the shop")


def test_values_on_the_command_line_are_the_callers_own_risk(remote):
    done = remote("credentials", "put", "c", "-t", "bearer", "--data", f'{{"token": "{TOKEN}"}}')

    assert done.code == 0
    assert "history" in done.err
    assert TOKEN not in done.out + done.err


def test_new_values_keep_what_else_is_known(remote):
    put(remote, "crm", "-t", "bearer", "--tag", "sales")
    done = remote(
        "credentials", "rotate", "crm", "--from-file", "-", "--json", stdin=OTHER.encode()
    )

    assert one(done)["tags"] == ["sales"]
    found = one(remote("credentials", "get", "crm", "--reveal", "--json"))
    assert found["data"] == {"token": OTHER}
    assert remote("credentials", "rotate", "none", "--from-file", "-", stdin=b"x").code == 5


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        (("crm",), b"", "there is nobody to ask"),
        (("crm", "--from-file", "-"), b"word", "the type is missing"),
        (("crm", "-t", "bear", "--from-file", "-"), b"word", "there is no type `bear`"),
        (("crm", "-t", "basic", "--from-file", "-"), b"word", "is not a map of fields"),
        (("crm", "-t", "bearer", "--from-file", "-", "--data", "{}"), b"", "are two places"),
        (("-t", "bearer", "--from-file", "-"), b"word", "has no name"),
    ],
)
def test_what_cannot_be_meant_is_refused(remote, words, stdin, says):
    done = remote("credentials", "put", *words, stdin=stdin)

    assert done.code == 2
    assert says in done.err


def test_a_field_that_the_type_does_not_have_is_refused_without_its_value(remote):
    done = put(remote, "crm", "-t", "postgres", text=f'{{"pass_word": "{TOKEN}"}}')

    assert done.code == 7
    assert "pass_word" in done.err
    assert TOKEN not in done.err


def test_a_credential_is_deleted_when_somebody_agrees(remote):
    put(remote, "crm", "-t", "bearer")

    assert "confirmation_required" in remote("credentials", "delete", "crm").err
    assert remote("credentials", "delete", "crm", "--yes", "-o", "name").out == "credential/crm\n"
    assert remote("credentials", "get", "crm").code == 5


def test_fields_are_asked_for_and_secrets_are_not_echoed(remote, monkeypatch, capsys):
    asked = {"seen": [], "hidden": []}

    def answer(how, text):
        def prompt(label):
            asked[how].append(label.strip().rstrip(":"))
            return text

        return prompt

    monkeypatch.setattr("typer._click.termui.visible_prompt_func", answer("seen", "kim"))
    monkeypatch.setattr("typer._click.termui.hidden_prompt_func", answer("hidden", TOKEN))
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(("credentials", "put", "db", "-t", "basic"))
    os.close(ours)

    assert (code, len(asked["seen"]), len(asked["hidden"])) == (0, 1, 1)
    assert TOKEN not in "".join(capsys.readouterr())
    found = one(remote("credentials", "get", "db", "--reveal", "--json"))
    assert found["data"] == {"username": "kim", "password": TOKEN}


def test_the_key_that_wraps_is_shown_and_rotated(remote):
    put(remote, "crm", "-t", "bearer")

    status = one(remote("wallet", "status", "-o", "json"))
    assert sum(version["rows"] for version in status["tables"]["credential"]) == 1
    done = one(remote("wallet", "rotate-kek", "--yes", "-o", "json"))
    assert (done["tables"]["credential"]["processed"], done["is_done"]) == (1, True)
    assert "credential" in remote("wallet", "rotate-kek", "--yes").out
    assert remote("wallet", "status").out.startswith("key: local/")
