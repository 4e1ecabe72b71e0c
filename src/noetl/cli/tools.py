"""`noetl tools`: what a step can call."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")


def list_tools(ctx: typer.Context) -> None:
    """List the kinds of tools, built in or from plug-ins, with one sentence each."""
    from importlib.metadata import entry_points

    from noetl.cli.listing import Look, show_list
    from noetl.dsl.schema import tool_kinds

    known = {kind: {"kind": kind, "about": about} for kind, about in tool_kinds().items()}
    for found in entry_points(group="noetl.tools"):
        known.setdefault(found.name, {"kind": found.name, "about": f"Plug-in: {found.value}."})
    look = Look(
        head=("KIND", "ABOUT"),
        row=lambda item: (item["kind"], item["about"]),
        name=lambda item: f"tool/{item['kind']}",
    )
    show_list(ctx.obj, list(known.values()), look)


def tool_schema(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of tool, such as http.")],
) -> None:
    """Print the JSON Schema (2020-12) of the tools of a kind."""
    from noetl.dsl.schema import tool_kinds
    from noetl.dsl.schema import tool_schema as schema_of

    out: Output = ctx.obj
    name = kind.removeprefix("tool/")
    found = schema_of(name)
    if found is None:
        hint = nearest(name, tuple(tool_kinds()))
        raise CommandFailed("not_found", f"there is no tool `{name}`", hint=hint)
    if out.format == "name":
        out.line(f"tool/{name}")
    else:
        out.document(found)


def _spec(run: Any, outputs: tuple[str, ...], takes: str, *examples: str) -> Spec:  # noqa: ANN401 - the function of a command
    return Spec(run=run, outputs=outputs, examples=examples, takes=takes)


COMMAND = Group(
    about="List the tools of steps, and print the schema of one.",
    commands={
        "list": _spec(
            list_tools, _OUTPUTS, "nothing", "noetl tools list", "noetl tools list -o json"
        ),
        "schema": _spec(
            tool_schema,
            ("json", "yaml", "name"),
            "tools",
            "noetl tools schema http",
            "noetl tools schema python -o yaml",
        ),
    },
    examples=("noetl tools list", "noetl tools schema http -o yaml"),
)
