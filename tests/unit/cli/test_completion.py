import socket
import subprocess
from time import perf_counter

import pytest

from noetl.cli.command import COMMANDS
from tests.unit.cli.runs import start


@pytest.fixture
def complete(noetl):
    """What bash offers for the last word."""
    script = noetl("completion", "bash").out

    def run(*words):
        asked = (
            f'{script}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _noetl; echo "${{COMPREPLY[*]}}"'
        )
        done = subprocess.run(
            ["/bin/bash", "-c", asked, "bash", *words], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return run


def test_bash_accepts_the_script(noetl):
    script = noetl("completion", "bash").out
    done = subprocess.run(
        ["/bin/bash", "-n"], input=script, capture_output=True, text=True, check=True
    )

    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("noetl val", "validate"),
        ("noetl -o json val", "validate"),
        ("noetl --vers", "--version"),
        ("noetl lint --st", "--strict"),
        ("noetl lint x.yaml -o sa", "sarif"),
        ("noetl lint --output = sa", "sarif"),
        ("noetl graph x.yaml --format m", "mermaid"),
        ("noetl -o js", "json jsonl"),
        ("noetl validate --color al", "always"),
        ("noetl schema Play", "Playbook PlaybookTest"),
        ("noetl explain tool.h", "tool.http"),
        ("noetl explain exit.13", "exit.130"),
        ("noetl completion f", "fish"),
        ("noetl executions ev", "events"),
        ("noetl -o json executions g", "get"),
        ("noetl executions events --fo", "--follow"),
        ("noetl executions list --server-u", "--server-url"),
        ("noetl pools list -o na", "name"),
        ("noetl context --he", "--help"),
        ("noetl validate exam", ""),
    ],
)
def test_bash_offers_what_fits(complete, words, offered):
    assert complete(*words.split()) == offered.split()


def test_every_command_is_offered(complete):
    assert [name for name in COMMANDS if name not in complete("noetl", "")] == []


NAMED = """\
noetl() {{ echo "$*" >> {log}; printf 'etl/orders\\netl/other\\n'; }}
{script}
COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _noetl; echo "${{COMPREPLY[*]}}"
"""


@pytest.mark.parametrize(
    ("words", "asked", "offered"),
    [
        ("noetl exec etl/or", "__complete playbooks etl/or", "etl/orders"),
        ("noetl executions get 3", "__complete executions 3", ""),
        ("noetl executions list --path etl", "__complete playbooks etl", "etl/orders etl/other"),
        ("noetl pools get e", "__complete pools e", "etl/orders etl/other"),
        ("noetl executions get -c e", "__complete contexts e", "etl/orders etl/other"),
        ("noetl executions li", "", "list"),
        ("noetl executions get --co", "", "--context --color --columns"),
        ("noetl validate fi", "", ""),
    ],
)
def test_names_are_asked_for_only_where_one_is_expected(noetl, tmp_path, words, asked, offered):
    log = tmp_path / "asked"
    log.touch()
    text = NAMED.format(script=noetl("completion", "bash").out, log=log)
    done = subprocess.run(
        ["/bin/bash", "-c", text, "bash", *words.split()],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert log.read_text().strip() == asked
    assert sorted(done.stdout.split()) == sorted(offered.split())


def test_a_server_tells_its_names(remote, served):
    run = start(served, "named/one")

    assert remote("__complete", "playbooks", "named/") == (0, "named/one\n", "")
    assert run in remote("__complete", "executions", "").out.split()
    assert "@latest:named/one" in remote("__complete", "executions", "@").out.split()
    assert remote("__complete", "pools", "") == (0, "", "")
    assert remote("__complete", "nothing", "") == (0, "", "")


@pytest.mark.parametrize("words", [(), ("pools",), ("executions", "1"), ("playbooks", "x")])
def test_offline_there_are_no_names_and_no_words(noetl, monkeypatch, words):
    monkeypatch.setenv("NOETL_SERVER_URL", "http://127.0.0.1:1")

    assert noetl("__complete", *words) == (0, "", "")


def test_a_server_that_does_not_answer_is_not_waited_for(noetl, monkeypatch):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        monkeypatch.setenv("NOETL_SERVER_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        since = perf_counter()

        assert noetl("__complete", "pools", "") == (0, "", "")
        assert perf_counter() - since < 2


def test_contexts_are_names_too(noetl):
    noetl("context", "add", "staging", "--server-url", "http://127.0.0.1:1")

    assert noetl("__complete", "contexts", "st") == (0, "staging\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_know_commands_options_formats_kinds_and_topics(noetl, shell):
    code, out, err = noetl("completion", shell)

    assert (code, err) == (0, "")
    for word in (
        *COMMANDS,
        "rename",
        "__complete executions",
        "no-cascade",
        "strict",
        "format",
        "sarif",
        "PlaybookTest",
        "tool.http",
        "always",
    ):
        assert word in out


def test_an_unknown_shell_is_a_usage_error(noetl):
    assert noetl("completion", "bsh") == (
        2,
        "",
        "error[usage]: there is no script for `bsh`\nhint: did you mean `bash`?\n",
    )
