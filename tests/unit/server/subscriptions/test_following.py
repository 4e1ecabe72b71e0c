"""Subscriptions as a list that is followed: whoever may read them hears what has changed."""

from __future__ import annotations

import asyncio

from tests.unit.server.rig import rig, virtually
from tests.unit.server.subscriptions.stage import PATH, post, registered, report
from tests.unit.server.test_feed import following


@virtually
async def test_a_subscription_is_told_whenever_it_changes() -> None:
    async with rig() as r:
        sub = await registered(r)
        async with following(r, "topics=subscriptions") as heard:
            await asyncio.sleep(1)
            await r.client.steer_subscription(sub, "activate")
            await asyncio.sleep(0.5)
            await post(r, report(r, sub, "circuit.opened", downstream="tsdb"))
            await asyncio.sleep(1)
            assert {item["event"] for item in heard.told} == {"subscriptions"}
            rows = [item["data"] for item in heard.told]
            assert [row["state"] for row in rows] == ["REGISTERED", "ACTIVE", "ACTIVE"]
            assert (rows[-1]["path"], rows[-1]["subscription_id"]) == (PATH, sub)
            assert rows[-1]["circuit"]["tsdb"]["phase"] == "open"
            quiet = len(heard.told)
            await asyncio.sleep(10)
            assert len(heard.told) == quiet
        assert r.plane.signals.listeners == set()
