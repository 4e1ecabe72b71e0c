"""`noetl exec`: a playbook on a server."""

from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.wishes import InputFile, Payload, TextFiles, Texts, Values

if TYPE_CHECKING:
    from noetl.cli.output import Output


def execute(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    ref: Annotated[
        str | None,
        typer.Argument(metavar="PLAYBOOK", help="Path, PATH@VERSION, catalog id, or a file."),
    ] = None,
    values: Values = None,
    texts: Texts = None,
    files: TextFiles = None,
    payload: Payload = None,
    inputs: InputFile = None,
    version: Annotated[
        str | None, typer.Option("-V", "--version", metavar="N", help="Another than the newest.")
    ] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="POOL", help="Whose workers run it.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", min=0, max=9, help="0 to 9 (5).")
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label of the run.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="Start once per key, for 24 hours."),
    ] = None,
    start_at: Annotated[
        str | None,
        typer.Option("--start-at", metavar="TIME", help="Not before then; 10m: in ten minutes."),
    ] = None,
    dry_run: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--dry-run", help="Only say whether it would start, and with what.")
    ] = False,
    wait: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--wait", help="Wait for the end, and show the result.")
    ] = False,
    follow: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--follow", help="As --wait, and show each step on the way.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="S", min=0.001, help="Stop waiting after so long."),
    ] = None,
    most_output: Annotated[
        int | None,
        typer.Option(
            "--max-output", metavar="BYTES", min=0, help="Large results shown in all (8 MiB)."
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="FILE", help="Start one run per JSON line of a file."),
    ] = None,
) -> None:
    """Start a playbook on a server.

    Without --wait it ends as soon as the run is accepted. With it: 0 when the run is COMPLETED,
    3 when FAILED, 9 when CANCELLED, 8 after --timeout. Ctrl-C stops the waiting, not the run.
    A file is registered first. --batch takes lines like {"path": "etl/orders", "payload": {}}.
    """
    from noetl.cli.inputs import Inputs
    from noetl.cli.starting import Start, start

    out: Output = ctx.obj
    if batch is not None:
        if ref is not None:
            message = "`--batch` and a playbook exclude each other"
            raise CommandFailed("usage", message, hint="each line of the file names its playbook")
        from noetl.cli.batch import start_batch

        start_batch(out, batch)
        return
    if ref is None:
        raise CommandFailed("usage", "no playbook is named", hint="write `noetl exec PATH`")
    asked = Inputs(
        file=inputs,
        payload=payload,
        files=tuple(files or ()),
        texts=tuple(texts or ()),
        values=tuple(values or ()),
    )
    start(
        out,
        Start(
            ref=ref,
            inputs=asked,
            version=version,
            pool=pool,
            priority=priority,
            labels=tuple(labels or ()),
            key=key,
            start_at=start_at,
            is_dry=dry_run,
            is_awaited=wait or follow or timeout is not None,
            is_followed=follow,
            timeout_s=timeout,
            most_output=most_output,
        ),
    )


COMMAND = Spec(
    run=execute,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        "noetl exec examples/hello.yaml --set name=Ada --wait",
        "noetl exec examples/hello -o name --label team=etl --priority 7 --start-at 1m",
        "noetl exec examples/hello --dry-run -o json",
        "noetl exec examples/loop_parallel.yaml --follow --timeout 30 -o json",
    ),
    takes="playbooks",
    is_remote=True,
    is_mutating=True,
)
