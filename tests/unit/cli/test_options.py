import io

import pytest

from noetl.cli.options import arranged, glance
from noetl.cli.output import Output
from noetl.settings import CliSettings


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("validate a -o json", "validate a -o json"),
        ("-o json validate a", "validate -o json a"),
        ("-ojson -vv --color=never -q validate a", "validate -ojson -vv --color=never -q a"),
        ("--output=json --json validate", "validate --output=json --json"),
        ("-o json --version", "--version"),
        ("-o json", ""),
        ("-o", ""),
        ("", ""),
        ("--bogus validate", "--bogus validate"),
    ],
)
def test_shared_options_before_the_command_move_behind_its_name(words, expected):
    assert arranged(words.split()) == expected.split()


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("validate", "table"),
        ("validate -o json", "json"),
        ("validate -ojson", "json"),
        ("validate --output=yaml", "yaml"),
        ("graph --format json", "json"),
        ("--json validaate", "json"),
        ("validate -o", "table"),
        ("validate -o sarif", "table"),
        ("validate -- --json", "table"),
    ],
)
def test_the_form_of_an_error_is_known_before_the_line_is_understood(words, form):
    out = Output(io.StringIO(), io.StringIO(), CliSettings())
    glance(words.split(), out)

    assert out.format == form


def test_verbosity_colour_and_quiet_are_known_too():
    out = Output(io.StringIO(), io.StringIO(), CliSettings(output="jsonl"))
    glance(["-vv", "--verbose", "--color", "always", "-q"], out)

    assert (out.verbosity, out.color, out.is_quiet, out.format) == (3, "always", True, "jsonl")
