"""The reference page of the command line, made from the commands themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from noetl.cli.app import EXAMPLES
from noetl.cli.command import COMMANDS, GROUPS, argument_label, every, load, option_label
from noetl.cli.failures import EXITS, FAILURES
from noetl.cli.options import server_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noetl.cli.command import Command, Group

_BAR: Final = r"\|"
_SERVER: Final = "#options-of-commands-that-talk-to-a-server"
_STAR: Final = r"\*"


def cli_reference() -> str:
    """Markdown of every command, option, exit code, error code and example."""
    commands = dict(every())
    lines = [
        "# Command line",
        "",
        "`noetl` (also `ntl`) puts data on stdout and everything else on stderr.",
        "Options that every command takes may stand before its name or after it.",
        "",
        *_block(EXAMPLES),
        "| command | does |",
        "|---|---|",
        *(f"| [`{name}`](#noetl-{name}) | {about} |" for name, about in COMMANDS.items()),
        "",
        "## Options of every command",
        "",
        *_options(commands["validate"].shared, formats=False),
        "## Options of commands that talk to a server",
        "",
        "Options come first, then variables, the context, the embedded stack of this folder.",
        "",
        *_options(server_options()),
    ]
    for name in COMMANDS:
        lines += _group(name, commands) if name in GROUPS else _command(name, commands[name])
    return "\n".join([*lines, *_codes()]) + "\n"


def _group(name: str, commands: dict[str, Command]) -> Iterator[str]:
    declared = cast("Group", load(name).spec)
    yield from (f"## noetl {name}", "", declared.about, "")
    yield from _block(declared.examples)
    for word in declared.commands:
        yield from _command(f"{name} {word}", commands[f"{name} {word}"])


def _command(name: str, command: Command) -> Iterator[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    words = " ".join(argument_label(param) for param in arguments)
    yield from (f"## noetl {name}", "", f"`noetl {name} [OPTIONS] {words}`", "")
    yield from _prose(command.help or "")
    for param in arguments:
        about = getattr(param, "help", "").replace("*", _STAR)
        yield f"- `{argument_label(param)}`: {about}"
    yield ""
    yield from _options(options)
    formats = ", ".join(f"`{item}`" for item in command.spec.outputs)
    names = ", ".join(f"`{item}`" for item in ("-o", "--output", *command.spec.output_aliases))
    if command.spec.is_remote:
        yield from (f"Takes the [options of commands that talk to a server]({_SERVER}).", "")
    yield from (f"Formats of {names}: {formats}.", "")
    yield from _block(command.spec.examples)


def _prose(text: str) -> Iterator[str]:
    """One sentence per line, as the pages of docs are written."""
    for paragraph in text.split("\n\n"):
        yield from " ".join(paragraph.split()).replace(". ", ".\n").split("\n")
        yield ""


def _options(params: Iterable[Any], *, formats: bool = True) -> Iterator[str]:
    rows = []
    for param in params:
        label, about = option_label(param), param.help
        if param.name == "output" and not formats:
            label, about = "-o, --output FORMAT", "Form of the output; see each command."
        rows.append(f"| `{label.replace('|', _BAR)}` | {about} |")
    if rows:
        yield from ("| option | meaning |", "|---|---|", *rows, "")


def _block(lines: Iterable[str]) -> Iterator[str]:
    yield from ("```sh", *lines, "```", "")


def _codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {meaning} |" for code, meaning in EXITS.items())
    yield from ("", "## Error codes of the command line", "")
    yield "A file that does not exist ends with 5, like anything else that is not found."
    yield from ("", "| code | exit code | meaning |", "|---|---|---|")
    yield from (f"| `{code}` | {f.exit_code} | {f.meaning} |" for code, f in FAILURES.items())
