"""The series of the gateway: all there from the start, and never more labels than are known."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from noetl.gateway.metrics import GatewayMetrics
from tests.unit.gateway.rig import gateway_rig

PINNED = {
    "noetl_gateway_build_info": {"version"},
    "noetl_gateway_auth_bypass_enabled": {"mode"},
    "noetl_gateway_insecure_mode": {"switch"},
    "noetl_gateway_login_total": {"outcome"},
    "noetl_gateway_session_check_total": {"outcome"},
    "noetl_gateway_authz_total": {"outcome"},
    "noetl_gateway_session_cache_failed_total": {"op"},
    "noetl_gateway_auth_cancel_failed_total": set(),
    "noetl_gateway_connections": {"transport"},
    "noetl_gateway_messages_sent_total": {"transport", "kind"},
    "noetl_gateway_slow_consumer_total": {"transport"},
    "noetl_gateway_replay_total": {"outcome"},
    "noetl_gateway_requests": {"state"},
    "noetl_gateway_request_seconds_count": set(),
    "noetl_gateway_request_timeout_total": set(),
    "noetl_gateway_callback_total": {"route", "outcome"},
    "noetl_gateway_callback_undelivered_total": set(),
    "noetl_gateway_event_feed_reconnect_total": {"reason"},
    "noetl_gateway_event_parse_failed_total": set(),
    "noetl_gateway_proxy_requests_total": {"method", "class"},
    "noetl_gateway_proxy_seconds_count": set(),
    "noetl_gateway_kv_errors_total": {"bucket", "op"},
    "noetl_gateway_rate_limited_total": {"scope"},
    "noetl_gateway_graphql_total": {"operation", "outcome"},
    "noetl_gateway_mcp_calls_total": {"outcome"},
}


def samples(text):
    for family in text_string_to_metric_families(text.decode()):
        yield from family.samples


@pytest.mark.parametrize("name", sorted(PINNED))
def test_each_series_of_the_contract_stands_at_zero_from_the_start(name):
    found = [one for one in samples(GatewayMetrics().render()) if one.name == name]
    assert found
    assert {frozenset(one.labels) for one in found} == {frozenset(PINNED[name])}
    if name != "noetl_gateway_build_info":
        assert {one.value for one in found} == {0.0}


def test_words_that_nobody_knows_are_counted_as_one():
    metrics = GatewayMetrics()
    before = len(list(samples(metrics.render())))
    for number in range(100):
        metrics.login.inc(f"made-up-{number}")
        metrics.callback.inc("async", f"{number}")
        metrics.proxied(f"METHOD{number}", 200, 0.1)
        metrics.kv_errors.inc(f"bucket{number}", "get")
    assert metrics.login.value("other") == 100
    assert metrics.callback.value("async", "other") == 100
    assert metrics.proxy_requests.value("other", "2xx") == 100
    assert len(list(samples(metrics.render()))) == before


async def test_switches_that_make_less_safe_are_shown():
    async with gateway_rig(is_auth_bypassed=True, takes_query_token=True) as rig:
        metrics = rig.gate.metrics
        assert metrics.auth_bypass.value("builtin") == 1
        assert metrics.insecure.value("query_token") == 1
        assert metrics.insecure.value("callback_without_token") == 0


async def test_no_label_holds_an_id_whatever_is_called():
    async with gateway_rig() as rig:
        ann = await rig.login()
        before = {(one.name, frozenset(one.labels.items())) for one in _ours(rig)}
        for path in ("/noetl/executions/331204559102443520", f"/noetl/users/{ann.user_id}",
                     "/nowhere/1234567890", "/api/requests/no-such-request"):  # fmt: skip
            await rig.caller(ann).get(path)
            await rig.caller().get(path)
        after = {(one.name, frozenset(one.labels.items())) for one in _ours(rig)}
        assert after == before


def _ours(rig):
    found = samples(rig.gate.metrics.render())
    return [one for one in found if one.name.startswith("noetl_")]
