"""The small parts: caches, locks, control, and a loop that dies."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Control, Execute, Finalize
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.edge.errors import UnknownPath
from noetl.engine.program import prepare
from noetl.server.ingest.cache import Cache, begun
from noetl.server.ingest.programs import Programs
from noetl.store.locks import Locks
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig, virtually


@virtually
async def test_programs_are_read_once_and_the_least_used_is_forgotten() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        await r.start(TWO_STEPS)
        catalog = r.store.catalog
        one, two = [await catalog.resolve("default", "demo/it", number) for number in (1, 2)]
        programs = Programs(catalog, most=1)
        first = await programs.get(one.catalog_id)
        assert await programs.get(one.catalog_id) is first
        assert programs.of(two) is not first
        assert await programs.get(one.catalog_id) is not first
        with pytest.raises(UnknownPath):
            await programs.get("12")


@virtually
async def test_states_beyond_the_bound_are_dropped_the_ended_ones_first() -> None:
    async with rig() as r:
        runs = [await r.start(ONE_STEP) for _ in range(3)]
        cache = Cache(r.store, r.plane.programs, most=2)
        for run in runs[:2]:
            await cache.get(run)
        cache.retire(runs[1])
        await cache.get(runs[2])
        assert [cache.peek(run) is not None for run in runs] == [True, False, True]
        program = (await r.plane.cache.get(runs[0])).state.program
        assert begun(program).state.seq == 0
        assert prepare(program.playbook).steps.keys() == program.steps.keys()


async def test_a_lock_lets_one_in_at_a_time_and_is_forgotten() -> None:
    locks, inside, most = Locks(), 0, 0

    async def enter() -> None:
        nonlocal inside, most
        async with locks.of("a", "b"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(5)))
    assert (most, locks._held) == (1, {})  # noqa: SLF001 - nothing is kept behind


@virtually
async def test_a_run_is_ended_by_hand_in_each_way() -> None:
    async with rig() as r:
        told = []
        for body in (
            Finalize(status="completed", result={"a": 1}),
            Finalize(status="error", error={"message": "no more"}),
            Finalize(status="Cancelled", reason="enough"),
            Finalize(status="FAILED", reason="why not"),
        ):
            run = await r.start(ONE_STEP)
            answer = await r.client.finalize(run, body)
            assert answer.commands_cancelled == 1
            found = await r.client.execution(run)
            told.append((found.status, found.result, found.error and found.error["message"]))
        assert told == [
            ("COMPLETED", {"a": 1}, None),
            ("FAILED", None, "no more"),
            ("CANCELLED", None, None),
            ("FAILED", None, "why not"),
        ]
        run = await r.start(ONE_STEP)
        with pytest.raises(Refused) as refused:
            await r.client.finalize(run, Finalize(status="FAILED", error={"retryable": "maybe"}))
        assert refused.value.code == "validation_failed"
        assert await r.status(run) == "RUNNING"
        assert (await r.client.resume(run, Control())).status == "RUNNING"


@virtually
async def test_an_idempotency_key_starts_one_run() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        transport = AsgiTransport(r.server.asgi)
        answers = [
            await transport.request(
                "POST", "/api/execute", b'{"path":"demo/it"}', {"idempotency-key": key}
            )
            for key in ("a", "a", "b")
        ]
        ids = [answer.body.partition(b'"execution_id":"')[2][:18] for answer in answers]
        assert ids[0] == ids[1] != ids[2]
        refused = await transport.request(
            "POST", "/api/execute", b'{"path":"demo/it"}', {"idempotency-key": "x" * 201}
        )
        assert refused.status == 422


class Broken:
    """Timers that cannot be read."""

    async def next_due(self):
        raise ZeroDivisionError


async def test_the_death_of_a_loop_is_the_death_of_the_server() -> None:
    store = MemoryStore()
    store.timers = Broken()
    with pytest.raises(BaseExceptionGroup) as group:
        async with rig(store):
            await asyncio.Event().wait()
    assert group.group_contains(ZeroDivisionError)


async def test_a_fault_inside_the_block_goes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with rig():
            raise ZeroDivisionError


@virtually
async def test_a_reader_of_another_server_sees_what_is_committed() -> None:
    store = MemoryStore()
    async with rig(store) as a, rig(store, machine=2) as b:
        run = await a.start(TWO_STEPS)
        assert (await b.client.execution(run)).current_steps == ("start",)
        await b.plane.cache.get(run)
        (work,) = await a.claim()
        await a.done(work, {"x": 1})
        told = await b.client.execution(run)
        assert (told.current_steps, told.step_states["start"]["result"]) == (("end",), {"x": 1})
        assert (await b.client.execute(Execute(path="demo/it"))).status == "started"
