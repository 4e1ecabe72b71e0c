"""Listeners by name: asked for seldom, forgotten when they change, and served in outages."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from noetl.bus import subjects
from noetl.gateway.ingress import listeners as module
from noetl.gateway.ingress.listeners import ConfigUnavailable
from noetl.secrets.sealed import KeyPair
from tests.unit.gateway.ingress.house import SECRET, house, listener, signed
from tests.unit.server.rig import virtually


@virtually
async def test_a_listener_is_asked_for_once_and_serves_for_half_a_minute():
    async with house() as h:
        of = h.arrivals.listeners.of
        found = await of("orders")
        assert found is not None
        assert (found.path, found.state, found.version) == ("subscriptions/orders", "ACTIVE", 1)
        assert found.secrets == {"hook": {"value": SECRET}}
        for _ in range(100):
            assert await of("orders") is found
        assert h.server.asked == ["orders"]
        await asyncio.sleep(31)
        h.server.listeners["orders"] = listener(state="PAUSED", etag="2")
        newer = await of("orders")
        assert newer is not None
        assert (newer.state, h.server.asked) == ("PAUSED", ["orders"] * 2)


@virtually
async def test_one_that_is_used_is_asked_for_anew_before_its_time_is_over():
    async with house() as h:
        of = h.arrivals.listeners.of
        first = await of("orders")
        await asyncio.sleep(25)
        h.server.listeners["orders"] = listener(state="PAUSED", etag="2")
        assert await of("orders") is first  # nobody waits
        await asyncio.sleep(1)
        newer = await of("orders")
        assert newer is not None
        assert (newer.state, newer.secrets) == ("PAUSED", {"hook": {"value": SECRET}})
        assert (h.server.asked, h.server.sealed) == (["orders"] * 2, ["orders"] * 2)


@virtually
async def test_one_that_has_not_changed_is_told_once_and_serves_on():
    async with house() as h:
        of = h.arrivals.listeners.of
        first = await of("orders")
        for number in range(20):
            await asyncio.sleep(31)
            assert await of("orders") is first
            assert h.server.asked == ["orders"] * (number + 2)
        assert h.server.sealed == ["orders"]
        h.arrivals.listeners.drop("orders")
        assert await of("orders") is not first
        assert h.server.sealed == ["orders"] * 2


@virtually
async def test_many_who_ask_at_once_ask_the_server_once():
    async with house() as h:
        h.server.holds = asyncio.Event()
        asking = [asyncio.create_task(h.arrivals.listeners.of("orders")) for _ in range(50)]
        await asyncio.sleep(0.1)
        h.server.holds.set()
        found = await asyncio.gather(*asking)
        assert len({id(one) for one in found}) == 1
        assert h.server.asked == ["orders"]


@virtually
async def test_a_hint_drops_a_listener_at_once():
    async with house() as h:
        of = h.arrivals.listeners.of
        told = []
        h.arrivals.listeners.on_changed.append(told.append)
        await of("orders")
        h.server.listeners["orders"] = listener(state="DEACTIVATED", etag="2")
        await h.bus.tell(subjects.ingress("orders"), b"")
        await asyncio.sleep(0.01)
        found = await of("orders")
        assert found is not None
        assert (found.state, told) == ("DEACTIVATED", ["orders"])


@virtually
async def test_an_answer_from_before_a_hint_is_not_kept():
    async with house() as h:
        h.server.holds = asyncio.Event()
        early = asyncio.create_task(h.arrivals.listeners.of("orders"))
        await asyncio.sleep(0.1)
        h.server.listeners["orders"] = listener(state="DEACTIVATED", etag="2")
        h.arrivals.listeners.drop("orders")
        h.server.holds.set()
        await early
        found = await h.arrivals.listeners.of("orders")
        assert found is not None
        assert found.state == "DEACTIVATED"


@virtually
async def test_a_new_listener_is_found_at_once_when_its_name_was_asked_for_before():
    async with house() as h:
        of = h.arrivals.listeners.of
        assert await of("parcels") is None
        h.server.listeners["parcels"] = listener("parcels")
        assert await of("parcels") is None
        await h.bus.tell(subjects.ingress("parcels"), b"")
        await asyncio.sleep(0.01)
        assert await of("parcels") is not None


@virtually
async def test_an_unknown_name_is_asked_for_once_in_ten_seconds():
    async with house() as h:
        for _ in range(50):
            assert await h.arrivals.listeners.of("nobody") is None
        assert h.server.asked == ["nobody"]
        await asyncio.sleep(10)
        await h.arrivals.listeners.of("nobody")
        assert h.server.asked == ["nobody"] * 2


@virtually
async def test_names_without_end_take_no_room_and_one_label():
    async with house() as h:
        for number in range(10_050):
            assert await h.arrivals.listeners.of(f"no-{number}") is None
        assert len(h.server.asked) == len(set(h.server.asked)) == 10_050
        assert len(h.arrivals.listeners._unknown) == module.MOST_UNKNOWN  # noqa: SLF001 - what it holds
        for number in range(300):
            told = await h.ask(target=f"/ingress/no-{number}")
            assert told.code == "unknown_listener"
        assert h.rejected("unknown_listener", "unknown") == 300
        assert h.metrics.ingress_received.value("unknown") == 300
        assert b"no-1" not in h.metrics.render()


@pytest.mark.parametrize("name", ["Orders", "-x", "a" * 64, "a.b", "a%20b", "%c3%a4", "_x", "a%0a"])
def test_a_name_that_no_listener_can_have_is_not_asked_for(name):
    async def steps():
        async with house() as h:
            told = await h.ask(target=f"/ingress/{name}")
            assert (told.status, told.code) == (404, "unknown_listener")
            assert h.server.asked == []

    virtually(steps)()


@pytest.mark.parametrize(
    "path", ["/ingress/", "/ingress/a/b", "/ingress/a%2fb", "//ingress/orders"]
)
def test_tricks_with_paths_find_no_listener(path):
    async def steps():
        async with house() as h:
            told = await h.ask(target=path)
            assert (told.status, h.server.asked) == (404, [])

    virtually(steps)()


@virtually
async def test_strangers_do_not_wear_the_server_out():
    async with house() as h:
        h.server.holds = asyncio.Event()
        asking = [
            asyncio.create_task(h.ask(target=f"/ingress/no-{n}", address=f"10.0.{n % 250}.1"))
            for n in range(400)
        ]
        await asyncio.sleep(0.1)
        assert len(h.server.asked) == module.AT_ONCE
        h.server.holds.set()
        codes = [(await one).code for one in asking]
        assert codes.count("unknown_listener") == module.MOST_WAITING
        assert codes.count("config_unavailable") == 400 - module.MOST_WAITING


@virtually
async def test_a_cached_listener_serves_an_hour_while_the_server_is_away():
    async with house() as h:
        assert (await h.send(b"[1]")).status == 202
        h.server.is_away = True
        for minute in range(1, 60):
            await asyncio.sleep(60)
            assert (await h.send(b"[%d]" % minute)).status == 202
        await asyncio.sleep(120)
        told = await h.send(b"[]")
        assert (told.status, told.code) == (503, "config_unavailable")
        assert told.headers["retry-after"] == "5"


@virtually
async def test_a_listener_that_is_not_cached_is_sent_back_while_the_server_is_away():
    async with house() as h:
        h.server.is_away = True
        told = await h.send()
        assert (told.status, told.code) == (503, "config_unavailable")
        h.server.is_away = False
        assert (await h.send()).status == 202


@virtually
async def test_a_server_that_hangs_holds_nobody_up_for_long():
    async with house() as h:
        await h.arrivals.listeners.of("orders")
        await asyncio.sleep(31)
        h.server.holds = asyncio.Event()
        began = h.clock.monotonic()
        assert await h.arrivals.listeners.of("orders") is not None
        assert h.clock.monotonic() - began == module.ASK_S
        began = h.clock.monotonic()
        for _ in range(10):
            assert await h.arrivals.listeners.of("orders") is not None
            await asyncio.sleep(module.AGAIN_S)
        assert h.clock.monotonic() - began == 10 * module.AGAIN_S


@virtually
async def test_what_was_missed_while_nobody_heard_is_asked_for_anew():
    async with house() as h:
        await h.arrivals.listeners.of("orders")
        h.server.listeners["orders"] = listener(state="PAUSED", etag="2")
        again = asyncio.create_task(h.arrivals.listeners.listen())
        await asyncio.sleep(0.01)
        found = await h.arrivals.listeners.of("orders")
        again.cancel()
        assert found is not None
        assert found.state == "PAUSED"


@virtually
async def test_a_listener_that_is_gone_is_unknown():
    async with house() as h:
        await h.arrivals.listeners.of("orders")
        del h.server.listeners["orders"]
        await asyncio.sleep(31)
        assert await h.arrivals.listeners.of("orders") is None
        assert h.arrivals.listeners.peek("orders") is None


@virtually
async def test_an_old_and_a_new_secret_and_one_that_was_taken_away():
    both = "{ type: hmac_sha256, header: x-sign, secret: [hook, spare] }"
    async with house(listener(verify=both)) as h:
        h.server.secrets["spare"] = {"value": "canary-old-secret-0123456789"}
        old = {"x-sign": signed(b"{}", "canary-old-secret-0123456789")}
        assert (await h.ask(b"{}", headers=old)).status == 202
        assert (await h.send(b"{}")).status == 202
        del h.server.secrets["spare"]
        await asyncio.sleep(31)
        assert (await h.ask(b"{}", headers=old)).code == "bad_signature"
        assert (await h.send(b"{}")).status == 202


@virtually
async def test_secrets_are_shown_by_nothing():
    async with house() as h:
        known = await h.arrivals.listeners.of("orders")
        assert known is not None
        shown = [repr(known), repr(known.proving), str(known), repr(h.arrivals.listeners)]
        assert not any("canary" in text for text in shown)
        assert SECRET not in h.seen.masked(f"a line with {SECRET} in it")


@pytest.mark.parametrize("how", ["sealed", "document", "refused"])
def test_what_cannot_be_read_is_not_judged(how, caplog):
    async def steps():
        async with house() as h:
            if how == "sealed":
                h.server.public = KeyPair.make().public
            elif how == "document":
                told = h.server.listeners["orders"]
                broken = msgspec.structs.replace(told, document="kind: Playbook")
                h.server.listeners["orders"] = broken
            else:
                h.server.refuses = "forbidden"
            with pytest.raises(ConfigUnavailable):
                await h.arrivals.listeners.of("orders")
            assert (await h.send()).code == "config_unavailable"

    with caplog.at_level(logging.WARNING):
        virtually(steps)()
    assert caplog.records
    assert "canary" not in caplog.text
