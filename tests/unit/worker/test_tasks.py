"""What a tool is given to work with."""

import asyncio
import hashlib

from noetl.api.events import Reported
from noetl.dsl.tasks import Python
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, play


class Code(Scripted):
    """A tool of kind `python` that does what a test says."""

    kind = "python"
    Config = Python


CODE = "- step: s\n  input: {n: 1}\n  tool: {kind: python, code: pass}\n"
RAW = b'{"v": [1]}'


def test_a_tool_knows_its_command_and_its_deadline():
    async def scene():
        server, tool = FakeServer(), Scripted()
        server.offer(server.command(attempt=2, meta={"tenant": "acme"}))
        async with Stage(server, tool):
            await server.finals()
        return tool.contexts[0]

    ctx = play(scene)
    assert (ctx.execution_id, ctx.step, ctx.command_id, ctx.attempt) == ("81", "s", "c1", 2)
    assert (ctx.idempotency_key, ctx.domain, ctx.deadline) == ("81/s/-/1", "acme/p", 300.0)


def given(bindings, refs=None, ask=(), steps=None):
    """The context of a piece of code: what it is sent, what it may ask for, what it then gets."""

    async def scene():
        server = FakeServer(CODE)
        server.objects["r"] = RAW
        server.steps = steps or {}
        found = []

        async def look(ctx):
            found.extend([await ctx.fetch(name) for name in ask])

        tool = Code(look)
        server.offer(server.command(bindings=bindings, refs=refs or {}))
        async with Stage(server, tool):
            await server.finals()
        ctx = tool.contexts[0]
        return dict(ctx.scope), ctx.names, found

    return play(scene)


def test_code_is_sent_what_is_small_and_asks_for_steps():
    bindings = {
        "workload": {"w": 1}, "ctx": {"c": 2},
        "steps": {"a": {"data": {"x": 3}}, "skipped": None},
    }  # fmt: skip
    scope, names, found = given(bindings, ask=("a", "late", "ghost"), steps={"late": 4})
    assert scope == {"workload": {"w": 1}, "variables": {"c": 2}}
    assert names == ("a",)
    assert found == [(True, {"x": 3}), (True, 4), (False, None)]


def test_what_lies_apart_is_fetched_when_code_asks_for_it():
    digest = hashlib.sha256(RAW).hexdigest()
    refs = {"ctx.big": {"ref": "r", "store": "memory", "sha256": digest}}
    scope, names, found = given({"ctx": {"c": 2}}, refs, ask=("variables",))
    assert (scope, names) == ({"workload": {}}, ("variables",))
    assert found == [(True, {"c": 2, "big": {"v": [1]}})]


def test_a_pressed_server_is_asked_for_less_and_later():
    async def scene():
        server = FakeServer()
        async with Stage(server, slots=8) as stage:
            worker = stage.worker
            await server.until(lambda: len(server.claims) == 1)
            for pressure in ("slow", "stop"):
                worker.consumer.press(pressure)
            await server.until(lambda: len(server.claims) == 2)
            return server.claims[1].free_slots, worker.is_ready, worker.idle

    asked, *state = play(scene)
    assert 2 <= asked < 8
    assert state == [True, True]


def test_a_cancelled_parked_claim_loses_nothing_on_drain():
    async def scene():
        server = FakeServer()
        async with Stage(server) as stage:
            await server.until(lambda: len(server.claims) == 1)
            stage.worker.drain()
            await asyncio.wait_for(stage.task, 1)
            return server.released, stage.worker.is_ready

    assert play(scene) == ([], False)


def test_an_answer_without_receipts_counts_as_stored():
    class Terse(FakeServer):
        async def report(self, body):
            await super().report(body)
            return Reported()

    async def scene():
        server = Terse()
        server.offer(server.command())
        async with Stage(server) as stage:
            await server.finals()
            await stage.worker.reporter.flushed()
            return stage.worker.reporter.counts.outcomes

    assert play(scene) == {"stored": 2}
