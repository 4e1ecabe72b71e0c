import json

import pytest

from noetl.cli.contexts import Context, contexts_file, read_contexts

URL = "https://staging.example.org"


@pytest.fixture
def staging(noetl):
    assert noetl("context", "add", "staging", "--server-url", f"{URL}/").code == 0


@pytest.mark.usefixtures("staging")
def test_the_first_context_is_current_and_its_file_is_private(noetl):
    assert json.loads(noetl("context", "list", "-o", "json").out) == {
        "items": [
            {
                "name": "staging", "server_url": URL, "token_file": "", "is_production": False,
                "gateway_url": "", "session": "", "is_current": True,
            }
        ],
        "next_cursor": None,
    }  # fmt: skip
    assert contexts_file().stat().st_mode & 0o777 == 0o600
    assert contexts_file().parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("staging")
def test_another_context_becomes_current_when_it_is_used(noetl):
    noetl("context", "add", "prod", "--server-url", "https://prod")
    assert read_contexts().current == "staging"
    assert noetl("context", "use", "prod") == (0, "", "`prod` is the current context\n")
    assert read_contexts().current == "prod"
    noetl("context", "add", "third", "--server-url", "https://third", "--use")
    assert json.loads(noetl("context", "show", "-o", "json").out)["name"] == "third"
    assert noetl("context", "list", "-o", "name").out.split() == [
        "context/staging", "context/prod", "context/third",
    ]  # fmt: skip
    assert noetl("context", "show", "context/prod", "-o", "name").out == "context/prod\n"
    assert "*  third" in noetl("context", "list").out


def test_a_token_stays_in_its_file_or_is_kept_private(noetl, tmp_path):
    (tmp_path / "token").write_text("in-file")
    noetl("context", "add", "a", "--server-url", URL, "--token-file", "token")
    noetl("context", "add", "b", "--server-url", URL, "--token-stdin", stdin=b"of-stdin\n")
    kept = read_contexts().entries

    assert kept["a"] == Context(server_url=URL, token_file=str(tmp_path / "token"))
    file = tmp_path / kept["b"].token_file
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("of-stdin\n", 0o600)
    assert "of-stdin" not in contexts_file().read_text()
    assert "of-stdin" not in noetl("context", "show", "b", "-o", "json").out

    noetl("context", "add", "b", "--server-url", URL, "--token-stdin", stdin=b"another")
    assert not file.exists()
    file = tmp_path / read_contexts().entries["b"].token_file
    noetl("context", "rename", "b", "c")
    assert file.exists()
    noetl("context", "delete", "c", "--yes")
    assert not file.exists()
    noetl("context", "delete", "a", "--yes")
    assert (tmp_path / "token").exists()


@pytest.mark.usefixtures("staging")
def test_a_context_is_renamed_and_stays_current(noetl):
    noetl("context", "add", "other", "--server-url", URL)

    assert noetl("context", "rename", "staging", "other").code == 2
    assert noetl("context", "rename", "staging", "stage").err == "`staging` is now `stage`\n"
    assert (read_contexts().current, list(read_contexts().entries)) == ("stage", ["stage", "other"])


@pytest.mark.usefixtures("staging")
def test_a_context_is_forgotten_only_when_somebody_agrees(noetl):
    assert noetl("context", "delete", "staging").code == 2
    assert (
        noetl("context", "delete", "staging", "-y", "-o", "json").out
        == '{\n  "name": "staging"\n}\n'
    )
    assert (read_contexts().current, dict(read_contexts().entries)) == ("", {})


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("use", "nope"), 5),
        (("show", "nope"), 5),
        (("show",), 5),
        (("delete", "nope", "-y"), 5),
        (("rename", "nope", "x"), 5),
        (("add", "../x", "--server-url", URL), 2),
        (("add", "x", "--server-url", "ftp://x"), 2),
        (("add", "x", "--server-url", "http://[::1"), 2),
        (("add", "x", "--server-url", URL, "--token-file", "nope"), 5),
        (("add", "x", "--server-url", URL, "--token-file", "t", "--token-stdin"), 2),
        (("add", "x", "--server-url", URL, "--token-stdin"), 2),
        (("add", "x"), 2),
    ],
)
def test_what_cannot_be_done_is_refused(noetl, words, code):
    done = noetl("context", *words, "-o", "json")

    assert (done.code, done.out) == (code, "")
    assert set(json.loads(done.err)) == {"error"}
    assert dict(read_contexts().entries) == {}


def test_a_name_near_the_known_ones_is_suggested(noetl):
    noetl("context", "add", "staging", "--server-url", URL)

    assert "did you mean `staging`?" in noetl("context", "use", "stagin").err


def test_without_contexts_the_list_says_so(noetl):
    assert noetl("context", "list").err == (
        "there is no context; make one with `noetl context add`\n"
    )


def test_a_broken_file_is_told(noetl):
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text("current = [")

    assert noetl("context", "list").code == 1
