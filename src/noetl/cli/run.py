"""`noetl run`: a playbook on this machine, with the real server and worker in this process."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.wishes import InputFile, Payload, TextFiles, Texts, Values

if TYPE_CHECKING:
    from noetl.cli.files import Source
    from noetl.cli.output import Output
    from noetl.dsl.playbook import Playbook
    from noetl.local.launch import Finished

_DEFAULTS = ("noetl.yaml", "main.yaml")


def run(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    ref: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A playbook; ./noetl.yaml, then ./main.yaml."),
    ] = None,
    values: Values = None,
    texts: Texts = None,
    files: TextFiles = None,
    payload: Payload = None,
    inputs: InputFile = None,
    events: Annotated[
        str | None,
        typer.Option(
            "--events",
            metavar="FILE",
            help="Where the event log goes (.noetl/runs/<id>.jsonl); - streams it with -o jsonl.",
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="EVENTS", help="Go on with a run that was cut short."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="S", min=0.001, help="Cancel after so many seconds."),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option("--max-in-flight", metavar="N", min=1, help="Commands at once (CPUs x 4)."),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--playbook-dir", metavar="DIR", help="Where sub-playbooks lie (beside the file)."
        ),
    ] = None,
    credentials: Annotated[
        list[str] | None,
        typer.Option(
            "--credential",
            metavar="NAME=FILE|env:VAR",
            help="A credential for this run; never stored.",
        ),
    ] = None,
    mock: Annotated[
        str | None,
        typer.Option("--mock", metavar="FILE", help="Mocks in the form of a test's `mocks`."),
    ] = None,
    most_output: Annotated[
        int | None,
        typer.Option(
            "--max-output", metavar="BYTES", min=0, help="Large results shown in all (8 MiB)."
        ),
    ] = None,
    dry_run: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--dry-run", help="Check, and show the plan; run nothing.")
    ] = False,
) -> None:
    """Run a playbook on this machine: no server, no database, the same engine.

    Inputs of a later kind win: the playbook's workload, -i, --payload, --set.
    Ends with 0 when the run is COMPLETED, 3 when FAILED, 9 when CANCELLED, 8 after --timeout,
    7 when the playbook or its inputs are refused.
    """
    from noetl.cli.files import read
    from noetl.cli.inputs import Inputs, payload_of
    from noetl.cli.playbook import playbook_of
    from noetl.cli.session import Session, resumed

    out: Output = ctx.obj
    if events == "-" and out.format != "jsonl":
        raise CommandFailed("usage", "`--events -` needs `-o jsonl`", hint="add `-o jsonl`")
    log = None if resume is None else resumed(resume)
    name = _ref(ref, None if log is None else log.file)
    source = read(name)
    playbook = playbook_of(out, source, otherwise="only a Playbook can be run")
    given = payload_of(
        Inputs(
            file=inputs,
            payload=payload,
            files=tuple(files or ()),
            texts=tuple(texts or ()),
            values=tuple(values or ()),
        )
    )
    if log is not None and given:
        raise CommandFailed("usage", "a resumed run has its inputs", hint="leave the inputs out")
    if dry_run:
        _show_plan(out, playbook)
        return
    session = Session(
        out=out,
        source=source,
        playbook=playbook,
        payload=given,
        events=events,
        log=log,
        timeout_s=timeout,
        slots=slots,
        folder=folder,
        credentials=tuple(credentials or ()),
        mock=mock,
        most_output=most_output,
    )
    ending = session.run()
    _show(out, source, ending, is_streamed=events == "-")
    raise typer.Exit(session.exit_code(ending))


def _ref(ref: str | None, of_log: str | None) -> str:
    from pathlib import Path

    if ref or of_log:
        return ref or of_log or ""
    found = next((name for name in _DEFAULTS if Path(name).is_file()), None)
    if found is None:
        message = "no playbook is named, and there is no ./noetl.yaml and no ./main.yaml"
        raise CommandFailed("usage", message, hint="write `noetl run FILE`")
    return found


def _show(out: "Output", source: "Source", finished: "Finished", *, is_streamed: bool) -> None:
    if is_streamed:
        return
    if out.is_structured:
        out.document(finished.as_json())
        return
    from noetl.cli.summary import summary

    out.write(summary(out, finished.run, source, finished.events_file))


def _show_plan(out: "Output", playbook: "Playbook") -> None:
    from noetl.cli.plan import plan_of
    from noetl.cli.text import columns

    plan = plan_of(playbook)
    if out.is_structured:
        out.document(plan)
        return
    head = ("step", "tools", "pool", "next")
    rows = [head, *(_plan_row(step) for step in plan["steps"])]
    out.write(columns(rows, out.width))
    for key in ("credentials", "keychain", "hosts", "playbooks"):
        if plan[key]:
            out.line(f"{key}: {', '.join(plan[key])}")


def _plan_row(step: dict[str, Any]) -> tuple[str, str, str, str]:
    loop = f" (loop {step['loop']})" if step["loop"] else ""
    return step["step"], " > ".join(step["tools"]) + loop, step["pool"], ", ".join(step["next"])


COMMAND = Spec(
    run=run,
    outputs=("table", "json", "yaml", "jsonl"),
    examples=(
        "noetl run examples/hello.yaml --set name=Ada",
        "noetl run examples/loop_parallel.yaml -o json",
        "noetl run examples/subplaybook_parent.yaml --dry-run",
    ),
)
