import json
import os
import pty
import sys

import pytest

from noetl.api.identity import NewAccount
from noetl.api.runtime import WorkerEntry
from noetl.cli.app import main
from tests.unit.cli.runs import NOOP, WAITING, document, register, start


@pytest.fixture
def production(noetl, served):
    """A command line whose current context is production."""
    noetl("context", "add", "live", "--server-url", served.url)
    noetl("context", "add", "other", "--server-url", "http://127.0.0.1:1")
    assert json.loads(noetl("context", "mark-production", "live", "-o", "json").out) == {
        "name": "live", "server_url": served.url, "token_file": "", "is_production": True,
        "gateway_url": "", "session": "", "is_current": True,
    }  # fmt: skip
    return noetl


@pytest.fixture
def typed(monkeypatch, capsys):
    """A person at a terminal who types a line."""

    def run(text, *words):
        ours, theirs = pty.openpty()
        os.write(ours, f"{text}\n".encode())
        with os.fdopen(theirs) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            code = main(words)
        os.close(ours)
        return (code, *capsys.readouterr())

    return run


def test_a_mutating_command_names_a_production_server_in_red(production, served):
    run = start(served, "asked/red", NOOP)
    words = ("executions", "rerun", run)

    assert production(*words).err == "production: live\n"
    assert production(*words, "--color", "always").err == "\x1b[1;31mproduction: live\x1b[0m\n"
    assert production(*words, "-q").err == ""
    assert production("executions", "get", run).err == ""
    assert production(*words, "-c", "live", "--server-url", served.url).err == "production: live\n"


def test_a_server_that_is_not_production_is_not_named(production, served):
    run = start(served, "asked/plain", NOOP)
    production("context", "mark-production", "live", "--off")

    assert production("executions", "rerun", run).err == ""


def test_many_runs_of_production_are_cancelled_only_by_its_name(production, served):
    run = start(served, "asked/bulk", WAITING)
    words = ("executions", "cancel", "--filter", "--path", "asked/bulk")
    code, out, err = production(*words, "--yes")

    assert (code, out) == (2, "")
    assert "live is production: cancel 1 run?" in err
    assert "hint: add `--yes --context live`\n" in err
    assert json.loads(production("status", run, "--json").out)["status"] == "RUNNING"
    assert production(*words, "--yes", "--context", "live").code == 0
    assert json.loads(production("status", run, "--json").out)["status"] == "CANCELLED"


@pytest.mark.usefixtures("production")
def test_the_name_is_typed_at_a_terminal(served, typed):
    start(served, "asked/typed", WAITING)
    words = ("executions", "cancel", "--filter", "--path", "asked/typed")

    wrong = typed("life", *words)
    assert wrong[0] == 2
    assert "nothing was done" in wrong[2]
    assert typed("live", *words)[0] == 0


def test_a_question_is_answered_at_a_terminal(noetl, typed):
    noetl("context", "add", "a", "--server-url", "http://127.0.0.1:1")

    assert typed("n", "context", "delete", "a")[0] == 2
    assert typed("y", "context", "delete", "a", "--no-input")[0] == 2
    assert typed("y", "context", "delete", "a")[0] == 0


def test_the_mark_stays_when_a_context_is_written_again(production, served):
    production("context", "add", "live", "--server-url", served.url)
    found = json.loads(production("context", "show", "live", "--json").out)
    assert found["is_production"]
    production("context", "add", "live", "--server-url", "http://127.0.0.1:2")
    assert not json.loads(production("context", "show", "live", "--json").out)["is_production"]


def test_what_is_lost_on_production_needs_its_name(production, served, tmp_path):
    register(served, "asked/kept")
    register(served, "asked/gone")
    entry = WorkerEntry(name="w", runtime={"pool": "asked"})
    served.call(lambda client: client.register_worker(entry))
    served.call(lambda client: client.add_user(NewAccount(subject="asked")))
    (tmp_path / "kept.yaml").write_text(document(NOOP, "asked/kept"))
    lines = (
        ("apply", "-f", "kept.yaml", "--prune", "--prefix", "asked/gone"),
        ("catalog", "delete", "asked/kept"),
        ("pools", "drain", "asked"),
        ("users", "delete", "asked"),
    )
    for words in lines:
        code, out, err = production(*words, "--yes")
        assert (code, out) == (2, ""), words
        assert "hint: add `--yes --context live`\n" in err
    for path in ("asked/kept", "asked/gone"):
        assert production("catalog", "get", path, "-o", "name").code == 0
    for words in lines:
        assert production(*words, "--yes", "-c", "live").code == 0, words
    assert production("catalog", "get", "asked/gone").code == 5
