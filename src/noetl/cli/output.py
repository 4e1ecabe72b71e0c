"""Where a command's words go: stdout is data, stderr is everything else."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final, Literal, TextIO

from noetl.cli.failures import CommandFailed
from noetl.cli.text import json_line, json_text, visible, yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl.cli.where import Where
    from noetl.settings import CliSettings

Color = Literal["auto", "always", "never"]
Style = Literal["bold", "dim", "red", "yellow", "cyan"]
Stream = Literal["stdout", "stderr"]
Time = Literal["iso", "relative", "unix"]

COLORS: Final[tuple[Color, ...]] = ("auto", "always", "never")
TIMES: Final[tuple[Time, ...]] = ("iso", "relative", "unix")
STRUCTURED: Final = ("json", "yaml", "jsonl")
DEFAULT_WIDTH: Final = 120

_CODES: Final[dict[Style, str]] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "yellow": "33",
    "cyan": "36",
}


class PipeClosed(Exception):
    """The reader of stdout went away: the end of the work, not a failure."""


class Output:
    """The two streams of one command, in the form that the caller asked for."""

    def __init__(self, stdout: TextIO, stderr: TextIO, settings: CliSettings) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._notes: list[str] = []
        self.settings = settings
        self.format = "table"
        self.color: Color = "auto"
        self.is_quiet = False
        self.verbosity = 0
        self.where: Where | None = None
        """The server that is meant, for a command that talks to one."""
        self.columns: tuple[str, ...] = ()
        """The fields that a table shows; none: those that a command has chosen."""
        self.is_wide = False
        self.time: Time | None = None
        """How a table shows times; none: as a command has chosen."""
        self.may_ask = True
        self.is_agreed = False
        """Whether the caller has said yes to what may be asked."""

    @property
    def is_structured(self) -> bool:
        """Whether a program reads the output."""
        return self.format in STRUCTURED

    @property
    def width(self) -> int:
        """Columns of the terminal, or of the environment, or the default."""
        if self._stdout.isatty():
            try:
                return os.get_terminal_size(self._stdout.fileno()).columns or DEFAULT_WIDTH
            except OSError:
                pass
        return self.settings.columns or DEFAULT_WIDTH

    def styled(self, text: str, *styles: Style, to: Stream = "stdout") -> str:
        """Text for one of the streams, coloured when that is wanted there."""
        stream = self._stdout if to == "stdout" else self._stderr
        return _styled(text, styles) if self._has_color(stream) else text

    def write(self, text: str) -> None:
        """Put data on stdout."""
        try:
            self._stdout.write(text)
            self._stdout.flush()
        except BrokenPipeError as fault:
            raise PipeClosed from fault
        except OSError as fault:
            mute(self._stdout)
            message = f"the output cannot be written: {fault.strerror}"
            raise CommandFailed("file_unwritable", message, hint="is the disk full?") from fault

    def line(self, text: str) -> None:
        """Put one line of data on stdout."""
        self.write(f"{text}\n")

    def document(self, value: object) -> None:
        """Put one value on stdout in the structured format."""
        writers = {"yaml": yaml_text, "jsonl": json_line}
        self.write(writers.get(self.format, json_text)(value))

    def items(self, values: Sequence[Mapping[str, object]], next_cursor: str | None = None) -> None:
        """Put a list on stdout: one document, or one line per item."""
        if self.format == "jsonl":
            for value in values:
                self.write(json_line(value))
        else:
            self.document({"items": list(values), "next_cursor": next_cursor})

    def note(self, text: str) -> None:
        """Tell the person at the terminal something; `-q` silences it.

        In a structured format notes wait until the command ends well, because after an error
        stderr holds exactly one object.
        """
        if self.is_quiet:
            return
        self._notes.append(visible(text))
        if not self.is_structured:
            self.flush_notes()

    def shout(self, text: str) -> None:
        """Tell it in red; it waits and is silenced like a note."""
        if self.is_quiet:
            return
        self._notes.append(self.styled(visible(text), "bold", "red", to="stderr"))
        if not self.is_structured:
            self.flush_notes()

    def debug(self, text: str) -> None:
        """Say more, with `-v`."""
        if self.verbosity:
            self.note(text)

    def flush_notes(self) -> None:
        """Write the notes that waited."""
        notes, self._notes = self._notes, []
        for text in notes:
            self._say(text)

    def fail(self, failure: CommandFailed) -> None:
        """Write an error: two lines for a person, one object for a program."""
        self._notes = []
        if self.is_structured:
            render = yaml_text if self.format == "yaml" else json_line
            self.detail(render(failure.as_json()))
            return
        head = self.styled(f"error[{failure.code}]:", "bold", "red", to="stderr")
        self._say(f"{head} {visible(failure.message)}")
        if failure.hint:
            hint = self.styled("hint:", "cyan", to="stderr")
            self._say(f"{hint} {visible(failure.hint)}")

    def detail(self, text: str) -> None:
        """Write to stderr what belongs to an error that follows, even with `-q`."""
        try:
            self._stderr.write(text)
            self._stderr.flush()
        except OSError:
            mute(self._stderr)  # nobody listens; the exit code still tells

    def _say(self, text: str) -> None:
        self.detail(f"{text}\n")

    def _has_color(self, stream: TextIO) -> bool:
        if self.color == "auto":
            return stream.isatty() and not self.settings.is_plain
        return self.color == "always"


def mute(stream: TextIO) -> None:
    """Let what is still buffered vanish, so that the interpreter does not fail on it at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _styled(text: str, styles: Sequence[Style]) -> str:
    codes = ";".join(_CODES[style] for style in styles)
    return f"\x1b[{codes}m{text}\x1b[0m"
