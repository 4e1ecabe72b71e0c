"""The commands: their table, and how one is built with the options that all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from noetl.cli.failures import CommandFailed
from noetl.cli.options import server_options, shared_options
from noetl.cli.output import COLORS, TIMES, Color, Output, Time
from noetl.cli.text import nearest
from noetl.cli.where import Where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typer._click.core import Context, Parameter
    from typer._click.formatting import HelpFormatter

COMMANDS: Final[dict[str, str]] = {
    "run": "Run a playbook on this machine, without a server.",
    "test": "Run the tests of playbooks: mocked tools, virtual time.",
    "validate": "Check playbooks and other documents; errors only.",
    "lint": "Check documents and warn about what is likely a mistake.",
    "migrate": "Rewrite older forms to today's, keeping comments.",
    "explain": "Say what a key, a tool, a code or a setting means.",
    "schema": "Print the JSON Schema of a kind of document.",
    "graph": "Draw the steps and arcs of a playbook.",
    "tools": "List the tools of steps, and print the schema of one.",
    "init": "Write a commented playbook and its test to start from.",
    "register": "Put playbooks into the catalog of a server.",
    "apply": "Make the catalog of a server equal files: plan, then act.",
    "diff": "Show what differs between files, the catalog and its versions.",
    "catalog": "List, show, promote, put away and export documents.",
    "exec": "Start a playbook on a server, and wait for its end or not.",
    "executions": "List, show, follow and steer the runs of a server.",
    "schedules": "List, make, pause and fire the schedules of playbooks.",
    "subscribe": "Listen for messages here, and run a playbook for each.",
    "subscriptions": "List, activate, pause and stop what listens for messages.",
    "pools": "Show the pools of workers, and let them end their work.",
    "workers": "Show the workers of all pools.",
    "credentials": "Keep, test, rotate and delete what tools prove themselves with.",
    "keychain": "Show and forget what is kept of the keychains of playbooks.",
    "wallet": "Show and rotate the key that wraps all secrets.",
    "users": "List, make and change accounts.",
    "roles": "List, make and change roles, and what they allow on paths.",
    "tenants": "List and make tenants.",
    "token": "Make, list, rotate and revoke tokens.",
    "audit": "Show what was done and refused, and whether it is whole.",
    "login": "Sign in at the gateway, with a password or at a provider.",
    "logout": "End the session that `noetl login` began.",
    "whoami": "Show who you are for the server.",
    "api": "Call a route of the server, as it is.",
    "context": "Keep servers and their tokens under names.",
    "up": "Start the embedded stack: database, broker, server, gateway, workers.",
    "down": "Stop the embedded stack.",
    "status": "Show how the embedded stack is, or how far a run is.",
    "logs": "Show what the parts of the embedded stack said.",
    "server": "Run one server in the foreground.",
    "worker": "Run one worker in the foreground.",
    "gateway": "Run one gateway in the foreground.",
    "deploy": "Print manifests of what listens and works on a cluster.",
    "db": "Migrate, check, ask, back up and restore a database.",
    "query": "Ask the database: one statement that reads.",
    "doctor": "Look whether this machine, and the stack here, are well.",
    "completion": "Print a completion script for a shell.",
}
# The commands that have commands of their own.
GROUPS: Final = (
    "tools", "catalog", "executions", "schedules", "subscriptions", "pools", "workers",
    "credentials", "keychain", "wallet", "users", "roles", "tenants", "token", "audit", "context",
    "deploy", "db",
)  # fmt: skip
ALIASES: Final = {"subscription": "subscriptions"}
"""Other names of commands."""
# Formats of the commands whose data is findings.
_HELP: Final = ("-h", "--help")
FINDINGS: Final = ("table", "json", "yaml", "jsonl", "sarif", "github")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a command module declares: its function, its formats and its examples.

    `takes` names the words that complete the command's argument.
    """

    run: Callable[..., None]
    outputs: tuple[str, ...]
    examples: tuple[str, ...]
    output_aliases: tuple[str, ...] = ()
    takes: str = "files"
    is_remote: bool = False
    """Whether it talks to a server, and takes the options that say to which."""
    is_mutating: bool = False
    """Whether it changes something there: a production server is named in red."""

    @property
    def summary(self) -> str:
        """The first line of its help."""
        return (self.run.__doc__ or "").partition("\n")[0]


EVERY: Final = ("table", "json", "yaml", "jsonl", "name")
"""The formats of a command that shows things of a server."""


def remote_spec(
    run: Callable[..., None],
    *examples: str,
    takes: str = "nothing",
    outputs: tuple[str, ...] = EVERY,
    is_mutating: bool = False,
) -> Spec:
    """What a command declares that talks to a server."""
    return Spec(
        run=run,
        outputs=outputs,
        examples=examples,
        takes=takes,
        is_remote=True,
        is_mutating=is_mutating,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What a module declares whose command has commands of its own."""

    about: str
    commands: Mapping[str, Spec]
    examples: tuple[str, ...]


class Command(TyperCommand):
    """A command whose help ends with examples and whose output is chosen by shared options."""

    spec: Spec
    shared: tuple[Parameter, ...] = ()

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Own parameters first, then the shared ones."""
        own = super().get_params(ctx)
        return [*own[: len(self.params)], *self.shared, *own[len(self.params) :]]

    def invoke(self, ctx: Context) -> Any:  # noqa: ANN401 - as typer declares it
        """Put the shared options where they belong, then run."""
        values = {param.name: ctx.params.pop(param.name) for param in self.shared}
        configure(ctx.obj, self.spec, values)
        if self.spec.is_mutating:
            from noetl.cli.asking import announce

            announce(ctx.obj)
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Name the arguments the way people write them."""
        arguments = [p for p in self.get_params(ctx) if p.param_type_name == "argument"]
        return ["[OPTIONS]", *(argument_label(param) for param in arguments)]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """List arguments, own options and shared options."""
        write_parameters(self.get_params(ctx), formatter)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - as typer declares it
        """End with examples."""
        write_examples(self.spec.examples, formatter)


class CommandGroup(TyperGroup):
    """A command with commands of its own."""

    spec: Group

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Show the help, or see to it that a command is named.

        A help option of typer's costs time even where it is not given.
        """
        if args and args[0] in _HELP:
            ctx.obj.write(f"{ctx.get_help()}\n")
            raise typer.Exit
        if not args:
            message = f"`{ctx.command_path}` needs the name of what to do"
            raise CommandFailed("usage", message, hint=f"run `{ctx.command_path} --help`")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command, or name the nearest one."""
        if args[0] not in self.spec.commands:
            message = f"there is no command `{ctx.command_path} {args[0]}`"
            hint = nearest(args[0], tuple(self.spec.commands))
            raise CommandFailed("usage", message, hint=hint)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - as typer declares it
        """List the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.summary) for name, one in self.spec.commands.items()])

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002 - as typer declares it
        """End with examples."""
        write_examples(self.spec.examples, formatter)


def load(name: str) -> Command | CommandGroup:
    """Import one command and build it."""
    declared: Spec | Group = import_module(f"noetl.cli.{name}").COMMAND
    if isinstance(declared, Spec):
        return build(name, declared)
    group = CommandGroup(
        name=name,
        help=declared.about,
        commands={word: build(word, spec) for word, spec in declared.commands.items()},
        rich_markup_mode=None,
        add_help_option=False,
    )
    group.spec = declared
    return group


def every() -> Iterator[tuple[str, Command]]:
    """Every command that does something, under the words that call it."""
    for name in COMMANDS:
        found = load(name)
        if isinstance(found, Command):
            yield name, found
        else:
            for word, command in found.commands.items():
                yield f"{name} {word}", cast("Command", command)


def build(name: str, spec: Spec) -> Command:
    """A command as its module declares it."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    helps = {"help_option_names": ["-h", "--help"]}
    app.command(name, cls=Command, context_settings=helps)(spec.run)
    command = cast("Command", typer.main.get_command(app))
    command.spec = spec
    command.shared = (
        *shared_options(spec.outputs, spec.output_aliases),
        *(server_options() if spec.is_remote else ()),
    )
    return command


def configure(out: Output, spec: Spec, values: dict[str, Any]) -> None:
    """Apply the shared options; what cannot be applied is a usage error."""
    asked = "json" if values.get("json") else values["output"]
    out.format = _format(asked, out.settings.output, spec)
    color = values["color"] or "auto"
    if color not in COLORS:
        raise _bad_choice("--color", color, COLORS)
    out.color = cast("Color", color)
    out.is_quiet = values["quiet"]
    out.verbosity = values["verbose"]
    time = values["time"]
    if time not in {None, *TIMES}:
        raise _bad_choice("--time", time, TIMES)
    out.time = cast("Time | None", time)
    out.columns = tuple(word.strip() for word in (values["columns"] or "").split(",") if word)
    out.is_wide = values["wide"]
    out.may_ask = not values["no_input"]
    out.is_agreed = values["yes"]
    if spec.is_remote:
        out.where = Where(**{name: values[name] for name in Where.__slots__})


def _format(asked: str | None, preferred: str, spec: Spec) -> str:
    """The format asked for; a preference of the environment counts where it fits."""
    wanted = asked or preferred
    wanted = "table" if wanted == "text" else wanted
    if wanted in spec.outputs:
        return wanted
    if asked:
        raise _bad_choice("-o", asked, spec.outputs)
    return spec.outputs[0]


def _bad_choice(option: str, value: str, known: Iterable[str]) -> CommandFailed:
    return CommandFailed(
        "usage", f"`{option} {value}` is not possible here", hint=nearest(value, tuple(known))
    )


def argument_label(param: Any) -> str:  # noqa: ANN401 - the class is private to typer
    """An argument as the usage line shows it."""
    label = (param.metavar or param.name) + ("..." if param.nargs != 1 else "")
    return label if param.required else f"[{label}]"


def option_label(param: Any) -> str:  # noqa: ANN401 - as above
    """An option as the help shows it."""
    takes_value = not param.is_flag and not param.count
    return ", ".join(param.opts) + (f" {param.metavar}" if takes_value else "")


def write_parameters(params: Iterable[Any], formatter: HelpFormatter) -> None:
    """Write two sections: arguments and options."""
    rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
    for param in params:
        kind = param.param_type_name
        label = argument_label(param) if kind == "argument" else option_label(param)
        rows[kind].append((label, param.help or ""))
    for title, found in (("Arguments", rows["argument"]), ("Options", rows["option"])):
        if found:
            with formatter.section(title):
                formatter.write_dl(found)


def write_examples(examples: Iterable[str], formatter: HelpFormatter) -> None:
    """Write the examples as they are typed, never wrapped."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"  {example}\n")
