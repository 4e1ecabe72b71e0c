"""`noetl graph`: a playbook drawn for documents, Graphviz, a browser or a program."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.output import Output
    from noetl.dsl.playbook.document import Playbook


def graph(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A playbook, or - for stdin.")],
) -> None:
    """Draw the steps and arcs of a playbook.

    An arc carries its condition and, unless it waits for success, the outcome it waits for.
    """
    from noetl.cli.svg import to_svg
    from noetl.dsl import graph as drawn

    out: Output = ctx.obj
    shown = drawn.graph(_playbook(out, file))
    if out.format == "json":
        out.document(drawn.as_json(shown))
    else:
        writers = {"mermaid": drawn.to_mermaid, "dot": drawn.to_dot, "svg": to_svg}
        out.write(writers[out.format](shown))


def _playbook(out: "Output", file: str) -> "Playbook":
    from noetl.cli.files import read
    from noetl.cli.findings import Finding, Found, refused, tell
    from noetl.cli.parsing import parsed_here
    from noetl.dsl.playbook.document import Playbook

    source = read(file)
    parsed = parsed_here(source.data)
    if isinstance(parsed.model, Playbook):
        return parsed.model
    errors = tuple(Finding(source.name, item) for item in parsed.errors)
    if not errors:
        raise CommandFailed(
            "invalid_playbook",
            f"{source.name} is a {parsed.kind}, not a Playbook",
            hint="only a Playbook has steps to draw",
        )
    tell(out, errors)
    raise refused(Found(files=1, items=errors, overflow=parsed.overflow))


COMMAND = Spec(
    run=graph,
    outputs=("mermaid", "dot", "svg", "json"),
    output_aliases=("--format",),
    examples=(
        "noetl graph examples/branches.yaml --format mermaid",
        "noetl graph examples/branches.yaml -o svg > branches.svg",
    ),
)
