import subprocess

import pytest

from noetl.cli.command import COMMANDS


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


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_know_commands_options_formats_kinds_and_topics(noetl, shell):
    code, out, err = noetl("completion", shell)

    assert (code, err) == (0, "")
    for word in (
        *COMMANDS,
        "rename",
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
