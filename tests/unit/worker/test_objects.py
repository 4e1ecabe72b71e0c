"""Values by reference."""

import asyncio
import hashlib

import pytest

from noetl.api.http import NoAnswer
from noetl.dsl.views import Reference
from noetl.tools.base import ToolError
from noetl.worker.objects import Objects
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, play

RAW = b'{"rows": [1, 2, 3]}'


def stored(server, raw=RAW, name="a", sha=None):
    ref = f"noetl://execution/81/result/{name}/0"
    server.objects[ref] = raw
    digest = hashlib.sha256(raw).hexdigest() if sha is None else sha
    return Reference(ref=ref, store="memory", sha256=digest, size=len(raw))


def as_json(reference):
    return {"ref": reference.ref, "store": "memory", "sha256": reference.sha256}


def test_a_value_is_fetched_once_for_all_who_want_it():
    async def scene():
        server = FakeServer()
        objects, reference = Objects(server), stored(server)
        together = await asyncio.gather(*(objects.get(reference) for _ in range(5)))
        return [*together, await objects.get(reference)], server.fetches

    assert play(scene) == ([{"rows": [1, 2, 3]}] * 6, 1)


def test_the_cache_is_bounded_by_bytes():
    async def scene():
        server = FakeServer()
        objects = Objects(server, kept_bytes=3 * len(RAW) - 1)
        references = [stored(server, name=name) for name in "abc"]
        for reference in (*references, references[2], references[1], references[0]):
            await objects.get(reference)
        big = stored(server, raw=b"[" + b" " * 100 + b"]", name="big")
        await objects.get(big)
        await objects.get(big)
        return server.fetches

    assert play(scene) == 6


def test_bytes_that_were_changed_are_refused():
    async def scene():
        server = FakeServer()
        await Objects(server).get(stored(server, sha="0" * 64))

    with pytest.raises(ToolError) as caught:
        play(scene)
    assert (caught.value.kind, caught.value.code) == ("storage_access", "digest_mismatch")


def test_a_store_that_is_away_is_asked_again():
    async def scene():
        server = FakeServer()
        server.fail("get_result", NoAnswer("away"), NoAnswer("away"))
        return await Objects(server).get(stored(server))

    assert play(scene) == {"rows": [1, 2, 3]}


def test_a_template_that_touches_a_reference_gets_its_value():
    workflow = "- step: s\n  input: {n: '{{ a.rows | length }}'}\n  tool: {kind: noop}\n"

    async def scene():
        server, tool = FakeServer(workflow), Scripted()
        refs = {"steps.a": as_json(stored(server))}
        server.offer(server.command(bindings={"steps": {"a": {}}}, refs=refs))
        async with Stage(server, tool):
            await server.finals()
        return dict(tool.contexts[0].input), server.fetches

    assert play(scene) == ({"n": 3}, 1)


def test_a_reference_that_nothing_touches_is_not_fetched():
    async def scene():
        server = FakeServer()
        refs = {"steps.a": as_json(stored(server))}
        server.offer(server.command(bindings={"steps": {"a": {}}}, refs=refs))
        async with Stage(server):
            await server.finals()
        return server.fetches

    assert play(scene) == 0


def test_a_rule_that_touches_a_reference_counts_its_task_once():
    workflow = (
        "- step: s\n  tool:\n  - name: t\n    kind: noop\n"
        "    set: {ctx.n: '{{ a.rows | length }}'}\n"
    )

    async def scene():
        server, tool = FakeServer(workflow), Scripted(7)
        refs = {"steps.a": as_json(stored(server))}
        server.offer(server.command(bindings={"steps": {"a": {}}}, refs=refs))
        async with Stage(server, tool):
            return (await server.finals())[0].payload, len(tool.contexts)

    payload, runs = play(scene)
    assert (payload["ctx"], payload["result"], runs) == ({"n": 3}, {"t": 7}, 1)
    assert [task["try"] for task in payload["tasks"]] == [1]


def test_an_object_that_is_gone_fails_its_reader():
    workflow = "- step: s\n  input: {n: '{{ a.rows | length }}'}\n  tool: {kind: noop}\n"

    async def scene():
        server = FakeServer(workflow)
        refs = {"steps.a": as_json(stored(server))}
        server.objects.clear()
        server.offer(server.command(bindings={"steps": {"a": {}}}, refs=refs))
        async with Stage(server):
            return (await server.finals())[0].payload["error"]

    error = play(scene)
    assert (error["kind"], error["code"]) == ("storage_access", "result_gone")


def test_a_large_outcome_of_a_child_is_fetched_before_the_rules_see_it():
    workflow = "- step: s\n  tool: [{name: a, kind: noop}]\n"

    async def scene():
        server = FakeServer(workflow)
        awaited = {"status": "ok", "reference": as_json(stored(server))}
        server.offer(server.command(checkpoint={"task": "a", "passes": {"a": 1}}, awaited=awaited))
        async with Stage(server):
            return (await server.finals())[0].payload["result"]

    assert play(scene) == {"a": {"rows": [1, 2, 3]}}
