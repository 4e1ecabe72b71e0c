"""The steps of a run as lines of text: pure, so that a terminal is not needed to test them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.cli.text import MINUTE_S, MS, duration, visible
from noetl.local.steps import RUNNING, elapsed_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.cli.output import Style
    from noetl.local.steps import Run, StepRun

WAITING: Final = "WAITING"
SIGNS: Final = {
    "COMPLETED": "✔",
    "FAILED": "✖",
    RUNNING: "▶",
    "SKIPPED": "⋯",
    "CANCELLED": "■",
    WAITING: "○",
}
STYLES: Final[dict[str, tuple[Style, ...]]] = {
    "FAILED": ("red",),
    RUNNING: ("cyan",),
    "SKIPPED": ("dim",),
    "CANCELLED": ("yellow",),
    WAITING: ("dim",),
}
_BAR: Final = 20
_NAME: Final = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the tree."""

    status: str
    text: str


def tree(run: Run, names: Sequence[str] = (), now: str = "") -> list[Line]:
    """The run, then its steps; `names` are those of the playbook, entered or not."""
    at = run.ended_at or now or run.last_at
    passed = clock(elapsed_ms(run.started_at, at))
    head = f"{run.path}@{run.version}  {run.execution_id}   {run.status} {passed}"
    known = dict.fromkeys((*names, *run.steps))
    width = max((*(len(name) for name in known), _NAME))
    return [
        Line(run.status, visible(head)),
        *(line for name in known for line in _step(name, run.steps.get(name), width, at)),
    ]


def _step(name: str, step: StepRun | None, width: int, at: str) -> Iterator[Line]:
    if step is None:
        yield Line(WAITING, f" {SIGNS[WAITING]} {visible(name)}")
        return
    words = "   ".join(_words(step, at))
    text = f" {SIGNS[step.status]} {visible(name):<{width}}  {words}"
    yield Line(step.status, text.rstrip())
    yield from _children(step, width)


def _words(step: StepRun, at: str) -> Iterator[str]:
    if step.total is not None:
        yield f"loop  {_loop(step)}"
    if step.percent is not None and step.status == RUNNING:
        yield f"{step.percent:.0f} %"
    if step.runs:
        running = elapsed_ms(step.entered_at, at) if step.status == RUNNING else 0.0
        yield duration(step.duration_ms + running)
    if step.runs > 1:
        yield f"{step.runs} runs"
    if step.retried > 0:
        yield f"{step.retried} retried"
    if step.error is not None:
        handled = "handled, " if step.is_handled else ""
        yield visible(f"{handled}{step.error['kind']}: {step.error['message']}")[: _BAR * 4]


def _loop(step: StepRun) -> str:
    total = step.total or 0
    if step.status != RUNNING or not total:
        return f"{step.done}/{total}"
    filled = step.done * _BAR // total
    bar = "█" * filled + "░" * (_BAR - filled)
    return f"{step.done}/{total}  {bar}  {step.done * 100 // total} %"


def _children(step: StepRun, width: int) -> Iterator[Line]:
    """The child runs by playbook: how many of them are in which state."""
    counts: dict[str, dict[str, int]] = {}
    for child in step.children:
        of_path = counts.setdefault(child.path, {})
        of_path[child.status] = of_path.get(child.status, 0) + 1
    for path, found in counts.items():
        status = RUNNING if RUNNING in found else max(found, key=lambda name: name == "FAILED")
        words = ", ".join(f"{number} {name.lower()}" for name, number in sorted(found.items()))
        yield Line(status, f"   └ {visible(path):<{width}}{words}")


def clock(ms: float) -> str:
    """`00:12`, `1:00:12`."""
    minutes, seconds = divmod(int(ms / MS), MINUTE_S)
    hours, minutes = divmod(minutes, MINUTE_S)
    short = f"{minutes:02}:{seconds:02}"
    return f"{hours}:{short}" if hours else short
