"""Handshakes: who asks rightly is answered, and nobody else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from noetl.dsl.subscription.ingress import (
    Challenge,
    CloudEventsChallenge,
    CustomChallenge,
    Ingress,
    MetaChallenge,
)
from noetl.dsl.subscription.verify import HmacVerify
from noetl.gateway.ingress.challenge import (
    ChallengeRefused,
    Reply,
    challenge_of,
    cloudevents_reply,
    echo_of,
    meta_reply,
    methods_of,
)
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.ingress.senders import SECRET, SECRETS, raw_of

META = MetaChallenge(type="meta", verify_token="new")  # noqa: S106 - an alias
EVENTS = CloudEventsChallenge(type="cloudevents", allowed_origins=("events.example.org",))
CUSTOM = CustomChallenge(type="custom", field="check.value", reply_field="echo")
SLACK = Challenge(type="slack")


def ingress(config, challenge=None):
    return Ingress(gateway_path="/ingress/a", verify=config, challenge=challenge)


def test_slack_needs_no_word_and_others_are_off():
    assert challenge_of(ingress(by.slack().config)).type == "slack"
    by_header = HmacVerify(type="hmac_sha256", secret=("new",), header="x-slack-signature")
    assert challenge_of(ingress(by_header)).type == "slack"
    assert challenge_of(ingress(by.github().config)) is None
    assert challenge_of(ingress(by.slack().config, META)) is META


def test_a_listener_answers_only_the_methods_of_its_handshake():
    assert methods_of(None) == methods_of(SLACK) == methods_of(CUSTOM) == ("POST",)
    assert methods_of(META) == ("GET", "POST")
    assert methods_of(EVENTS) == ("OPTIONS", "POST")


# ---------------------------------------------------------------------------- verified ones


def echoed(challenge, document):
    body = json.dumps(document).encode() if not isinstance(document, bytes) else document
    return echo_of(challenge, by.slack(body=body).verdict(), body)


def test_slack_is_told_its_challenge():
    asked = {"type": "url_verification", "token": "t", "challenge": "c-1"}
    assert echoed(SLACK, asked) == Reply(document={"challenge": "c-1"})


@pytest.mark.parametrize("document", [{"type": "event_callback"}, [], b"a=1", {"challenge": "c"}])
def test_an_event_of_slack_is_no_handshake(document):
    assert echoed(SLACK, document) is None


@pytest.mark.parametrize("challenge", [None, 1, "x" * 1025])
def test_a_handshake_of_slack_without_a_challenge_is_refused(challenge):
    with pytest.raises(ChallengeRefused):
        echoed(SLACK, {"type": "url_verification", "challenge": challenge})


def test_a_field_of_ones_own_is_echoed():
    assert echoed(CUSTOM, {"check": {"value": "v"}}) == Reply(document={"echo": "v"})
    assert echoed(CUSTOM, {"check": 1}) is None
    assert echoed(CUSTOM, {"check": {"value": "v" * 1025}}) is None
    assert echoed(None, {"type": "url_verification", "challenge": "c"}) is None
    assert echoed(META, {"check": {"value": "v"}}) is None


# ---------------------------------------------------------------------------- Meta


def asked(**more):
    told = {"hub.mode": "subscribe", "hub.verify_token": SECRET, "hub.challenge": "1158201444"}
    told |= {name.replace("_", ".", 1): value for name, value in more.items()}
    query = "&".join(f"{name}={value}" for name, value in told.items() if value is not None)
    return replace(raw_of(b"", query=query.encode()), method="GET")


def test_meta_is_told_its_challenge_as_plain_text():
    found = meta_reply(META, asked(), SECRETS)
    assert found.text == "1158201444"
    assert found.headers == {"x-content-type-options": "nosniff"}
    assert meta_reply(META, asked(hub_challenge="x" * 256), SECRETS).text == "x" * 256


@pytest.mark.parametrize(
    "more",
    [
        {"hub_verify_token": "wrong"}, {"hub_verify_token": ""}, {"hub_verify_token": None},
        {"hub_mode": "unsubscribe"}, {"hub_mode": None}, {"hub_challenge": None},
        {"hub_challenge": ""}, {"hub_challenge": "x" * 257}, {"hub_challenge": "%0aX: y"},
        {"hub_challenge": "%C3%A9"}, {"hub_challenge": "1&hub.challenge=2"},
        {"hub_verify_token": f"{SECRET}&hub.verify_token={SECRET}"},
    ],
)  # fmt: skip
def test_a_handshake_that_is_not_metas_is_refused(more):
    with pytest.raises(ChallengeRefused) as found:
        meta_reply(META, asked(**more), SECRETS)
    assert (found.value.status, found.value.code) == (403, "challenge_refused")
    assert SECRET not in str(found.value)


@pytest.mark.parametrize("secrets", [{}, {"new": {"value": ""}}])
def test_a_listener_without_its_token_answers_nobody(secrets):
    with pytest.raises(ChallengeRefused):
        meta_reply(META, asked(hub_verify_token=""), secrets)


# ---------------------------------------------------------------------------- CloudEvents


def test_an_origin_that_may_send_is_told_so_and_how_often():
    raw = raw_of(
        b"", webhook_request_origin="Events.example.org", webhook_request_callback="http://x"
    )
    found = cloudevents_reply(EVENTS, raw, 2.5)
    assert found.headers == {
        "webhook-allowed-origin": "Events.example.org", "webhook-allowed-rate": "150",
        "allow": "OPTIONS, POST",
    }  # fmt: skip
    assert cloudevents_reply(EVENTS, raw).headers["webhook-allowed-rate"] == "*"
    assert cloudevents_reply(EVENTS, raw, 0.001).headers["webhook-allowed-rate"] == "1"
    everybody = CloudEventsChallenge(type="cloudevents", allowed_origins=("*",))
    assert (
        cloudevents_reply(everybody, raw).headers["webhook-allowed-origin"] == "Events.example.org"
    )


@pytest.mark.parametrize("origin", ["", "evil.example.org", "events.example.org.evil", "*"])
def test_another_origin_is_refused(origin):
    with pytest.raises(ChallengeRefused):
        cloudevents_reply(EVENTS, raw_of(b"", webhook_request_origin=origin))


def test_an_origin_that_is_missing_or_doubled_is_refused():
    raw = raw_of(b"", webhook_request_origin="events.example.org")
    for changed in (raw_of(b""), by.doubled(raw, "webhook-request-origin")):
        with pytest.raises(ChallengeRefused):
            cloudevents_reply(EVENTS, changed)
