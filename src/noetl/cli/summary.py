"""The end of a run in a few lines: its status, its result, or the step that failed and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.cli.text import duration, visible, yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from noetl.cli.files import Source
    from noetl.cli.output import Output
    from noetl.local.steps import Run


MOST_LINES = 40


def summary(
    out: Output, run: Run, source: Source | None = None, events_file: Path | None = None
) -> str:
    """What a person wants to know first."""
    status = out.styled(run.status, "bold" if run.status == "COMPLETED" else "red")
    lines = [f"{status} {visible(run.path)} {run.execution_id} in {duration(run.duration_ms)}"]
    if run.error is not None:
        lines += _error(run.error, source)
    elif run.reason:
        lines.append(f"reason: {visible(run.reason)}")
    lines += _handled(run)
    if run.result is not None:
        lines += ["result:", *_shown(run.result)]
    if run.status != "COMPLETED" and events_file is not None:
        lines.append(f"events: {visible(str(events_file))}")
    return "\n".join(lines) + "\n"


def _handled(run: Run) -> Iterator[str]:
    """Failures that an arc took care of: the run goes on, and nothing is hidden."""
    for name, step in run.steps.items():
        if step.is_handled and step.error is not None:
            told = f"{step.error['kind']} ({step.error['code']}): {step.error['message']}"
            yield f"handled: step {visible(name)}, {visible(told)}"


def _error(error: dict[str, Any], source: Source | None) -> Iterator[str]:
    where = [f"step {error['step']}"] if error.get("step") else []
    where += [f"task {error['task']}"] if error.get("task") and error.get("step") else []
    where += [f"iteration {error['index']}"] if error.get("index") is not None else []
    yield f"error: {', '.join([*where, error['kind']])} ({error['code']})"
    yield f"  {visible(error['message'])}"
    details = error.get("details") or {}
    if details.get("exception"):
        line = f", line {details['line']}" if details.get("line") else ""
        yield f"  {visible(str(details['exception']))}{line} of the code"
    for text in str(details.get("traceback") or "").splitlines():
        yield f"    {visible(text)}"
    if error.get("step") and source is not None:
        yield from _place(error["step"], source)


def _place(step: str, source: Source) -> Iterator[str]:
    """Where the step is written."""
    for number, text in enumerate(source.data.decode("utf-8", "replace").splitlines(), 1):
        words = text.replace("-", " ").replace("{", " ").split()
        if words[:2] == ["step:", step] or words[:2] == ["step:", f"{step},"]:
            yield f"  at {visible(source.name)}:{number}"
            return


def _shown(value: object) -> Iterator[str]:
    """A value, indented; of a long one the beginning."""
    lines = yaml_text(value).rstrip("\n").split("\n")
    for line in lines[:MOST_LINES]:
        yield f"  {line}"
    if len(lines) > MOST_LINES:
        yield f"  ... {len(lines) - MOST_LINES} more lines; `-o json` shows all"
