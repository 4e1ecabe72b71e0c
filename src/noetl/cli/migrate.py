"""`noetl migrate`: older forms to today's, comments kept."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import counted

if TYPE_CHECKING:
    from noetl.cli.output import Output
    from noetl.cli.rewrite import Rewritten


def migrate(
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Files or folders, rewritten in place; - reads stdin to stdout."
        ),
    ],
    check: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--check", help="Change nothing; end with 7 if something would change.")
    ] = False,
) -> None:
    """Rewrite older forms of the language to today's, keeping comments.

    What a program cannot rewrite stays as it is, is listed, and ends the command with 7.
    """
    from noetl.cli.files import sources
    from noetl.cli.rewrite import migrated, rewrite, say

    out: Output = ctx.obj
    results = [(migrated if check else rewrite)(source) for source in sources(files)]
    for result in results:
        if result.source.path is None and not check and not out.is_structured:
            out.write(result.text)
        say(out, result)
    _end(out, results, check=check)


def _end(out: "Output", results: "list[Rewritten]", *, check: bool) -> None:
    from noetl.cli.findings import Finding, Found, refused, tell

    changed = [result for result in results if result.changes]
    remaining = tuple(
        Finding(result.source.name, diagnostic)
        for result in results
        for diagnostic in result.remaining
    )
    tell(out, remaining)
    found = Found(files=len(results), items=remaining)
    if found.errors:
        raise refused(found)
    if check and changed:
        raise CommandFailed(
            "migration_needed",
            f"{counted(len(changed), 'file')} would change",
            hint="run `noetl migrate` without `--check`",
            details={"files": [result.as_json() for result in results]},
        )
    if out.is_structured:
        out.items([_shown(result) for result in results])
    out.note(f"{counted(len(results), 'file')} read, {len(changed)} changed")


def _shown(result: "Rewritten") -> dict[str, object]:
    text = {"text": result.text} if result.source.path is None else {}
    return result.as_json() | text


COMMAND = Spec(
    run=migrate,
    outputs=("table", "json", "yaml", "jsonl"),
    examples=(
        "noetl migrate examples/hello.yaml --check",
        "noetl migrate examples",
        "cat examples/hello.yaml | noetl migrate - > new.yaml",
    ),
)
