import json
import sys
import tempfile

import pytest

from noetl import __version__
from noetl.cli.app import EXAMPLES, FORMATS, main
from noetl.cli.command import COMMANDS, GROUPS, every, load


def test_the_version(noetl):
    assert noetl("--version") == (0, f"noetl {__version__}\n", "")
    assert json.loads(noetl("-o", "json", "--version").out) == {"version": __version__}


def test_help_names_every_command_and_ends_with_examples(noetl):
    code, out, err = noetl("--help")

    assert (code, err) == (0, "")
    assert [name for name in COMMANDS if f"\n  {name} " not in out] == []
    assert out.endswith("Examples:\n" + "".join(f"  {line}\n" for line in EXAMPLES))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_at_least_two_examples(noetl, name):
    code, out, err = noetl(name, "--help")
    examples = load(name).spec.examples

    assert (code, err) == (0, "")
    assert len(examples) >= 2
    assert out.rstrip("\n").endswith("Examples:\n" + "\n".join(f"  {e}" for e in examples))


@pytest.mark.parametrize("name", [name for name, _ in every() if " " in name])
def test_the_help_of_a_command_of_a_group_does_too(noetl, name):
    code, out, err = noetl(*name.split(), "--help")
    examples = dict(every())[name].spec.examples

    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: noetl {name} [OPTIONS]")
    assert len(examples) >= 2
    assert out.rstrip("\n").endswith("Examples:\n" + "\n".join(f"  {e}" for e in examples))


def test_the_groups_are_those_with_commands_of_their_own():
    assert [name for name in COMMANDS if hasattr(load(name), "commands")] == list(GROUPS)


def test_the_help_of_a_group_names_its_commands(noetl):
    for name in GROUPS:
        out = noetl(name, "--help").out
        assert [word for word in load(name).spec.commands if f"\n  {word} " not in out] == []
        assert noetl(name, "-h").out == out


def test_help_has_a_short_name(noetl):
    assert noetl("-h") == noetl("--help")
    assert noetl("lint", "-h") == noetl("lint", "--help")


def test_without_a_command_the_line_is_not_understood(noetl):
    code, out, err = noetl()

    assert (code, out) == (2, "")
    assert err == "error[usage]: a command is missing\nhint: run `noetl --help`\n"


def test_an_unknown_command_names_the_nearest_one(noetl):
    assert noetl("validaate", "x") == (
        2,
        "",
        "error[usage]: there is no command `validaate`\nhint: did you mean `validate`?\n",
    )


def test_an_unknown_option_names_the_nearest_one(noetl):
    assert noetl("lint", "x", "--strct") == (
        2,
        "",
        "error[usage]: there is no option `--strct`\nhint: did you mean `--strict`?\n",
    )


def test_a_missing_argument_is_a_usage_error(noetl):
    code, out, err = noetl("validate")

    assert (code, out) == (2, "")
    assert err == ("error[usage]: missing argument 'FILE'\nhint: run `noetl validate --help`\n")


def test_a_usage_error_has_the_form_that_was_asked_for(noetl):
    for words in (("validate", "--json"), ("-o", "json", "validaate"), ("validaate", "-ojson")):
        code, out, err = noetl(*words)

        assert (code, out) == (2, "")
        assert json.loads(err)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("validate", "x", "-o", "mermaid"), "`-o mermaid` is not possible here"),
        (("validate", "x", "--color", "blue"), "`--color blue` is not possible here"),
    ],
)
def test_a_choice_that_is_not_there_lists_those_that_are(noetl, words, message):
    code, out, err = noetl(*words)

    assert (code, out) == (2, "")
    assert err.startswith(f"error[usage]: {message}\nhint: known here: ")


def test_shared_options_stand_before_the_command_or_after_it(noetl, hello):
    before = noetl("-o", "json", "validate", hello)
    after = noetl("validate", hello, "-o", "json")

    assert before == after
    assert json.loads(before.out) == {"items": [], "next_cursor": None}


def test_quiet_leaves_only_data(noetl, hello):
    assert noetl("validate", hello, "-q") == (0, "", "")
    assert noetl("validate", hello) == (0, "", "1 file is valid\n")


def test_the_environment_gives_a_preference_where_it_fits(noetl, hello, monkeypatch):
    monkeypatch.setenv("NOETL_OUTPUT", "json")

    assert json.loads(noetl("validate", hello).out) == {"items": [], "next_cursor": None}
    assert noetl("validate", hello, "-o", "text").out == ""
    monkeypatch.setenv("NOETL_OUTPUT", "name")
    assert noetl("validate", hello) == (0, "", "1 file is valid\n")


def test_settings_that_nothing_reads_are_a_warning(noetl, hello, monkeypatch):
    monkeypatch.setenv("NOETL_OUTPUT", "jsn")
    monkeypatch.setenv("NOETL_OUTPTU", "json")

    assert noetl("validate", hello).err.splitlines() == [
        "warning: NOETL_OUTPTU is not a setting of NoETL; did you mean NOETL_OUTPUT?",
        f"warning: NOETL_OUTPUT is not one of {', '.join(FORMATS)}: it is ignored.",
        "1 file is valid",
    ]


class Broken:
    """A standard input with a fault of its own."""

    def __init__(self, fault):
        self.fault = fault

    @property
    def buffer(self):
        raise self.fault


@pytest.fixture
def broken(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(fault, *words):
        monkeypatch.setattr(sys, "stdin", Broken(fault))
        code = main(["validate", "-", *words])
        return (code, *capsys.readouterr())

    return run


def test_a_fault_of_our_own_is_one_error_with_a_log_file(broken, tmp_path):
    code, out, err = broken(RuntimeError("boom"))
    (log,) = tmp_path.glob("noetl-*.log")

    assert (code, out) == (1, "")
    assert err == (
        "error[internal_error]: RuntimeError: boom\n"
        f"hint: this is a fault of NoETL; please report it with {log}\n"
    )
    assert "RuntimeError: boom" in log.read_text()


def test_a_traceback_is_shown_only_with_vv(broken):
    assert "Traceback" not in broken(RuntimeError("boom"), "-v")[2]
    assert "Traceback" in broken(RuntimeError("boom"), "-vv")[2]
    assert json.loads(broken(RuntimeError("boom"), "-vv", "--json")[2])["error"]["status"] == 500


def test_an_interrupt_ends_with_130(broken):
    code, out, err = broken(KeyboardInterrupt())

    assert (code, out) == (130, "")
    assert err.startswith("error[interrupted]: ")


def test_a_closed_standard_input_is_said(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)

    assert main(["validate", "-"]) == 1
    assert capsys.readouterr().err.startswith("error[file_unreadable]: standard input is closed")
