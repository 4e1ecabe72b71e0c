import errno
import io
import json
import os

import pytest
import yaml

from noetl.cli.failures import CommandFailed
from noetl.cli.output import Output, PipeClosed
from noetl.settings import CliSettings


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Unwritable(io.StringIO):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        raise OSError(self.number, os.strerror(self.number), text)


def output(stdout=None, stderr=None, **settings):
    return Output(stdout or io.StringIO(), stderr or io.StringIO(), CliSettings(**settings))


@pytest.mark.parametrize(
    ("stream", "settings", "color", "is_colored"),
    [
        (Terminal, {}, "auto", True),
        (Terminal, {"no_color": True}, "auto", False),
        (Terminal, {"term": "dumb"}, "auto", False),
        (Terminal, {}, "never", False),
        (io.StringIO, {}, "auto", False),
        (io.StringIO, {"no_color": True, "term": "dumb"}, "always", True),
    ],
)
def test_colour_needs_a_terminal_that_does_not_forbid_it(stream, settings, color, is_colored):
    out = output(stream(), stream(), **settings)
    out.color = color

    assert ("\x1b" in out.styled("x", "red")) is is_colored
    assert ("\x1b" in out.styled("x", "red", to="stderr")) is is_colored


@pytest.mark.parametrize(("columns", "width"), [(None, 120), (80, 80)])
def test_width_off_a_terminal_is_that_of_the_environment_or_120(columns, width):
    assert output(columns=columns).width == width


def test_a_terminal_without_a_size_has_the_default_width():
    class Odd(Terminal):
        def fileno(self):
            raise OSError

    assert output(Odd(), columns=70).width == 70


def test_a_list_is_one_document_or_one_line_per_item():
    shown = {}
    for form in ("json", "yaml", "jsonl"):
        stream = io.StringIO()
        out = output(stream)
        out.format = form
        out.items([{"a": 1}, {"a": 2}])
        shown[form] = stream.getvalue()

    document = {"items": [{"a": 1}, {"a": 2}], "next_cursor": None}
    assert json.loads(shown["json"]) == document
    assert yaml.safe_load(shown["yaml"]) == document
    assert shown["jsonl"] == '{"a":1}\n{"a":2}\n'


def test_notes_go_to_stderr_unless_quiet():
    stderr = io.StringIO()
    out = output(stderr=stderr)
    out.note("one")
    out.debug("not without -v")
    out.verbosity = 1
    out.debug("two\x1b[31m")
    out.is_quiet = True
    out.note("three")

    assert stderr.getvalue() == "one\ntwo\\x1b[31m\n"


def test_in_a_structured_format_an_error_is_the_only_thing_on_stderr():
    stderr = io.StringIO()
    out = output(stderr=stderr)
    out.format = "json"
    out.note("a remark")
    out.fail(CommandFailed("not_found", "no x", hint="try y", details={"near": ["y"]}))

    assert json.loads(stderr.getvalue()) == {
        "error": {
            "code": "not_found",
            "message": "no x",
            "hint": "try y",
            "docs_url": "/docs/reference/errors#not_found",
            "status": 404,
            "request_id": None,
            "details": {"near": ["y"]},
        }
    }


def test_in_a_structured_format_notes_come_when_the_command_ended_well():
    stderr = io.StringIO()
    out = output(stderr=stderr)
    out.format = "yaml"
    out.note("a remark")

    assert stderr.getvalue() == ""
    out.flush_notes()
    assert stderr.getvalue() == "a remark\n"


def test_an_error_for_a_person_is_two_lines():
    stderr = io.StringIO()
    out = output(stderr=stderr)
    out.fail(CommandFailed("usage", "bad\nthing", hint="a hint"))
    out.fail(CommandFailed("usage", "no hint"))

    assert stderr.getvalue() == "error[usage]: bad\\nthing\nhint: a hint\nerror[usage]: no hint\n"


def test_a_reader_that_went_away_ends_the_work():
    with pytest.raises(PipeClosed):
        output(Unwritable(errno.EPIPE)).write("x")


def test_a_full_disk_is_an_error_of_its_own():
    with pytest.raises(CommandFailed) as caught:
        output(Unwritable(errno.ENOSPC)).write("x")

    assert (caught.value.code, caught.value.exit_code) == ("file_unwritable", 1)


def test_a_closed_stderr_does_not_change_the_ending():
    output(stderr=Unwritable(errno.EPIPE)).note("x")
