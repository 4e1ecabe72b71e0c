"""Ids of clients are no secret: whoever takes over one that is free gets nothing of its owner."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from noetl.gateway.errors import ClientNotYours
from noetl.gateway.hub.presence import KEPT_S
from tests.unit.gateway.requests.desk import ANN, BOB, CLIENT, desk
from tests.unit.server.rig import virtually

LONG_S = KEPT_S + 1


@virtually
async def test_the_results_of_a_forgotten_client_are_not_told_to_whoever_takes_its_id() -> None:
    async with desk(deadline_s=7200.0) as d:
        open_one, ended_one = await d.start(), await d.start()
        await d.hub.close(d.stream)
        await asyncio.sleep(LONG_S - 60)
        await d.call_back(ended_one.request_id, data="of ann")
        await asyncio.sleep(60)
        taken = await d.hub.open(BOB, CLIENT, "", "sse", lambda frame, _: frame)
        try:
            assert await d.requests.pending(BOB, CLIENT) == []
            assert [each async for each in d.requests.undelivered(BOB, CLIENT)] == []
            assert len(await d.requests.pending(ANN, CLIENT)) == 1
            await d.call_back(open_one.request_id, data="of ann")
            assert await d.messages() == []
            assert taken.behind == (0, 0)
        finally:
            await d.hub.close(taken)


@virtually
async def test_what_goes_to_all_clients_of_a_user_passes_by_an_id_that_is_somebody_elses() -> None:
    async with desk(deadline_s=7200.0) as d:
        made = [await d.start(client_id=None, delivery=how) for how in ("user", "session")]
        await d.hub.close(d.stream)
        await asyncio.sleep(LONG_S)
        assert await d.hub.clients_of(user_id=ANN.user_id) == [CLIENT]
        other = d.replica()
        taken = await other.hub.open(BOB, CLIENT, "", "sse", lambda frame, _: frame)
        try:
            for each in made:
                await d.call_back(each.request_id, data="of ann")
            assert await d.messages() == []
        finally:
            await other.hub.close(taken)


@virtually
async def test_the_same_user_id_in_another_tenant_is_somebody_else() -> None:
    async with desk() as d:
        twin = replace(ANN, tenant="acme", session_id="s-twin")
        await d.start()
        assert not await d.hub.owns(twin, CLIENT)
        assert not await d.replica().hub.owns(twin, CLIENT)
        with pytest.raises(ClientNotYours):
            await d.hub.open(twin, CLIENT, "", "sse", lambda frame, _: frame)
        assert await d.requests.listed(twin) == []
        assert await d.requests.pending(twin, CLIENT) == []
        assert len(await d.requests.listed(ANN)) == 1
