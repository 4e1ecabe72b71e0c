"""The order of checks: who breaks two rules is told of the first, and nothing is read too early."""

from __future__ import annotations

import asyncio
import gzip
import itertools

import pytest

from noetl.edge.door import LATE
from noetl.gateway.ingress.reading import LINGER_BYTES
from noetl.intake.outcomes import Disposition
from tests.unit.gateway.ingress.house import BODY_LIMIT, house, listener, signed
from tests.unit.server.rig import virtually

NET = ["198.51.100.0/24"]
MIB = 1024 * 1024


class Breach:
    """How one check is failed: by the request, by the listener, or by what came before."""

    def __init__(self, status, code, *, before_body=True, **how):
        self.status = status
        self.code = code
        self.before_body = before_body
        self.listener = how.pop("listener", {})
        self.headers = how.pop("headers", {})
        self.ask = how


async def exhausted(h):
    for _ in range(100):
        await h.ask(target="/ingress/orders")


def away(h):
    h.server.is_away = True


def nobody(h):
    del h.server.listeners["orders"]


BREACHES = {
    "1 cap": Breach(503, "overloaded", most=0),
    "2 headers": Breach(431, "headers_too_large", headers={"x-long": "x" * 70_000}),
    "2 length": Breach(413, "body_too_large", headers={"content-length": str(11 * MIB)}),
    "3 bucket": Breach(429, "rate_limited", exhausts=True),
    "4 unknown": Breach(404, "unknown_listener", first=nobody),
    "4 away": Breach(503, "config_unavailable", first=away),
    "3b address": Breach(403, "ip_not_allowed", listener={"allow_ips": NET}),
    "5 state": Breach(410, "deactivated", listener={"state": "DEACTIVATED"}),
    "6 method": Breach(405, "bad_method", method="GET"),
    "6 encoding": Breach(415, "bad_media_type", headers={"content-encoding": "br"}),
    "7 limit": Breach(
        413,
        "body_too_large",
        before_body=False,
        headers={"content-length": str(BODY_LIMIT + 1)},
    ),
    "8 signature": Breach(401, "bad_signature", before_body=False, headers={"x-sign": "00"}),
    "11 envelope": Breach(
        400, "bad_envelope", before_body=False, listener={"source": "pubsub"}, body=b"{}"
    ),
    "13 state": Breach(503, "not_active", before_body=False, desk="paused"),
}
NAMES = list(BREACHES)
LATER = {"4 unknown", "4 away"}
"""What stands at the listener is not seen when there is none."""


async def broken(*names):
    """The answer to a request that fails all of these checks."""
    of_listener, headers, ask, most, firsts, exhausts, reason = {}, {}, {}, 512, [], False, ""
    for breach in map(BREACHES.get, reversed(names)):
        of_listener |= breach.listener
        headers |= breach.headers
        how = dict(breach.ask)
        most = how.pop("most", most)
        exhausts |= how.pop("exhausts", False)
        reason = how.pop("desk", reason)
        if "first" in how:
            firsts.append(how.pop("first"))
        ask |= how
    async with house(listener(**of_listener), most=512) as h:
        body = ask.pop("body", b'{"a": 1}')
        if exhausts:
            await exhausted(h)
            h.arrivals.listeners.drop("orders")
        h.arrivals._most = most  # noqa: SLF001 - the requests before were few
        for first in firsts:
            first(h)
        if reason:
            h.desk.found = Disposition(message_id="1", settle="nack", outcome="held", reason=reason)
        sent = {"x-sign": signed(body), **headers}
        before = len(h.desk.taken), len(h.resolved)
        told = await h.ask(body, headers=sent, **ask)
        return told, before == (len(h.desk.taken), len(h.resolved))


PAIRS = [
    (first, second)
    for index, first in enumerate(NAMES)
    for second in NAMES[index + 1 :]
    if not (first in LATER and BREACHES[second].listener)
    and not (first in LATER and second in LATER)
    and {first, second} != {"2 length", "7 limit"}
]


@pytest.mark.parametrize("name", NAMES)
def test_each_check_has_its_answer(name):
    async def steps():
        told, is_untouched = await broken(name)
        breach = BREACHES[name]
        assert (told.status, told.code) == (breach.status, breach.code)
        assert is_untouched == (name != "13 state")
        assert (told.reads == 0) == breach.before_body
        assert ("retry-after" in told.headers) == (told.status in {429, 503})
        assert told.json["detail"] == ""

    virtually(steps)()


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_earlier_of_two_checks_answers(first, second):
    async def steps():
        told, _ = await broken(first, second)
        assert (told.status, told.code) == (BREACHES[first].status, BREACHES[first].code)
        if BREACHES[first].before_body:
            assert told.reads == 0

    virtually(steps)()


@virtually
async def test_a_delivery_that_breaks_nothing_is_run_and_its_id_is_told():
    async with house() as h:
        told = await h.send(b'{"a": 1}')
        known, planned = h.desk.taken[0]
        assert told.status == 202
        assert told.json == {
            "status": "accepted",
            "execution_id": "1001",
            "delivery_id": planned.delivery_id,
        }
        assert (known.subscription_id, planned.plan.playbook) == ("77", "demo/it")
        assert planned.message["data"] == {"a": 1}
        assert planned.message["metadata"]["remote_ip"] == "203.0.113.9"
        assert set(planned.dedup) == {"key", "window_secs", "replay_key", "replay_window_secs"}


@virtually
async def test_an_unverified_delivery_never_reaches_the_directives():
    async with house() as h:
        steered = {"x-route": "demo/other", "x-key": "k"}
        for proof in ({}, {"x-sign": "0" * 64}, {"x-sign": signed(b"other")}):
            told = await h.ask(b"{}", headers={**steered, **proof})
            assert told.status == 401
        assert (h.resolved, h.desk.taken) == ([], [])
        await h.send(b"{}", headers=steered)
        assert [headers["x-route"] for headers in h.resolved] == ["demo/other"]
        assert h.desk.taken[0][1].plan.playbook == "demo/other"


@virtually
async def test_a_value_that_is_not_listed_runs_the_default_and_is_told():
    async with house() as h:
        await h.send(b"{}", headers={"x-route": "demo/secret"})
        plan = h.desk.taken[0][1].plan
        assert (plan.playbook, plan.refused[0]["reason"]) == ("demo/it", "not_allowed")


@virtually
async def test_two_signatures_are_ambiguous():
    async with house() as h:
        pairs = [("x-sign", signed(b"{}")), ("x-sign", signed(b"{}"))]
        told = await h.ask(b"{}", headers=pairs)
        assert (told.status, told.code) == (401, "ambiguous_signature")


@virtually
async def test_a_body_over_its_limit_is_refused_by_count():
    async with house() as h:
        parts = [b"x" * 65_536] * 40
        told = await h.ask(iter(parts), headers={"x-sign": "00"})
        assert (told.status, told.code) == (413, "body_too_large")
        assert told.headers["connection"] == "close"
        assert told.reads == len(parts) + 1
        assert h.arrivals._bodies.held == 0  # noqa: SLF001 - it is let go


@virtually
async def test_of_a_body_without_end_little_is_read():
    async with house() as h:
        told = await h.ask(itertools.repeat(b"x" * 65_536), headers={"x-sign": "00"})
        assert (told.status, told.code) == (413, "body_too_large")
        assert told.reads == (BODY_LIMIT + LINGER_BYTES) // 65_536 + 1


@pytest.mark.parametrize("more", [{"expect": "100-continue"}, {"content-length": str(9 * MIB)}])
def test_a_body_that_is_told_to_be_long_is_not_asked_for(more):
    async def steps():
        async with house() as h:
            headers = {"x-sign": "00", "content-length": str(2 * MIB), **more}
            told = await h.ask(b"x", headers=headers)
            assert (told.status, told.code, told.reads) == (413, "body_too_large", 0)

    virtually(steps)()


@virtually
async def test_the_rest_of_a_body_that_is_too_large_is_waited_for_a_second():
    async with house() as h:
        headers = {"x-sign": "00", "content-length": str(2 * MIB)}
        began = h.clock.monotonic()
        told = await h.ask(iter([b"x"] * 90), headers=headers, pause_s=0.3)
        assert (told.status, h.clock.monotonic() - began) == (413, 1.0)


@virtually
async def test_a_body_that_does_not_come_is_not_waited_for():
    async with house() as h:
        began = h.clock.monotonic()
        told = await h.ask(iter([b"x"] * 60), headers={"x-sign": "00"}, pause_s=1.0)
        assert (told.status, told.code) == (408, "body_timeout")
        assert h.clock.monotonic() - began == 10.0
        assert h.arrivals._bodies.held == 0  # noqa: SLF001 - as above


@virtually
async def test_a_body_that_the_http_server_has_lost_patience_with_is_late_in_the_same_words():
    async with house() as h:
        waiting = asyncio.Event()
        scope: dict = {}

        class Slow:
            def __iter__(self):
                return self

            def __next__(self):
                waiting.set()
                return b"x"

        asking = asyncio.create_task(
            h.ask(Slow(), headers={"x-sign": "00"}, pause_s=5.0, scope=scope)
        )
        await waiting.wait()
        scope[LATE] = True
        asking.cancel()
        told = await asking
        assert (told.status, told.code) == (408, "body_timeout")


@virtually
async def test_bodies_under_way_are_bounded_together():
    async with house(listener(body_limit="10Mi")) as h:
        h.arrivals._bodies._most = 3 * MIB  # noqa: SLF001 - so that it is a small test
        told = await asyncio.gather(
            *(
                h.ask(
                    iter([b"x" * MIB] * 3),
                    headers={"x-sign": "0"},
                    pause_s=0.1,
                    address=f"10.0.0.{n}",
                )
                for n in range(4)
            )
        )
        assert {one.code for one in told} <= {"overloaded", "bad_signature"}
        assert "overloaded" in {one.code for one in told}
        assert h.arrivals._bodies.held == 0  # noqa: SLF001 - as above


@virtually
async def test_a_packed_body_is_verified_as_it_came_and_unpacked_for_its_playbook():
    async with house() as h:
        body = gzip.compress(b'{"a": 1}')
        told = await h.send(body, headers={"content-encoding": "gzip"})
        assert told.status == 202
        assert h.desk.taken[0][1].message["data"] == {"a": 1}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (gzip.compress(b"0" * 100_000), 413, "body_too_large"),
        (gzip.compress(bytes(range(256)) * 200, 9)[:40], 400, "bad_envelope"),
        (b"no gzip", 400, "bad_envelope"),
    ],
    ids=["bomb", "cut", "none"],
)
def test_a_bomb_and_a_broken_body_are_refused_after_the_signature(body, status, code):
    async def steps():
        async with house() as h:
            headers = {"content-encoding": "gzip"}
            told = await h.ask(body, headers={**headers, "x-sign": "00"})
            assert told.code == "bad_signature"
            told = await h.send(body, headers=headers)
            assert (told.status, told.code, h.resolved) == (status, code, [])

    virtually(steps)()


@pytest.mark.parametrize(
    "pairs",
    [
        [("content-encoding", "gzip, gzip")],
        [("content-encoding", "gzip"), ("content-encoding", "gzip")],
        [("content-encoding", "zstd")],
    ],
)
def test_a_body_is_packed_once_at_most(pairs):
    async def steps():
        async with house() as h:
            told = await h.ask(b"{}", headers=[("x-sign", signed(b"{}")), *pairs])
            assert (told.status, told.code, told.reads) == (415, "bad_media_type", 0)

    virtually(steps)()


@virtually
async def test_a_flood_of_one_address_is_cut_and_others_are_heard():
    async with house() as h:
        codes = [(await h.ask(headers={"x-sign": "00"})).code for _ in range(150)]
        assert codes.count("bad_signature") == 100
        assert codes.count("rate_limited") == 50
        assert (await h.send(address="198.51.100.1")).status == 202
        asked = len(h.server.asked)
        await asyncio.sleep(1.0)
        codes = [(await h.ask(headers={"x-sign": "00"})).code for _ in range(60)]
        assert codes.count("bad_signature") == 50
        assert len(h.server.asked) == asked == 1


@virtually
async def test_a_listener_that_only_some_may_send_to():
    async with house(listener(allow_ips=["203.0.113.0/24", "2001:db8::/32"])) as h:
        assert (await h.send()).status == 202
        assert (await h.send(b"[]", address="2001:db8::1")).status == 202
        for address in ("198.51.100.1", "2001:db9::1", "unknown"):
            assert (await h.send(address=address)).code == "ip_not_allowed"


@virtually
async def test_the_address_of_a_proxy_is_believed_from_trusted_ones_alone():
    told = listener(allow_ips=["203.0.113.0/24"])
    async with house(told, trusted=("10.0.0.0/8",)) as h:
        headers = {"x-forwarded-for": "203.0.113.5"}
        assert (await h.send(address="10.1.1.1", headers=headers)).status == 202
        assert (await h.send(address="198.51.100.1", headers=headers)).code == "ip_not_allowed"


@virtually
async def test_the_cap_counts_what_is_under_way():
    async with house(most=2) as h:
        h.desk.holds = asyncio.Event()
        first = [asyncio.create_task(h.send(b"[%d]" % n)) for n in range(2)]
        while len(h.desk.taken) < 2:
            h.desk.came.clear()
            await h.desk.came.wait()
        told = await h.send(b"[3]")
        assert (told.status, told.code, told.headers["retry-after"]) == (503, "overloaded", "1")
        h.desk.holds.set()
        assert [(await one).status for one in first] == [202, 202]
        assert (await h.send(b"[4]")).status == 202
        assert b"noetl_ingress_in_flight 0.0" in h.metrics.render()
