"""The books: rows and events that are told later, together, and never without measure."""

from __future__ import annotations

import asyncio
import base64
import hashlib

from noetl.gateway.ingress import accounts as module
from noetl.intake.outcomes import Disposition
from noetl.telemetry.traces.tracer import Tracer
from tests.unit.gateway.ingress.house import house, listener, refused, signed
from tests.unit.gateway.test_limits import Still
from tests.unit.gateway.test_tracing import PARENT, TRACE
from tests.unit.server.rig import virtually

BAD = {"x-sign": "00"}
KEEPING = {"keep_rejected": True}


async def flushed(h):
    await h.arrivals.accounts.flush()
    return [row for _, row in h.server.rows]


@virtually
async def test_a_delivery_is_in_the_log_a_moment_later():
    async with house() as h:
        body = b'{"a": 1}'
        headers = {"x-route": "demo/other", "x-key": "k-1"}
        await h.send(body, headers=headers)
        assert h.server.rows == []
        await asyncio.sleep(1)
        (subscription_id, row), planned = h.server.rows[0], h.desk.taken[0][1]
        assert subscription_id == "77"
        assert (row.delivery_id, row.outcome, row.status) == (planned.delivery_id, "accepted", 202)
        assert (row.execution_id, row.message_id) == ("1001", planned.message["id"])
        assert (row.bytes, row.reason, row.rejected) == (8, None, None)
        assert [one["controls"] for one in row.directives["applied"]] == [
            "dispatch.playbook", "idempotency_key",
        ]  # fmt: skip


@virtually
async def test_one_that_comes_alone_is_told_at_once_and_those_behind_it_together():
    async with house() as h:
        for _ in range(2):
            before, calls = len(h.server.rows), h.server.calls
            await h.send(b"[1]")
            await asyncio.sleep(0.01)
            assert (len(h.server.rows) - before, h.server.calls - calls) == (1, 1)
            for number in range(30):
                await h.send(b"[%d]" % number)
                await asyncio.sleep(0.01)
            assert (len(h.server.rows) - before, h.server.calls - calls) == (1, 1)
            await asyncio.sleep(module.GATHER_S)
            assert (len(h.server.rows) - before, h.server.calls - calls) == (31, 2)
            await asyncio.sleep(module.GATHER_S)


@virtually
async def test_many_deliveries_are_told_together():
    async with house() as h:
        for number in range(90):
            await h.send(b"[%d]" % number)
        await asyncio.sleep(1)
        assert (len(h.server.rows), h.server.calls) == (90, 1)


@virtually
async def test_what_became_of_each_is_counted_by_listener():
    async with house() as h:
        await h.send(b"[1]")
        for outcome, more in (("duplicate", {}), ("spooled", {"reason": "paused"})):
            h.desk.found = Disposition(message_id="1", settle="ack", outcome=outcome, **more)
            await h.send(b"[2]")
        h.desk.found = Disposition(message_id="1", settle="nack", outcome="held", reason="paused")
        await h.send(b"[3]")
        await h.ask(headers=BAD)
        m = h.metrics
        assert m.ingress_received.value("orders") == 5
        assert m.ingress_dispatched.value("orders") == 1
        assert m.ingress_duplicate.value("orders") == 1
        assert m.ingress_spooled.value("orders", "paused") == 1
        assert (h.rejected("not_active"), h.rejected("bad_signature")) == (1, 1)
        assert m.ingress_seconds.count("orders") == 4


@virtually
async def test_a_rejection_is_told_as_an_event_without_what_was_sent():
    async with house() as h:
        await h.ask(b"a secret canary", headers={**BAD, "authorization": "Bearer canary"})
        await flushed(h)
        event = h.server.events[0]
        assert (event.execution_id, event.event_type) == ("77", "subscription.message.rejected")
        assert event.payload == {
            "reason": "bad_signature",
            "listener": "orders",
            "remote_ip": "203.0.113.9",
            "sha256": hashlib.sha256(b"a secret canary").hexdigest(),
            "bytes": 15,
        }
        assert "canary" not in repr(h.server.events) + repr(h.server.rows)


@virtually
async def test_a_flood_of_rejections_is_ten_events_and_a_summary_for_each_reason():
    async with house() as h:
        await h.arrivals.listeners.of("orders")
        for number in range(2_000):
            headers = BAD if number % 2 else {}
            await h.ask(b"{}", headers=headers, address=f"10.{number % 200}.0.1", is_held=True)
        await asyncio.sleep(70)
        events = [one.payload for one in h.server.events]
        for reason in ("bad_signature", "missing_signature"):
            mine = [one for one in events if one["reason"] == reason]
            assert len(mine) == 11
            assert mine[-1] == {
                "reason": reason, "listener": "orders", "count": 990, "window_secs": 60,
            }  # fmt: skip
            assert h.rejected(reason) == 1_000
        assert len(h.server.rows) == 2 * module.MOST_SHOWN
        assert len(events) == 22


@virtually
async def test_each_minute_begins_anew():
    async with house() as h:
        for _ in range(2):
            for _ in range(12):
                await h.ask(headers=BAD)
            await asyncio.sleep(61)
        counts = [one.payload.get("count") for one in h.server.events]
        assert counts == [*[None] * 10, 2, *[None] * 10, 2]


@virtually
async def test_what_a_stranger_asks_of_nobody_is_in_no_log():
    async with house() as h:
        await h.ask(target="/ingress/nobody")
        assert (await flushed(h), h.server.events) == ([], [])
        assert h.rejected("unknown_listener", "unknown") == 1


@virtually
async def test_books_wait_for_a_server_that_is_away_and_lose_the_oldest_when_they_are_full():
    async with house() as h:
        accounts = h.arrivals.accounts
        await h.send(b"[1]")
        await h.ask(headers=BAD)
        h.server.is_away = True
        assert not await accounts.flush()
        h.server.is_away = False
        rows = await flushed(h)
        assert [row.outcome for row in rows] == ["accepted", "rejected"]
        assert len(h.server.events) == 1
        h.server.is_away = True
        known = h.arrivals.listeners.peek("orders")
        for _ in range(module.MOST_ROWS + 5):
            accounts._add_row(known, rows[0])  # noqa: SLF001 - as a delivery does
        assert h.metrics.ingress_unlogged.value("delivery") == 5


@virtually
async def test_rows_that_the_server_never_takes_are_given_up_and_counted():
    async with house() as h:
        await h.send()

        async def never(*_):
            raise refused(422, "validation_failed")

        h.arrivals.accounts._keep = never  # noqa: SLF001 - a server of another mind
        assert await h.arrivals.accounts.flush()
        assert h.metrics.ingress_unlogged.value("delivery") == 1


@virtually
async def test_rows_of_several_subscriptions_go_each_to_its_own():
    other = listener("parcels")
    async with house(listener(), other) as h:
        for name in ("orders", "parcels", "orders"):
            await h.send(name.encode(), target=f"/ingress/{name}")
        told = [one.listener for one, _ in h.desk.taken]
        assert told == ["orders", "parcels", "orders"]
        assert len(await flushed(h)) == 3


@virtually
async def test_a_listener_that_keeps_rejected_ones_keeps_what_is_no_credential():
    async with house(listener(**KEEPING)) as h:
        body = b'{"a": 1}'
        pairs = {
            "x-sign": "00", "content-type": "application/json", "authorization": "Bearer canary",
            "cookie": "canary", "x-api-key": "canary", "stripe-signature": "t=1",
        }  # fmt: skip
        await h.ask(body, headers=pairs, target="/ingress/orders?a=1")
        kept = (await flushed(h))[0].rejected
        assert base64.b64decode(kept.body) == body
        assert kept.headers == (
            ("x-sign", "00"), ("content-type", "application/json"), ("stripe-signature", "t=1"),
        )  # fmt: skip
        assert kept.query == "a=1"


@virtually
async def test_a_rejected_token_is_not_kept_with_the_rest():
    verify = "{ type: api_key, header: x-mine, query: k, allow_query: true, secret: [hook] }"
    async with house(listener(verify=verify, **KEEPING)) as h:
        await h.ask(b"{}", headers={"x-mine": "canary-1"}, target="/ingress/orders?k=canary-2")
        kept = (await flushed(h))[0].rejected
        assert (kept.headers, kept.query) == ((), "")


@virtually
async def test_a_long_or_unread_body_is_not_kept():
    async with house(listener(**KEEPING)) as h:
        await h.ask(b"x" * (64 * 1024 + 1), headers=BAD)
        await h.ask(method="GET")
        assert [row.rejected for row in await flushed(h)] == [None, None]


@virtually
async def test_rejected_bodies_that_wait_are_few():
    async with house(listener(**KEEPING)) as h:
        h.arrivals.accounts._bodies = module.MOST_KEPT_BODIES  # noqa: SLF001 - as if they waited
        await h.ask(headers=BAD)
        assert [row.rejected for row in await flushed(h)] == [None]


@virtually
async def test_nothing_of_a_request_is_shown():
    async with house() as h:
        await h.send(b'{"canary": 1}', headers={"authorization": "Bearer canary"})
        known, planned = h.desk.taken[0]
        assert "canary" not in repr(planned) + repr(known)
        assert "authorization" not in planned.message["headers"]
        assert "x-sign" not in planned.message["headers"] | planned.message["attributes"]
        assert signed(b'{"canary": 1}') not in repr(planned.message)


@virtually
async def test_a_sender_that_does_not_wait_is_in_the_log():
    async with house() as h:
        h.desk.holds = asyncio.Event()
        sending = asyncio.create_task(h.send())
        await h.desk.came.wait()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert [(row.outcome, row.reason) for row in await flushed(h)] == [
            ("failed", "client_gone")
        ]


@virtually
async def test_a_delivery_is_a_span_and_a_stranger_is_none():
    spans = []
    async with house(tracer=Tracer(Still(), spans.append)) as h:
        await h.send(headers={"traceparent": PARENT})
        await h.ask(headers={**BAD, "traceparent": PARENT})
        await h.ask(target="/ingress/nobody")
        good, bad = spans
        assert (good.name, good.attributes["listener"]) == ("gateway.ingress", "orders")
        assert good.attributes["execution_id"] == "1001"
        assert (good.parent_id, bad.parent_id) == ("", "")
        assert TRACE not in repr(spans)
        assert (bad.attributes["reason"], bad.attributes["listener"]) == ("bad_signature", "orders")
        assert "canary" not in repr(spans)


@virtually
async def test_a_delivery_joins_the_trace_of_its_sender_once_it_is_believed():
    spans = []
    told = listener(propagate="w3c")
    async with house(told, tracer=Tracer(Still(), spans.append)) as h:
        more = {"traceparent": PARENT, "tracestate": "a=b"}
        await h.send(headers=more)
        await h.ask(headers={**BAD, **more})
        good, bad = spans
        assert (good.context.trace_id, good.parent_id, good.state) == (
            TRACE, "00f067aa0ba902b7", "a=b",
        )  # fmt: skip
        assert (bad.parent_id, bad.state, TRACE in repr(bad)) == ("", "", False)
