"""`noetl validate`: errors of documents, each with its place and the remedy."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import FINDINGS, Spec

if TYPE_CHECKING:
    from noetl.cli.output import Output


def validate(
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Files, folders (their *.yaml and *.yml files), or - for stdin."
        ),
    ],
) -> None:
    """Check playbooks and other documents against the language; report errors only.

    Each finding names file, line and column, what is wrong, and the remedy.
    Ends with 0 when every file is valid and with 7 otherwise.
    """
    from noetl.cli.files import sources
    from noetl.cli.findings import search
    from noetl.cli.report import report

    out: Output = ctx.obj
    found = search(sources(files), lambda parsed: parsed.errors)
    report(out, found, is_failure=bool(found.items))


COMMAND = Spec(
    run=validate,
    outputs=FINDINGS,
    examples=(
        "noetl validate examples/hello.yaml",
        "noetl validate examples -o sarif > noetl.sarif",
        "cat examples/hello.yaml | noetl validate -",
    ),
)
