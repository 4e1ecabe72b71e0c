import asyncio
import io

import pytest

from noetl.cli.follow import Lines, Live, Nobody, follower
from noetl.cli.output import Output
from noetl.clock import SystemClock
from noetl.engine import events as ev
from noetl.settings import CliSettings
from tests.unit.local.story import log, started

ROUTING = ev.Routing(mode="exclusive")
OOPS = ev.Error(kind="python", code="exception", message="oops\x1b")
STORY = (
    started(),
    ev.StepEntered(step="fetch", visit=1),
    (0.4, ev.StepExited(step="fetch", visit=1, outcome="COMPLETED", routing=ROUTING)),
    ev.StepSkipped(step="alarm", reason="not_taken"),
    ev.StepEntered(step="store", visit=1),
    ev.StepExited(step="store", visit=1, outcome="FAILED", routing=ROUTING, error=OOPS),
    ev.PlaybookFailed(error=OOPS),
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal():
    return Terminal()


@pytest.fixture
def out(terminal):
    return Output(io.StringIO(), terminal, CliSettings(term="xterm"))


def test_plain_lines_tell_each_step_that_begins_or_ends(out, terminal):
    with Lines(out) as lines:
        for recorded in log(*STORY):
            lines.take(recorded)
        for recorded in log(
            started("8", parent_execution_id="7", parent_key="x"),
            ev.StepEntered(step="in", visit=1),
            run="8",
        ):
            lines.take(recorded)
        lines.line("fetch", "hello\x07")

    assert terminal.getvalue().splitlines() == [
        "12:00:00.000 step fetch started",
        "12:00:00.400 step fetch completed 0.4 s",
        "12:00:00.400 step alarm skipped",
        "12:00:00.400 step store started",
        "12:00:00.400 step store failed 0 ms: oops\\x1b",
        "12:00:00.000 etl/orders 8 step in started",
        "fetch | hello\\x07",
    ]


def test_what_a_log_told_before_is_not_told_again(out, terminal):
    first, second, *_ = log(*STORY)
    lines = Lines(out)
    lines.known(first)
    lines.take(second)

    assert terminal.getvalue() == "12:00:00.000 step fetch started\n"


async def test_a_terminal_shows_the_tree_and_keeps_its_last_picture(out, terminal):
    view = follower(out, SystemClock(), ["fetch", "store", "report"], terminal)
    assert isinstance(view, Live)
    with view:
        for recorded in log(*STORY):
            view.take(recorded)
        view.line("fetch", "hello")
        await asyncio.sleep(0.25)

    shown = terminal.getvalue()
    assert shown.count("etl/orders@3  7   FAILED 00:00") >= 2
    assert "fetch | hello" in shown
    for words in (" ✔ fetch", " ✖ store", " ○ report", " ⋯ alarm"):
        assert words in shown


@pytest.mark.parametrize(
    ("settings", "color", "is_quiet", "kind"),
    [
        (CliSettings(term="xterm"), "auto", False, Live),
        (CliSettings(term="xterm"), "auto", True, Nobody),
        (CliSettings(term="dumb"), "auto", False, Lines),
        (CliSettings(no_color=True), "auto", False, Lines),
        (CliSettings(term="xterm"), "never", False, Lines),
    ],
)
def test_the_view_fits_the_terminal(settings, color, is_quiet, kind):
    out = Output(io.StringIO(), io.StringIO(), settings)
    out.color, out.is_quiet = color, is_quiet

    assert isinstance(follower(out, SystemClock(), [], Terminal()), kind)
    assert not isinstance(follower(out, SystemClock(), [], io.StringIO()), Live)


def test_nobody_looks(terminal):
    with Nobody() as view:
        view.take(log(started())[0])
        view.known(log(started())[0])
        view.line("a", "b")

    assert terminal.getvalue() == ""
