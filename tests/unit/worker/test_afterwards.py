"""What follows a report, on a fake server in virtual time."""

import asyncio

import pytest

from noetl.api.http import NoAnswer
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError
from noetl.worker.outbox import Outbox
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, play


class Marked:
    """A move of a tool that wants something done afterwards."""

    def __init__(self, done, word, outcome=None):
        self.done, self.word, self.outcome = done, word, outcome

    async def __call__(self, ctx):
        async def work():
            self.done.append(self.word)

        ctx.after_report(work)
        return self.outcome


def scene_of(*moves, workflow=None, verdict=None, failures=(), commands=1):
    """What was done after the commands ended, and the server."""

    async def scene():
        server = FakeServer(*([workflow] if workflow else []))
        if verdict:
            server.verdicts.update(verdict)
        server.fail("report", *failures)
        server.offer(*(server.command() for _ in range(commands)))
        async with Stage(server, Scripted(*moves)) as stage:
            await server.until(lambda: len(server.batches) > len(failures))
            await stage.worker.reporter.flushed()
        return server

    return play(scene)


def test_it_is_done_once_the_report_was_stored():
    done = []
    scene_of(Marked(done, "a"))
    assert done == ["a"]


def test_it_is_not_done_before_the_server_has_answered():
    done = []

    async def scene():
        server = FakeServer()
        server.gate = asyncio.Event()
        server.offer(server.command())
        async with Stage(server, Scripted(Marked(done, "a"))) as stage:
            await server.until(lambda: bool(stage.worker.reporter.afterwards.is_empty is False))
            await asyncio.sleep(5)
            before = list(done)
            assert stage.worker.owes
            server.gate.set()
            await server.finals()
            await stage.worker.reporter.flushed()
            assert not stage.worker.owes
            return before

    assert play(scene) == []
    assert done == ["a"]


@pytest.mark.parametrize("outcome", ["late", "rejected"])
def test_it_is_not_done_for_a_report_that_was_not_stored(outcome):
    done = []
    scene_of(Marked(done, "a"), verdict={"call.done": (outcome, "x")})
    assert done == []


def test_it_is_done_when_the_report_is_sent_again():
    done = []
    scene_of(Marked(done, "a"), failures=(NoAnswer("no answer"),))
    assert done == ["a"]


def test_it_is_done_when_the_report_went_by_way_of_the_disk(tmp_path):
    done = []

    async def scene():
        server = FakeServer()
        server.fail("report", *[NoAnswer("no answer")] * 3)
        server.offer(server.command())
        stage = Stage(server, Scripted(Marked(done, "a")))
        outbox = Outbox(tmp_path, 1 << 20, stage.worker.reporter._sender.clock)  # noqa: SLF001 - its own clock
        await outbox.open()
        stage = Stage(server, Scripted(Marked(done, "a")), outbox=outbox)
        async with stage:
            await server.finals()
            await stage.worker.reporter.flushed()
        await outbox.close()

    play(scene)
    assert done == ["a"]


def test_it_is_not_done_for_a_command_that_failed():
    done = []
    workflow = """\
- step: s
  tool: [{name: a, kind: noop}, {name: b, kind: noop}]
"""
    scene_of(Marked(done, "a"), ToolError("client_error", "x", "x"), workflow=workflow)
    assert done == []


def test_it_is_done_for_every_task_of_a_pipeline():
    done = []
    workflow = """\
- step: s
  tool: [{name: a, kind: noop}, {name: b, kind: noop}]
"""
    scene_of(Marked(done, "a"), Marked(done, "b"), workflow=workflow)
    assert done == ["a", "b"]


RETRIED = """\
- step: s
  tool:
    kind: noop
    spec: {policy: {rules: [{when: "{{ output.data == 'again' }}", then: {do: retry DELAY}}]}}
"""


def test_a_try_that_is_not_kept_is_followed_by_nothing():
    done = []
    moves = (Marked(done, "first", Outcome(data="again")), Marked(done, "second"))
    scene_of(*moves, workflow=RETRIED.replace("DELAY", ""))
    assert done == ["second"]
    done.clear()
    server = scene_of(
        Marked(done, "first", Outcome(data="again")),
        workflow=RETRIED.replace("DELAY", ", delay: 60, backoff: fixed"),
    )
    assert server.ended[0].event_type == "command.parked"
    assert done == []


def test_a_failure_of_it_harms_nobody():
    async def fails(ctx):
        async def work():
            raise RuntimeError("the broker is away")

        ctx.after_report(work)

    server = scene_of(fails)
    assert server.ended[0].event_type == "call.done"
