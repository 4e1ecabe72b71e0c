"""What a sender is told of what became of its delivery: safe, or with the word to come again."""

from __future__ import annotations

import asyncio
import json

import pytest

from noetl.api.codes import PROBLEMS
from noetl.blobs.spool.base import SpoolError
from noetl.errors import NoetlError
from noetl.gateway.ingress.answers import rejected as rejected_for
from noetl.gateway.ingress.answers import response_of
from noetl.gateway.ingress.verify.proof import STATUS
from noetl.intake.outcomes import Disposition
from tests.unit.gateway.ingress.house import house
from tests.unit.server.rig import virtually

REF = "noetl://spool/subscriptions/orders/1"


def done(settle, outcome, **more):
    return Disposition(message_id="m", settle=settle, outcome=outcome, **more)


TAKEN = {
    "duplicate": (
        done("ack", "duplicate", execution_id="7"), {"status": "duplicate", "execution_id": "7"},
    ),
    "spooled": (
        done("ack", "spooled", spool_ref=REF, reason="circuit_open"),
        {"status": "spooled", "spool_ref": REF},
    ),
    "dead letter": (
        done("term", "dead_lettered", spool_ref=REF, reason="dispatch_rejected"),
        {"status": "dead_lettered", "spool_ref": REF},
    ),
}  # fmt: skip
BACK = [
    ("circuit_open", 12_000, 503, "circuit_open", "12"),
    ("circuit_open", 0, 503, "circuit_open", "1"),
    ("paused", 0, 503, "not_active", "30"),
    ("rate_limited", 400, 429, "rate_limited", "1"),
    ("spool_full", 0, 503, "spool_full", "1"),
    ("spool_unavailable", 5_000, 503, "spool_unavailable", "5"),
    ("lane_busy", 2_500, 503, "overloaded", "3"),
    ("unauthorized", 9_000, 502, "dispatch_failed", None),
    ("dispatch_failed", 0, 502, "dispatch_failed", None),
    ("a reason of tomorrow", 0, 502, "dispatch_failed", None),
]


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_safe_is_taken(name):
    async def steps():
        async with house() as h:
            h.desk.found, expected = TAKEN[name]
            told = await h.send()
            delivery_id = h.desk.taken[0][1].delivery_id
            more = {} if name == "duplicate" else {"delivery_id": delivery_id}
            assert (told.status, told.json) == (202, {**expected, **more})

    virtually(steps)()


@pytest.mark.parametrize(("reason", "delay_ms", "status", "code", "retry"), BACK)
def test_what_is_not_safe_is_sent_back(reason, delay_ms, status, code, retry):
    async def steps():
        async with house() as h:
            h.desk.found = done("nack", "held", reason=reason, delay_ms=delay_ms)
            told = await h.send()
            assert (told.status, told.code) == (status, code)
            assert told.headers.get("retry-after") == retry
            assert told.headers["content-type"] == "application/problem+json"

    virtually(steps)()


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (SpoolError("the disk is full of canary"), 503, "spool_unavailable"),
        (NoetlError("a canary", code="conflict"), 502, "dispatch_failed"),
    ],
)
def test_a_fault_of_whoever_runs_deliveries_promises_nothing(fault, status, code):
    async def steps():
        async with house() as h:
            h.desk.found = fault
            told = await h.send()
            assert (told.status, told.code) == (status, code)
            assert b"canary" not in told.body

    virtually(steps)()


@virtually
async def test_a_fault_that_nobody_meant_is_an_internal_error():
    async with house() as h:
        h.desk.found = RuntimeError("a canary")
        told = await h.send()
        assert (told.status, told.code) == (500, "internal")
        assert b"canary" not in told.body
        await h.arrivals.accounts.flush()
        assert [row.outcome for _, row in h.server.rows] == ["failed"]


@virtually
async def test_a_delivery_is_not_waited_for_without_end():
    async with house() as h:
        h.desk.holds = asyncio.Event()
        began = h.clock.monotonic()
        told = await h.send()
        assert (told.status, told.code) == (503, "overloaded")
        assert h.clock.monotonic() - began == 10.0


@pytest.mark.parametrize("reason", STATUS)
def test_a_rejection_tells_its_code_and_nothing_else(reason):
    response = response_of(rejected_for(reason), "1", "r-9")
    told = json.loads(response.body)
    expected = {
        "type": f"https://noetl.dev/e/{reason}", "title": PROBLEMS[reason].title,
        "status": STATUS[reason], "code": reason, "detail": "", "request_id": "r-9",
    }  # fmt: skip
    if STATUS[reason] == 503:
        expected["retry_after"] = 1.0
    assert told == expected
    assert response.status_code == STATUS[reason] == PROBLEMS[reason].status
    assert ("www-authenticate" in response.headers) == (STATUS[reason] == 401)


@virtually
async def test_a_method_that_is_not_answered_is_told_which_ones_are():
    async with house() as h:
        told = await h.ask(method="GET", target="/ingress/orders")
        assert (told.status, told.headers["allow"]) == (405, "POST")
