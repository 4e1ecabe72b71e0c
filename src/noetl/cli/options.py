"""The options that every command takes, before its name or after it."""

from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from noetl.cli.output import COLORS, STRUCTURED, TIMES, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer.core import TyperOption

_FLAGS: Final = (
    "--json", "-q", "--quiet", "-v", "-vv", "--verbose", "--wide", "--no-input", "-y", "--yes",
    "--gateway",
)  # fmt: skip
_VALUED: Final = (
    "-o", "--output", "--color", "-c", "--context", "--server-url", "--host", "-p", "--port",
    "--token-file", "--session-token", "--request-timeout", "--columns", "--time",
)  # fmt: skip
_JOINED: Final = tuple(f"{name}=" for name in _VALUED if name.startswith("--"))


def _shared(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="Form of the output.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Short for `-o json`.")] = False,  # noqa: FBT002 - typer reads flags from defaults
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only data, no remarks.")] = False,  # noqa: FBT002 - as above
    verbose: Annotated[
        int,
        typer.Option("-v", "--verbose", count=True, help="Say more; `-vv` shows calls."),
    ] = 0,
    color: Annotated[
        str | None,
        typer.Option(
            "--color",
            metavar="|".join(COLORS),
            help="Colour; `auto` only on a terminal and without NO_COLOR.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="A,B", help="Columns of a table; labels.team nests."),
    ] = None,
    wide: Annotated[bool, typer.Option("--wide", help="Every column of a table.")] = False,  # noqa: FBT002 - as above
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="|".join(TIMES), help="How a table shows times."),
    ] = None,
    no_input: Annotated[bool, typer.Option("--no-input", help="Never ask.")] = False,  # noqa: FBT002 - as above
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Agree, without being asked.")] = False,  # noqa: FBT002 - as above
) -> None:
    """Carry the declarations; never called."""


def _of_server(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    context: Annotated[
        str | None, typer.Option("-c", "--context", metavar="NAME", help="A server by its name.")
    ] = None,
    server_url: Annotated[
        str | None, typer.Option("--server-url", metavar="URL", help="Where the server is.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="H", help="Its host, without a URL.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("-p", "--port", metavar="PORT", min=1, max=65535, help="Its port (8082)."),
    ] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="File with the bearer.")
    ] = None,
    session_token: Annotated[
        str | None,
        typer.Option(
            "--session-token", metavar="T", help="The bearer itself; the process list shows it."
        ),
    ] = None,
    request_timeout: Annotated[
        float,
        typer.Option("--request-timeout", metavar="S", min=0.1, help="For each answer (30)."),
    ] = 30.0,
    gateway: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--gateway", help="Talk to the gateway (NOETL_GATEWAY_URL).")
    ] = False,
) -> None:
    """Carry the declarations; never called."""


def server_options() -> "list[TyperOption]":
    """The options of every command that talks to a server."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(_of_server)
    return cast("list[TyperOption]", typer.main.get_command(app).params)


def shared_options(outputs: tuple[str, ...], aliases: tuple[str, ...]) -> "list[TyperOption]":
    """The shared options, with the formats of one command in `-o`."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(_shared)
    options = cast("list[TyperOption]", typer.main.get_command(app).params)
    options[0].metavar = "|".join(outputs)
    options[0].opts.extend(aliases)
    options[0].help = f"Form of the output; `{outputs[0]}` when it is not given."
    return [option for option in options if option.name != "json" or "json" in outputs]


def arranged(arguments: "Sequence[str]", groups: "Sequence[str]" = ()) -> list[str]:
    """Arguments with the shared options that stand before the command moved behind its name.

    A command of a group has two names.
    """
    at = 0
    while at < len(arguments) and (size := _size_of(arguments[at])):
        at += size
    front, rest = list(arguments[:at]), list(arguments[at:])
    if not rest or rest[0].startswith("-"):
        return rest
    if rest[0] in groups and len(rest) > 1:
        return [rest[0], *arranged([*front, *rest[1:]])]
    return [rest[0], *front, *rest[1:]]


def _size_of(word: str) -> int:
    """How many words a shared option takes here; 0 when it is something else."""
    if word in _VALUED:
        return 2
    is_joined = word.startswith(_JOINED) or (word.startswith("-o") and not word.startswith("--"))
    return 1 if is_joined or word in _FLAGS else 0


def glance(arguments: "Sequence[str]", out: Output) -> None:
    """Take the shared options leniently, so that a usage error has the form asked for."""
    out.format = out.settings.output if out.settings.output in STRUCTURED else "table"
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    for at, word in enumerate(words):
        after = words[at + 1] if at + 1 < len(words) else ""
        name, _, joined = word.partition("=")
        value = joined or after
        if word == "--json":
            out.format = "json"
        elif name in {"-o", "--output", "--format"} and value in STRUCTURED:
            out.format = value
        elif word.startswith("-o") and word[2:] in STRUCTURED:
            out.format = word[2:]
        elif name == "--color" and value in COLORS:
            out.color = value
        elif word in {"-v", "-vv", "--verbose"}:
            out.verbosity += word.count("v") if word != "--verbose" else 1
        elif word in {"-q", "--quiet"}:
            out.is_quiet = True
