"""The keys of a delivery: which comes first, and that changed headers make no other."""

from __future__ import annotations

import hashlib

import pytest

from noetl.dsl.subscription.ingress import Ingress, IngressDedup, Replay
from noetl.dsl.subscription.verify import ApiKeyVerify
from noetl.gateway.ingress.envelope import message_of
from noetl.gateway.ingress.replay import dedup_of, short
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.ingress.senders import BODY, SECRET, raw_of
from tests.unit.gateway.ingress.test_envelope import PUBSUB, WEBHOOK, push

BODY_KEY = hashlib.sha256(BODY).hexdigest()


def keys(one, raw=None, *, dedup=None, idempotency_key=None, arrival=WEBHOOK):
    ingress = Ingress(
        gateway_path="/ingress/orders", verify=one.config, dedup=dedup, replay=Replay()
    )
    found = one.verdict(raw)
    message = message_of(found, one.config, found.raw.body, arrival)
    return dedup_of(ingress, found, message, idempotency_key=idempotency_key, fresh="u-1")


def rule(*names, window=60):
    return IngressDedup(key_=names, window_secs=window)


def test_the_first_word_is_the_directives_then_the_rules_then_the_senders():
    one = by.github()
    every = rule("header:X-Delivery", "body:id")
    raw = by.with_header(one.raw, "x-delivery", b"h-1")
    assert keys(one, raw, dedup=every, idempotency_key="i-1")["key"] == "m:i-1"
    assert keys(one, raw, dedup=every)["key"] == "m:h-1"
    assert keys(one, dedup=every)["key"] == "m:evt_1"
    assert keys(one, dedup=rule("body:gone", "query:gone"))["key"] == "m:gh-1"
    assert keys(one)["key"] == "m:gh-1"


def test_without_a_word_it_is_what_was_signed_or_nothing():
    one = by.github()
    raw = by.with_header(one.raw, "x-github-delivery", None)
    assert keys(one, raw) == {
        "key": f"m:{BODY_KEY}", "window_secs": 86_400,
        "replay_key": BODY_KEY, "replay_window_secs": 604_800,
    }  # fmt: skip
    assert keys(by.bearer()) == {"key": "d:u-1", "window_secs": 86_400}


def test_a_push_is_known_by_its_message():
    one = by.bearer()
    raw = raw_of(push(), authorization=f"Bearer {SECRET}")
    assert keys(one, raw, arrival=PUBSUB) == {"key": "m:m-1", "window_secs": 86_400}
    assert keys(one, raw, arrival=PUBSUB, dedup=rule("header:x-route"))["key"] == "m:a"
    assert keys(one, raw, arrival=PUBSUB, dedup=rule("body:n"))["key"] == "m:1"


def test_the_windows_are_those_of_the_listener_and_of_the_scheme():
    found = keys(by.stripe(), dedup=rule("body:id", window=7))
    assert (found["window_secs"], found["replay_window_secs"]) == (7, 600)
    signed = b"%d." % by.NOW + BODY
    assert found["replay_key"] == hashlib.sha256(signed).hexdigest()


def test_changed_headers_make_another_word_but_not_another_replay():
    one = by.shopify()
    first = keys(one)
    second = keys(one, by.with_header(one.raw, "x-shopify-webhook-id", b"new"))
    assert first["key"] != second["key"]
    assert first["replay_key"] == second["replay_key"] == BODY_KEY


def test_a_word_that_comes_twice_is_none():
    one = by.bearer()
    raw = by.doubled(by.with_header(one.raw, "x-a", b"1"), "x-a", b"2")
    assert keys(one, raw, dedup=rule("header:x-a"))["key"] == "d:u-1"
    raw = raw_of(query=b"k=1&k=2", authorization=f"Bearer {SECRET}")
    assert keys(one, raw, dedup=rule("query:k"))["key"] == "d:u-1"
    raw = raw_of(query=b"k=1", authorization=f"Bearer {SECRET}")
    assert keys(one, raw, dedup=rule("query:k"))["key"] == "m:1"


def test_a_secret_is_no_key_of_a_delivery():
    config = ApiKeyVerify(type="api_key", secret=("new",), query="key", allow_query=True)
    one = by.Sender("api_key", config, raw_of(query=b"key=" + SECRET.encode()))
    assert keys(one, dedup=rule("query:key"))["key"] == "d:u-1"
    found = keys(by.api_key(), dedup=rule("header:x-api-key"))
    assert found["key"] == "d:u-1"


@pytest.mark.parametrize(
    ("text", "is_same"), [("x" * 500, True), ("x" * 501, False), ("é" * 251, False)]
)
def test_a_long_word_is_shortened(text, is_same):
    assert (short(text) == text) is is_same
    assert len(short(text).encode()) <= 500
