"""`noetl schema`: the JSON Schema that editors complete and check with."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import columns, nearest

if TYPE_CHECKING:
    from noetl.cli.output import Output


def schema(
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="A kind, in any case; none lists them.")
    ] = None,
) -> None:
    """Print the JSON Schema (2020-12) of a kind of document, or list the kinds.

    It is made from the models that `noetl validate` reads with.
    """
    from noetl.dsl import schema as schemas

    out: Output = ctx.obj
    if kind is None:
        _list(out)
        return
    found = schemas.schema(kind)
    if found is None:
        hint = nearest(kind, schemas.kinds())
        raise CommandFailed("not_found", f"there is no kind `{kind}`", hint=hint)
    if out.format == "name":
        out.line(f"kind/{found['title']}")
    else:
        out.document(found)


def _list(out: "Output") -> None:
    from noetl.dsl.explain import explain
    from noetl.dsl.schema import kinds

    known = [(kind, found.title) for kind in kinds() if (found := explain(kind))]
    if out.format == "name":
        for kind, _ in known:
            out.line(f"kind/{kind}")
    elif out.is_structured:
        out.items([{"kind": kind, "description": about} for kind, about in known])
    else:
        out.write(columns(known, out.width))


COMMAND = Spec(
    run=schema,
    outputs=("table", "json", "yaml", "name"),
    examples=(
        "noetl schema",
        "noetl schema Playbook > playbook.schema.json",
        "noetl schema subscription -o yaml",
    ),
    takes="kinds",
)
