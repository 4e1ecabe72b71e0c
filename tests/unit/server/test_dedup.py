"""The same wish twice, another wish under the same key, and races for a key."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.catalog import Register
from noetl.edge.errors import Conflict, Unacceptable
from noetl.server.ingest.wanted import Wanted
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, rig, virtually

KEY = ("api:me", "k", 60)


def wish(**more) -> Wanted:
    return Wanted(path="demo/it", **more)


@virtually
async def test_another_wish_under_an_exact_key_is_a_conflict() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        runs = r.plane.runs
        started = await runs.start(wish(dedup=KEY, is_exact=True, payload={"a": 1, "b": [2]}))
        assert started.status == "started"
        again = await runs.start(wish(dedup=KEY, is_exact=True, payload={"b": [2], "a": 1}))
        assert (again.status, again.execution_id) == ("duplicate", started.execution_id)
        for other in ({"payload": {"a": 1}}, {"priority": 6}, {"version": 1}, {"pool": "gpu"}):
            more = {"payload": {"a": 1, "b": [2]}, **other}
            with pytest.raises(Conflict) as refused:
                await runs.start(wish(dedup=KEY, is_exact=True, **more))
            assert refused.value.code == "dedup_conflict"
        await asyncio.sleep(61)
        later = await runs.start(wish(dedup=KEY, is_exact=True))
        assert later.status == "started"


@virtually
async def test_another_payload_under_a_plain_key_is_a_duplicate() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        one = await r.plane.runs.start(wish(dedup=KEY, payload={"a": 1}))
        other = await r.plane.runs.start(wish(dedup=KEY, payload={"a": 2}))
        assert (other.status, other.execution_id) == ("duplicate", one.execution_id)


@virtually
async def test_an_id_that_the_caller_minted_stands_for_one_wish() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        runs, minted = r.plane.runs, "77"
        assert (await runs.start(wish(execution_id=minted))).execution_id == minted
        assert (await runs.start(wish(execution_id=minted))).status == "duplicate"
        with pytest.raises(Conflict) as refused:
            await runs.start(wish(execution_id=minted, payload={"a": 1}))
        assert refused.value.code == "dedup_conflict"
        row = await r.store.executions.get(minted)
        assert row is not None
        assert row.dedup_key is None
        # A plain key says less than an id: another payload under it is a duplicate.
        keyed = await runs.start(wish(execution_id="78", dedup=KEY, payload={"a": 1}))
        other = await runs.start(wish(execution_id="79", dedup=KEY, payload={"a": 2}))
        assert (other.status, other.execution_id) == ("duplicate", keyed.execution_id)
        with pytest.raises(Conflict):
            await runs.start(wish(execution_id="78", dedup=KEY, payload={"a": 2}))


@virtually
async def test_two_servers_that_start_the_same_wish_at_once_start_one_run() -> None:
    store = MemoryStore()
    async with rig(store, is_alone=False) as one, rig(store, machine=2, is_alone=False) as other:
        await one.client.register(Register(content=HEAD + ONE_STEP.lstrip()))
        for more in ({"dedup": KEY}, {"execution_id": "77"}, {"dedup": KEY, "is_exact": True}):
            started = await asyncio.gather(
                *(r.plane.runs.start(wish(**more)) for _ in range(5) for r in (one, other))
            )
            assert len({item.execution_id for item in started}) == 1


@virtually
async def test_a_wish_that_is_refused_leaves_no_key_behind() -> None:
    async with rig() as r:
        strict = "inputs: {city: {type: string, required: true}}\n" + ONE_STEP.lstrip()
        await r.client.register(Register(content=HEAD + strict))
        with pytest.raises(Unacceptable):
            await r.plane.runs.start(wish(dedup=KEY, is_exact=True))
        right = wish(dedup=KEY, is_exact=True, payload={"city": "ZRH"})
        assert (await r.plane.runs.start(right)).status == "started"
