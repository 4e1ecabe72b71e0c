"""Handshakes at the door of a listener, and rejected deliveries that a person sends again."""

from __future__ import annotations

import base64
import copy
import json

import msgspec
import pytest

from noetl.gateway.ingress.pipeline import Planned
from noetl.secrets.fetch import Answer
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.ingress.house import SERVICE, house, listener, signed
from tests.unit.server.rig import START, virtually

META = {"challenge": {"type": "meta", "verify_token": "word"}}
EVENTS = {
    "challenge": {"type": "cloudevents", "allowed_origins": ["send.example"]},
    "rate": {"per_sec": 2},
}
CUSTOM = {"challenge": {"type": "custom", "field": "ping", "reply_field": "pong"}}
SLACK = "{ type: slack, secret: [hook] }"
STRIPE = "{ type: stripe, secret: [hook] }"
SUBSCRIBE = "/ingress/orders?hub.mode=subscribe&hub.challenge=42&hub.verify_token="
NOW = int(START.timestamp())


def slack_headers(body, at=NOW):
    return {
        "x-slack-request-timestamp": str(at),
        "x-slack-signature": "v0=" + by.digest(b"v0:%d:%b" % (at, body)).hex(),
    }


def stripe_headers(body, at=NOW):
    return {"stripe-signature": f"t={at},v1={by.digest(b'%d.%b' % (at, body)).hex()}"}


@virtually
async def test_meta_is_answered_when_it_knows_the_word():
    async with house(listener(**META)) as h:
        h.server.secrets["word"] = {"value": "the-word"}
        told = await h.ask(method="GET", target=f"{SUBSCRIBE}the-word")
        assert (told.status, told.body, told.reads) == (200, b"42", 0)
        assert told.headers["content-type"].startswith("text/plain")
        told = await h.ask(method="GET", target=f"{SUBSCRIBE}another")
        assert (told.status, told.code) == (403, "challenge_refused")
        assert (h.desk.taken, h.resolved) == ([], [])
        assert (await h.ask(method="OPTIONS")).status == 405


@virtually
async def test_a_sender_of_cloudevents_is_told_how_often_it_may_send():
    async with house(listener(**EVENTS)) as h:
        asked = {"webhook-request-origin": "send.example"}
        told = await h.ask(method="OPTIONS", headers=asked)
        assert told.status == 200
        assert told.headers["webhook-allowed-origin"] == "send.example"
        assert told.headers["webhook-allowed-rate"] == "120"
        told = await h.ask(method="OPTIONS", headers={"webhook-request-origin": "evil.example"})
        assert (told.status, told.code) == (403, "challenge_refused")
        assert (await h.ask(method="GET")).status == 405
        assert h.desk.taken == []


@virtually
async def test_slack_is_verified_before_it_is_answered():
    async with house(listener(verify=SLACK)) as h:
        body = b'{"type": "url_verification", "challenge": "abc"}'
        told = await h.ask(body, headers=slack_headers(body))
        assert (told.status, told.json) == (200, {"challenge": "abc"})
        told = await h.ask(body, headers=slack_headers(b"other"))
        assert (told.status, told.code) == (401, "bad_signature")
        assert (h.desk.taken, h.resolved) == ([], [])


@virtually
async def test_a_field_is_echoed_to_whom_the_listener_knows():
    async with house(listener(**CUSTOM)) as h:
        body = b'{"ping": "x"}'
        assert (await h.send(body)).json == {"pong": "x"}
        assert (await h.ask(body, headers={"x-sign": "00"})).code == "bad_signature"
        assert h.desk.taken == []
        assert (await h.send(b'{"a": 1}')).status == 202


@pytest.mark.parametrize(("late_s", "status"), [(299, 202), (301, 401), (-299, 202), (-301, 401)])
def test_a_signed_time_is_near(late_s, status):
    async def steps():
        async with house(listener(verify=STRIPE)) as h:
            told = await h.ask(b"{}", headers=stripe_headers(b"{}", NOW - late_s))
            assert told.status == status
            if status == 401:
                assert told.code == "stale_timestamp"

    virtually(steps)()


def test_only_a_verified_delivery_has_a_plan():
    with pytest.raises(TypeError):
        Planned(object(), message={}, plan=None, dedup={}, delivery_id="1", scheme="", replay_of="")
    with pytest.raises(TypeError):
        type("Mine", (Planned,), {})


@virtually
async def test_a_plan_cannot_be_changed_or_copied():
    async with house() as h:
        await h.send()
        planned = h.desk.taken[0][1]
        with pytest.raises(AttributeError):
            planned.plan = None
        with pytest.raises(AttributeError):
            del planned.plan
        with pytest.raises(TypeError):
            copy.copy(planned)


# ---------------------------------------------------------------------------- once more


def again(body, headers, replay_of="5", **more):
    told = {
        "replay_of": replay_of,
        "headers": list(headers.items()),
        "body": base64.b64encode(body).decode(),
        **more,
    }
    return {
        "body": json.dumps(told).encode(),
        "target": "/api/internal/ingress/orders/again",
    }


@virtually
async def test_a_delivery_that_came_too_late_is_taken_when_a_person_sends_it_again():
    async with house(listener(verify=STRIPE)) as h:
        body = b'{"id": "evt"}'
        headers = stripe_headers(body, NOW - 5_000)
        assert (await h.ask(body, headers=headers)).code == "stale_timestamp"
        told = await h.ask(**again(body, headers), headers={"authorization": SERVICE})
        assert told.status == 200
        planned = h.desk.taken[0][1]
        assert told.json == {
            "status": 202, "delivery_id": planned.delivery_id, "execution_id": "1001",
            "outcome": "accepted",
        }  # fmt: skip
        assert (planned.replay_of, planned.message["metadata"]["replay_of"]) == ("5", "5")
        await h.arrivals.accounts.flush()
        assert [row.replay_of for _, row in h.server.rows] == [None, "5"]


@virtually
async def test_a_delivery_that_was_forged_stays_so():
    async with house(listener(allow_ips=["198.51.100.0/24"])) as h:
        sent = {"authorization": SERVICE}
        told = await h.ask(**again(b"{}", {"x-sign": "00"}), headers=sent)
        assert (told.json["status"], told.json["code"]) == (401, "bad_signature")
        assert (told.json["outcome"], h.desk.taken, h.resolved) == ("rejected", [], [])
        told = await h.ask(**again(b"{}", {"x-sign": signed(b"{}")}), headers=sent)
        assert told.json["status"] == 202


@virtually
async def test_only_our_own_processes_send_again():
    async with house() as h:
        for headers in ({}, {"authorization": "Bearer other"}):
            told = await h.ask(**again(b"{}", {"x-sign": signed(b"{}")}), headers=headers)
            assert told.status == 401
        assert h.desk.taken == []


@virtually
async def test_what_is_no_base64_is_refused():
    async with house() as h:
        asked = again(b"{}", {})
        asked["body"] = asked["body"].replace(b'"e30="', b'"***"')
        told = await h.ask(**asked, headers={"authorization": SERVICE})
        assert (told.status, told.code) == (422, "validation_failed")


@pytest.mark.parametrize("state", ["unknown", "DEACTIVATED"])
def test_what_is_sent_again_to_nobody_is_told_so(state):
    async def steps():
        async with house(listener(state="DEACTIVATED")) as h:
            asked = again(b"{}", {})
            if state == "unknown":
                asked["target"] = asked["target"].replace("orders", "nobody")
            told = await h.ask(**asked, headers={"authorization": SERVICE})
            assert told.json["status"] == (404 if state == "unknown" else 410)

    virtually(steps)()


# ---------------------------------------------------------------------------- issuers


PUBSUB = f"{{ type: pubsub_oidc, audience: '{by.AUDIENCE}', service_account: {by.ACCOUNT} }}"


@virtually
async def test_an_issuer_that_is_away_is_nobodys_forgery():
    async with house(listener(verify=PUBSUB, source="pubsub")) as h:
        sender = by.pubsub()
        headers = [(k.decode(), v.decode()) for k, v in sender.raw.headers]
        told = await h.ask(b"{}", headers=headers)
        assert (told.status, told.code) == (503, "jwks_unavailable")
        assert "retry-after" in told.headers
        assert h.metrics.ingress_jwks_refresh.value("failed") == 1


@virtually
async def test_tokens_without_end_of_keys_that_nobody_has_cause_one_question():
    key = by.issuer("RS256").key.as_dict(private=False)
    asked = []

    async def fetch(ask):
        asked.append(ask.url)
        return Answer(status=200, body=msgspec.json.encode({"keys": [key]}))

    async with house(listener(verify=PUBSUB, source="pubsub"), fetch=fetch) as h:
        senders = [by.pubsub(header={"kid": f"no-{number}"}) for number in range(3)]
        for number in range(200):
            headers = [(k.decode(), v.decode()) for k, v in senders[number % 3].raw.headers]
            told = await h.ask(b"{}", headers=headers, address=f"10.0.{number % 100}.1")
            assert told.code == "oidc_unknown_kid"
        assert len(asked) <= 2
        assert (h.desk.taken, h.resolved) == ([], [])
