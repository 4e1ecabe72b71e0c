"""`noetl lint`: errors, older forms, and what is allowed but likely a mistake."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import FINDINGS, Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.output import Output


def lint(
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Files, folders (their *.yaml and *.yml files), or - for stdin."
        ),
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,  # noqa: FBT002 - typer reads flags from defaults
    fix: Annotated[bool, typer.Option("--fix", help="Rewrite older forms first.")] = False,  # noqa: FBT002 - as above
) -> None:
    """Check documents like `validate`, and warn about older forms and likely mistakes.

    A comment `# noetl: ignore DSL205` on a line silences one rule there.
    Ends with 0 when there are only warnings, with 7 on an error or, with --strict, on any finding.
    """
    from noetl.cli.files import STDIN, sources
    from noetl.cli.findings import search
    from noetl.cli.report import report
    from noetl.cli.rewrite import rewrite, say
    from noetl.dsl.lint import lint as diagnose

    out: Output = ctx.obj
    if fix and STDIN in files:
        message = "`--fix` cannot rewrite standard input"
        raise CommandFailed("usage", message, hint="use `noetl migrate -`")
    named = sources(files)
    if fix:
        for source in named:
            say(out, rewrite(source))
        named = sources(files)
    found = search(named, diagnose)
    report(out, found, is_failure=bool(found.errors or (strict and found.items)))


COMMAND = Spec(
    run=lint,
    outputs=FINDINGS,
    examples=(
        "noetl lint examples",
        "noetl lint examples/hello.yaml --strict -o json",
        "noetl lint examples --fix",
    ),
)
