"""`noetl test`: playbooks against their tests, with mocked tools and virtual time."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.cli.output import Output
    from noetl.cli.suites import Suite
    from noetl.local.verdicts import Verdict

    Results = list[tuple[Suite, list[Verdict]]]


def run_tests(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Tests, or folders with *.test.yaml files; this folder."
        ),
    ] = None,
    expression: Annotated[
        str,
        typer.Option("-k", metavar="EXPR", help="Only cases so named: `retry and not slow`."),
    ] = "",
    junit: Annotated[
        str | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML, too.")
    ] = None,
    coverage: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--coverage", help="List steps not entered and arcs not taken.")
    ] = False,
    least: Annotated[
        float | None,
        typer.Option("--min", metavar="PERCENT", min=0, max=100, help="Fail below this coverage."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option("--replay", metavar="LOG", help="Check a stored log against the engine."),
    ] = None,
) -> None:
    """Run tests of playbooks: the real engine, mocked tools, and time that costs nothing.

    A case that fails shows each difference, the steps of its run, and the file with its events.
    Ends with 0 when every case passes and with 7 otherwise.
    """
    from noetl.cli.suites import found, playing

    out: Output = ctx.obj
    if log is not None:
        _replay(out, log)
        return
    suites = found(out, paths or [], expression)
    results: Results = []
    for suite, verdicts in playing(suites):
        results.append((suite, verdicts))
        _tell(out, suite, verdicts)
    if junit is not None:
        _write_junit(junit, results)
    covered = _coverage(results) if coverage or least is not None else []
    if out.is_structured:
        _document(out, results, covered if coverage or least is not None else None)
    else:
        _tell_coverage(out, covered)
    _end(out, results, [item for item in covered if item["percent"] < (least or 0)])


def _replay(out: "Output", name: str) -> None:
    from noetl.cli.replaying import replayed

    done = replayed(name)
    if done.difference is not None:
        raise CommandFailed(
            "test_failed",
            f"{name}: {done.difference.words()}",
            hint="the engine or the playbook decides otherwise than when the log was written",
        )
    if done.unread is not None:
        message = f"{name}: the log alone does not tell {done.unread}"
        raise CommandFailed("test_failed", message, hint="replay a log without large values")
    if out.is_structured:
        out.document({"runs": done.runs, "decisions": done.decisions, "difference": None})
    out.note(f"{counted(done.decisions, 'decision')} of {counted(done.runs, 'run')} are the same")


def _tell(out: "Output", suite: "Suite", verdicts: "Sequence[Verdict]") -> None:
    if out.is_structured:
        return
    from noetl.cli.text import duration, visible
    from noetl.cli.tree import STYLES, tree

    for verdict in verdicts:
        sign = "✔" if verdict.is_passed else out.styled("✖", "red")
        took = duration(verdict.duration_ms)
        if verdict.is_passed:
            if not out.is_quiet:
                out.line(f"{sign} {visible(suite.name)}: {visible(verdict.name)} ({took})")
            continue
        place = f"{visible(suite.name)}:{verdict.line}"
        out.line(f"{sign} {place}: {visible(verdict.name)} ({took})")
        for fault in verdict.faults:
            out.line(f"    {visible(fault)}")
        if verdict.run is not None:
            for line in tree(verdict.run, suite.steps):
                out.line(f"    {out.styled(line.text, *STYLES.get(line.status, ()))}")
        if verdict.events_file is not None:
            out.line(f"    events: {visible(str(verdict.events_file))}")


def _coverage(results: "Results") -> list[dict[str, Any]]:
    from noetl.cli.coverage import Coverage

    by_file: dict[str, Coverage] = {}
    for suite, verdicts in results:
        file = suite.subject.file
        of_file = by_file.setdefault(file, Coverage(file, suite.playbook))
        for verdict in verdicts:
            if verdict.run is not None:
                of_file.add(verdict.run)
    return [of_file.as_json() for of_file in by_file.values()]


def _tell_coverage(out: "Output", covered: list[dict[str, Any]]) -> None:
    for item in covered:
        out.line(f"{item['percent']:5.1f} %  {item['file']}")
        for name in item["steps_not_entered"]:
            out.line(f"         step not entered: {name}")
        for arc in item["arcs_not_taken"]:
            out.line(f"         arc not taken: {arc}")


def _document(out: "Output", results: "Results", covered: list[dict[str, Any]] | None) -> None:
    verdicts = [
        {"file": suite.name, **verdict.as_json()} for suite, of in results for verdict in of
    ]
    if out.format == "jsonl":
        out.items(verdicts)
        return
    failed = sum(1 for verdict in verdicts if not verdict["passed"])
    document: dict[str, Any] = {
        "passed": len(verdicts) - failed,
        "failed": failed,
        "cases": verdicts,
    }
    if covered is not None:
        document["coverage"] = covered
    out.document(document)


def _write_junit(name: str, results: "Results") -> None:
    from pathlib import Path

    from noetl.cli.junit import junit

    text = junit([(suite.name, verdicts) for suite, verdicts in results])
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as fault:
        message = f"`{name}` cannot be written: {fault.strerror}"
        raise CommandFailed("file_unwritable", message, hint="name another file") from fault


def _end(out: "Output", results: "Results", thin: list[dict[str, Any]]) -> None:
    verdicts = [verdict for _, of in results for verdict in of]
    failed = [verdict for verdict in verdicts if not verdict.is_passed]
    if not failed and not thin:
        out.note(f"{counted(len(verdicts), 'case')} passed")
        return
    if out.is_structured:
        raise typer.Exit(7)
    said = [f"{len(failed)} of {counted(len(verdicts), 'case')} failed"] if failed else []
    said += [f"{item['file']} is covered to {item['percent']:g} %" for item in thin]
    hint = "the events of a failed case are in the file named below it"
    if not failed:
        hint = "add cases that take the missing arcs"
    raise CommandFailed("test_failed", "; ".join(said), hint=hint)


COMMAND = Spec(
    run=run_tests,
    outputs=("table", "json", "yaml", "jsonl"),
    examples=(
        "noetl test examples/hello.test.yaml",
        "noetl test examples/branches.test.yaml -k approval --junit report.xml",
        "noetl test examples/branches.test.yaml --coverage --min 80",
    ),
)
