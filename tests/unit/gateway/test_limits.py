"""Buckets of tokens: how often, and how many are remembered."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from noetl.edge.errors import RateLimited
from noetl.gateway.limits import SCOPES, Limits, Rate
from noetl.gateway.metrics import SCOPES as COUNTED
from noetl.gateway.metrics import GatewayMetrics
from tests.unit.gateway.rig import gateway_rig


class Still:
    """A clock that stands until it is moved."""

    def __init__(self):
        self.at = 0.0

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self):
        return self.at


def took(limits, scope, key, most=1000):
    for count in range(most):
        try:
            limits.take(scope, key)
        except RateLimited:
            return count
    return most


@pytest.mark.parametrize(
    ("scope", "at_once", "per_minute"),
    [
        ("login_account", 5, 5),
        ("login_address", 20, 20),
        ("execute", 40, 1200),
        ("call", 200, 6000),
        ("callback", 50, 3000),
        ("callback_address", 100, 3000),
        ("connect", 10, 10),
    ],
)
def test_as_many_at_once_and_as_many_a_minute(scope, at_once, per_minute):
    clock, metrics = Still(), GatewayMetrics()
    limits = Limits(clock, metrics)
    assert took(limits, scope, "ann") == at_once
    assert took(limits, scope, "bob") == at_once, "another has a bucket of his own"
    assert metrics.rate_limited.value(scope) == 2
    clock.at = 60.0
    assert took(limits, scope, "ann", 10_000) == min(at_once, per_minute)


def test_who_is_refused_is_told_when_to_come_back():
    clock = Still()
    limits = Limits(clock, GatewayMetrics())
    for _ in range(5):
        limits.take("login_account", "ann")
    with pytest.raises(RateLimited) as caught:
        limits.take("login_account", "ann")
    assert caught.value.retry_after == 12
    clock.at = 12.0
    limits.take("login_account", "ann")


def test_strangers_cannot_fill_the_memory():
    limits = Limits(Still(), GatewayMetrics(), {"call": Rate(1, 1)}, most_keys=100)
    for number in range(1000):
        limits.take("call", f"stranger-{number}")
    assert len(limits._buckets["call"]) == 100  # noqa: SLF001 - what is remembered


def test_a_socket_has_a_bucket_of_its_own():
    limits = Limits(Still(), GatewayMetrics())
    one, other = limits.bucket("message"), limits.bucket("message")
    assert [one.take(0.0) for _ in range(100)] == [0.0] * 100
    assert one.take(0.0) > 0
    assert other.take(0.0) == 0


def test_every_scope_is_a_label():
    assert set(SCOPES) <= set(COUNTED)


async def test_a_session_that_calls_too_often_is_refused_and_no_other():
    async with gateway_rig() as rig:
        ann, bob = await rig.login("ann"), await rig.login("bob")
        key = ann.session_id
        for _ in range(200):
            rig.gate.limits.take("call", key)
        answer = await rig.caller(ann).get("/noetl/auth/whoami")
        assert answer.status == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert (await rig.caller(bob).get("/noetl/auth/whoami")).status == 200
