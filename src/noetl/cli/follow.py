"""What a person sees of a run that goes on: a live tree on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TextIO

from noetl.cli.text import duration, visible
from noetl.cli.tree import STYLES, tree
from noetl.engine.events import StepEntered, StepExited, StepSkipped
from noetl.local.steps import Runs

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Sequence
    from types import TracebackType

    from noetl.cli.output import Output
    from noetl.clock import Clock
    from noetl.engine.events import Recorded

REDRAW_S: Final = 0.1
_TIME: Final = slice(11, 23)


class Follower(Protocol):
    """Whoever watches a run."""

    def known(self, recorded: Recorded) -> None:
        """Take an event of a log that is gone on with; there is nothing to say about it."""

    def take(self, recorded: Recorded) -> None:
        """See one event."""

    def line(self, step: str, text: str) -> None:
        """See one line that a step wrote."""


class Lines:
    """One plain line per step that begins or ends."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._runs = Runs()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def known(self, recorded: Recorded) -> None:
        """Fold alone."""
        self._runs.fold(recorded)

    def take(self, recorded: Recorded) -> None:
        """Say what changed."""
        run = self._runs.fold(recorded)
        event = recorded.event
        if run is None or not isinstance(event, (StepEntered, StepSkipped, StepExited)):
            return
        words = "started" if isinstance(event, StepEntered) else "skipped"
        if isinstance(event, StepExited):
            handled = ", handled" if event.handled else ""
            error = f"{handled}: {event.error.message}" if event.error else ""
            words = f"{event.outcome.lower()} {duration(run.step(event.step).duration_ms)}{error}"
        root = self._runs.root
        child = "" if run is root else f"{run.path} {run.execution_id} "
        time = recorded.created_at[_TIME]
        self._out.note(f"{time} {child}step {visible(event.step)} {visible(words)}")

    def line(self, step: str, text: str) -> None:
        """Show what the step printed."""
        self._out.note(f"{visible(step)} | {visible(text)}")


class Live:
    """The tree of steps, drawn at most ten times a second."""

    def __init__(self, out: Output, clock: Clock, names: Sequence[str], stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live as Drawing

        self._out = out
        self._clock = clock
        self._names = names
        self._runs = Runs()
        self._timer: TimerHandle | None = None
        console = Console(file=stream, width=out.width, highlight=False)
        self._drawing = Drawing(
            console=console,
            auto_refresh=False,
            get_renderable=self._picture,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._drawing.start()
        self._redraw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._drawing.__exit__(kind, fault, trace)

    def _redraw(self) -> None:
        self._drawing.refresh()
        self._timer = asyncio.get_running_loop().call_later(REDRAW_S, self._redraw)

    def take(self, recorded: Recorded) -> None:
        """Fold; the next drawing shows it."""
        self._runs.fold(recorded)

    known = take

    def line(self, step: str, text: str) -> None:
        """Show what the step printed above the tree."""
        self._drawing.console.print(f"{visible(step)} | {visible(text)}", markup=False)

    def _picture(self) -> Any:  # noqa: ANN401 - a text of rich
        from rich.text import Text

        from noetl.clock import rfc3339

        run = self._runs.root
        picture = Text(no_wrap=True, overflow="ellipsis")
        if run is None:
            return picture
        for number, line in enumerate(tree(run, self._names, rfc3339(self._clock.now()))):
            style = " ".join(STYLES.get(line.status, ()))
            picture.append(("\n" if number else "") + line.text, style=style or "default")
        return picture


class Nobody:
    """With `--quiet` nothing is shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def take(self, recorded: Recorded) -> None:
        """Look away."""

    known = take

    def line(self, step: str, text: str) -> None:
        """Look away."""


def follower(
    out: Output, clock: Clock, names: Sequence[str], stream: TextIO | None = None
) -> Live | Lines | Nobody:
    """The view that fits where stderr goes."""
    if out.is_quiet:
        return Nobody()
    where = sys.stderr if stream is None else stream
    may_draw = out.color != "never" and not out.settings.is_plain
    is_live = may_draw and where is not None and where.isatty()
    return Live(out, clock, names, where) if is_live else Lines(out)
