"""The entry of `noetl`: finds the command, runs it, and turns every ending into an exit code."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO, cast

import typer
from typer.core import TyperGroup

from noetl import __version__
from noetl.cli.command import ALIASES, COMMANDS, GROUPS, load, write_examples, write_parameters
from noetl.cli.failures import CommandFailed
from noetl.cli.naming import NAMES, complete
from noetl.cli.options import arranged, glance, shared_options
from noetl.cli.output import Output, PipeClosed, mute
from noetl.cli.text import nearest
from noetl.settings import CliSettings, warnings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

EXAMPLES: Final = (
    "noetl validate examples/hello.yaml",
    "noetl explain Playbook.workflow.loop",
    "noetl graph examples/branches.yaml --format mermaid",
)
FORMATS: Final = ("table", "json", "yaml", "jsonl", "name")
_LEGIBLE: Final = 120
_TRACEBACKS: Final = 2


class Commands(TyperGroup):
    """The group that imports a command only when it is asked for."""

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 - as typer declares it
        """Name the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:  # noqa: ARG002 - as above
        """Import one command."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the command, or name the nearest one."""
        args = [ALIASES.get(args[0], args[0]), *args[1:]]
        if args[0] not in COMMANDS:
            message = f"there is no command `{args[0]}`"
            raise CommandFailed("usage", message, hint=nearest(args[0], tuple(COMMANDS)))
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """List the options and, from the table alone, the commands."""
        write_parameters([*shared_options(FORMATS, ()), *self.get_params(ctx)], formatter)
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - as above
        """End with examples."""
        write_examples(EXAMPLES, formatter)


app = typer.Typer(name="noetl", cls=Commands, rich_markup_mode=None, add_completion=False)


# typer's own help option is parsed through pydantic whenever it is not given, which would cost
# every `noetl COMMAND --help` a tenth of a second; a plain flag is not.
@app.callback(invoke_without_command=True, add_help_option=False)
def root(
    ctx: typer.Context,
    show_help: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("-h", "--help", help="Show this message and exit.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002 - as above
) -> None:
    """Check, explain, draw and rewrite playbooks: YAML workflows whose steps call tools."""
    out: Output = ctx.obj
    if show_help:
        out.write(f"{ctx.get_help()}\n")
        raise typer.Exit
    if version:
        if out.is_structured:
            out.document({"version": __version__})
        else:
            out.line(f"noetl {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        raise CommandFailed("usage", "a command is missing", hint="run `noetl --help`")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the answer is the exit code of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    out = Output(_utf8(sys.stdout), _utf8(sys.stderr), CliSettings.read())
    if words[:1] == [NAMES]:
        return complete(out, words[1:])
    glance(words, out)
    try:
        code = _run(words, out)
    except (PipeClosed, BrokenPipeError):
        mute(sys.stdout)
        return 0
    except (Exception, KeyboardInterrupt) as fault:  # noqa: BLE001 - the border of the process: exception to exit code
        failure = _failure(fault, out)
        out.fail(failure)
        return failure.exit_code
    out.flush_notes()
    return code


def _utf8(stream: TextIO | None) -> TextIO:
    """A standard stream that writes UTF-8 in every locale; nothing when it was closed."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return io.StringIO() if stream is None else stream


def _failure(fault: BaseException, out: Output) -> CommandFailed:
    if isinstance(fault, CommandFailed):
        return fault
    if isinstance(fault, KeyboardInterrupt):
        return CommandFailed("interrupted", "stopped before the end", hint="run it again")
    return _internal(fault, out)


def _run(words: list[str], out: Output) -> int:
    for warning in warnings():
        out.note(f"warning: {warning}")
    if out.settings.output not in FORMATS:
        out.note(f"warning: NOETL_OUTPUT is not one of {', '.join(FORMATS)}: it is ignored.")
    group = cast("Any", typer.main.get_command(app))
    try:
        width = min(out.width, _LEGIBLE)
        with group.make_context(
            "noetl", arranged(words, (*GROUPS, *ALIASES)), obj=out, terminal_width=width
        ) as ctx:
            group.invoke(ctx)
    except typer.Exit as ending:
        return ending.exit_code
    except typer.TyperException as fault:
        raise _usage(fault) from fault
    return 0


def _usage(fault: typer.TyperException) -> CommandFailed:
    """A refusal of the parser in our words, with the nearest option."""
    ctx = getattr(fault, "ctx", None)
    hint = f"run `{ctx.command_path} --help`" if ctx else "run `noetl --help`"
    message = " ".join(fault.format_message().split())
    option = getattr(fault, "option_name", "")
    if option and hasattr(fault, "possibilities") and ctx:
        message = f"there is no option `{option}`"
        known = [name for param in ctx.command.get_params(ctx) for name in param.opts]
        options = tuple(name for name in known if name.startswith("-"))
        hint = nearest(option, options)
    return CommandFailed("usage", message[:1].lower() + message[1:].rstrip("."), hint=hint)


def _internal(fault: BaseException, out: Output) -> CommandFailed:
    """A fault of our own: its traceback goes to a file, and to stderr only with `-vv`."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(fault))
    with tempfile.NamedTemporaryFile(
        "w", prefix="noetl-", suffix=".log", delete=False, encoding="utf-8"
    ) as log:
        log.write(text)
    if out.verbosity >= _TRACEBACKS and not out.is_structured:
        out.detail(text)
    return CommandFailed(
        "internal_error",
        f"{type(fault).__name__}: {fault}",
        hint=f"this is a fault of NoETL; please report it with {log.name}",
        details={"log": log.name},
    )


if __name__ == "__main__":
    sys.exit(main())
