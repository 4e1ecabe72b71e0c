"""A verified delivery as its playbook sees it, and what of it no playbook ever sees."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace

import pytest

from noetl.dsl.subscription.verify import VERIFIERS, BearerVerify
from noetl.gateway.ingress.envelope import HIDDEN, Arrival, BadEnvelope, message_of, safe_headers
from noetl.gateway.ingress.verify.verdict import Known, Verified, verify
from noetl.sources.directives import lower
from tests.unit.gateway.ingress import senders as by
from tests.unit.gateway.ingress.senders import SECRET, SECRETS, raw_of

CONFIG = BearerVerify(type="bearer", secret=("new",))
WEBHOOK = Arrival(
    source="webhook", listener="orders", delivery_id="dlv-1", remote_ip="203.0.113.9",
    received_at="2026-01-31T12:00:00.000000Z",
)  # fmt: skip
PUBSUB = replace(WEBHOOK, source="pubsub")


def message(body, arrival=WEBHOOK, **headers):
    raw = raw_of(body, authorization=f"Bearer {SECRET}", **headers)
    found = verify(CONFIG, raw, by.NOW, Known(secrets=SECRETS))
    assert isinstance(found, Verified)
    return message_of(found, CONFIG, body, arrival)


def test_a_webhook_is_a_message():
    body = b'{"a": 1}'
    assert message(body, content_type="application/json", x_more="yes") == {
        "id": "dlv-1",
        "data": {"a": 1},
        "headers": {"content-type": "application/json", "x-more": "yes"},
        "attributes": {"content-type": "application/json", "x-more": "yes"},
        "metadata": {
            "source": "webhook", "mode": "push", "listener": "orders", "delivery_id": "dlv-1",
            "received_at": "2026-01-31T12:00:00.000000Z", "remote_ip": "203.0.113.9",
            "content_type": "application/json", "sha256": hashlib.sha256(body).hexdigest(),
            "size_bytes": 8,
        },
        "ordering_key": None,
    }  # fmt: skip


def test_the_id_is_the_senders_else_what_was_signed_else_ours():
    one = by.github()
    assert message_of(one.verdict(), one.config, by.BODY, WEBHOOK)["id"] == "gh-1"
    raw = by.with_header(one.raw, "x-github-delivery", None)
    found = message_of(one.verdict(raw), one.config, by.BODY, WEBHOOK)
    assert found["id"] == hashlib.sha256(by.BODY).hexdigest()
    assert message(b"x")["id"] == "dlv-1"


@pytest.mark.parametrize(
    ("body", "kind", "data"),
    [
        (b'{"a": [1]}', "application/json; charset=utf-8", {"a": [1]}),
        (b'{"a": [1]}', None, {"a": [1]}),
        (b'{"a": 1}', "application/vnd.api+JSON", {"a": 1}),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        (b"12", "text/csv", "12"),
        (b"a=1&b=2", "application/x-www-form-urlencoded", "a=1&b=2"),
        (b"{broken", "application/json", "{broken"),
        (b"{{ 7*7 }}", "text/plain", "{{ 7*7 }}"),
        (b'{"a": "{{ 7*7 }}"}', "application/json", {"a": "{{ 7*7 }}"}),
        (b"", "application/json", None),
        (b"", "text/plain", None),
        (b"null", "application/json", None),
    ],
)
def test_the_body_is_json_or_text(body, kind, data):
    headers = {"content_type": kind} if kind else {}
    found = message(body, **headers)
    assert found["data"] == data
    assert "raw" not in found
    assert found["metadata"]["size_bytes"] == len(body)


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
def test_bytes_that_are_no_text_are_kept_as_base64(kind):
    found = message(b"\xff\x00", content_type=kind)
    assert (found["data"], found["encoding"]) == (None, "base64")
    assert base64.b64decode(found["raw"]) == b"\xff\x00"


def test_headers_are_lowered_and_several_are_a_list():
    raw = raw_of(b"", authorization=f"Bearer {SECRET}")
    raw = replace(raw, headers=(*raw.headers, (b"X-A", b"1"), (b"x-a", b"2"), (b"X-B", b"\xe9")))
    assert safe_headers(raw, CONFIG) == {"x-a": ["1", "2"], "x-b": "é"}


def test_the_first_of_two_types_counts():
    raw = raw_of(b"1", authorization=f"Bearer {SECRET}", content_type="text/plain")
    raw = by.doubled(raw, "content-type", b"application/json")
    found = verify(CONFIG, raw, by.NOW, Known(secrets=SECRETS))
    assert message_of(found, CONFIG, b"1", WEBHOOK)["data"] == "1"


@pytest.mark.parametrize("name", list(by.senders()))
def test_nothing_that_proves_who_it_is_is_in_a_message(name):
    one = by.senders()[name]
    more = tuple(
        (hidden.title().encode(), b"canary-" + hidden.encode()) for hidden in sorted(HIDDEN)
    )
    kept = tuple(pair for pair in more if pair[0].lower().decode() != one.header)
    raw = replace(one.raw, headers=(*one.raw.headers, *kept))
    found = one.verdict(one.raw)
    headers = safe_headers(raw, one.config)
    assert one.header not in headers
    assert not any(str(value).startswith("canary-") for value in headers.values())
    text = json.dumps(message_of(found, one.config, by.BODY, WEBHOOK))
    value = one.raw.one(one.header).decode()
    assert SECRET not in text
    assert value not in text


def test_the_hidden_headers_are_those_of_every_scheme():
    assert {cls.signature_header for cls in VERIFIERS.values()} - {""} <= HIDDEN
    assert {"authorization", "cookie", "proxy-authorization", "x-api-key"} <= HIDDEN


# ---------------------------------------------------------------------------- Pub/Sub


def push(told=None, **more):
    made = {
        "data": base64.b64encode(b'{"n": 1}').decode(), "messageId": "m-1",
        "publishTime": "2026-01-31T11:59:00Z", "orderingKey": "k",
        "attributes": {"X-Route": "a", "traceParent": "t"},
    }  # fmt: skip
    envelope = {"message": {**made, **(told or {})}, "subscription": "projects/p/subscriptions/s"}
    return json.dumps({**envelope, **more}).encode()


def test_a_push_of_pubsub_keeps_what_it_tells():
    found = message(
        push(deliveryAttempt=3), PUBSUB, content_type="application/json", x_route="evil"
    )
    assert (found["id"], found["data"], found["ordering_key"]) == ("m-1", {"n": 1}, "k")
    assert found["headers"] == {"x-route": "a", "traceparent": "t"}
    assert found["attributes"] == {"X-Route": "a", "traceParent": "t"}
    told = found["metadata"]
    assert {name: told[name] for name in ("source", "messageId", "publishTime", "orderingKey")} == {
        "source": "pubsub", "messageId": "m-1", "publishTime": "2026-01-31T11:59:00Z",
        "orderingKey": "k",
    }  # fmt: skip
    assert told["subscription"] == "projects/p/subscriptions/s"
    assert (told["deliveryAttempt"], told["size_bytes"]) == (3, 8)


def test_a_push_may_say_its_names_in_another_way_and_hold_nothing():
    body = json.dumps({"message": {"message_id": "m-2", "publish_time": "t"}}).encode()
    found = message(body, PUBSUB)
    assert (found["id"], found["data"], found["headers"]) == ("m-2", None, {})
    assert found["metadata"]["publishTime"] == "t"
    assert "deliveryAttempt" not in found["metadata"]
    assert found["ordering_key"] is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"text", "text"), (b"", None), (b"12", 12), (b'"q"', "q")],
)
def test_the_data_of_a_push_is_read_as_a_body_is(data, expected):
    found = message(push({"data": base64.b64encode(data).decode()}), PUBSUB)
    assert found["data"] == expected


def test_the_type_of_a_message_is_an_attribute_of_it():
    attributes = {"content-type": "text/plain"}
    found = message(push({"attributes": attributes}), PUBSUB, content_type="application/json")
    assert found["data"] == '{"n": 1}'
    assert found["metadata"]["content_type"] == "application/json"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x", b"[]", b"{}", b'{"message": 1}', b'{"message": null}',
        push({"data": "not base64!"}), push({"data": "YQ"}), push({"data": "YQ==\n"}),
        push({"data": 1}), push({"data": {}}), push({"attributes": []}),
        push({"attributes": {"a": 1}}), push({"messageId": 1}), push({"orderingKey": []}),
        push(subscription={}), push(deliveryAttempt="2"), push(deliveryAttempt=True),
    ],
)  # fmt: skip
def test_what_is_no_push_is_refused(body):
    with pytest.raises(BadEnvelope) as found:
        message(body, PUBSUB)
    assert (found.value.code, found.value.status) == ("bad_envelope", 400)
    assert SECRET not in str(found.value)


def test_a_push_that_is_not_wrapped_is_known_by_its_headers():
    found = message(
        b'{"n": 2}', PUBSUB, content_type="application/json", user_agent="APIs-Google",
        x_goog_pubsub_message_id="m-3", x_goog_pubsub_publish_time="t",
        x_goog_pubsub_subscription_name="projects/p/subscriptions/s",
        x_goog_pubsub_ordering_key="k", x_goog_pubsub_delivery_attempt="2",
        x_route="a", x_goog_pubsub_tenant="acme", x_forwarded_for="1.2.3.4",
    )  # fmt: skip
    assert (found["id"], found["data"], found["ordering_key"]) == ("m-3", {"n": 2}, "k")
    assert found["headers"] == found["attributes"] == {"x-route": "a", "tenant": "acme"}
    told = found["metadata"]
    assert (told["messageId"], told["publishTime"], told["deliveryAttempt"]) == ("m-3", "t", 2)
    assert told["subscription"] == "projects/p/subscriptions/s"


def test_a_push_that_is_not_wrapped_may_be_text():
    found = message(b"12", PUBSUB, content_type="text/plain", x_goog_pubsub_message_id="m")
    assert found["data"] == "12"
    found = message(b"12", PUBSUB, x_goog_pubsub_message_id="m", x_goog_pubsub_delivery_attempt="x")
    assert found["data"] == 12
    assert "deliveryAttempt" not in found["metadata"]


def test_the_attributes_of_a_push_are_what_directives_read():
    found = message(push(), PUBSUB, x_noetl_route="evil")
    assert lower(found["headers"]) == {"x-route": "a", "traceparent": "t"}


# ---------------------------------------------------------------------------- CloudEvents

EVENT = {"specversion": "1.0", "id": "e-1", "source": "/s", "type": "t.made", "tenant": "acme"}


def test_a_cloudevent_in_headers_fills_the_metadata():
    headers = {f"ce_{name}": value for name, value in EVENT.items()}
    found = message(b"{}", content_type="application/json", **{**headers, "ce_source": "/%C3%A9"})
    expected = {**EVENT, "source": "/é", "datacontenttype": "application/json"}
    assert found["metadata"]["cloudevent"] == expected
    assert found["data"] == {}


def test_a_cloudevent_in_the_body_fills_the_metadata():
    body = json.dumps({**EVENT, "data": {"n": 1}}).encode()
    found = message(body, content_type="application/cloudevents+json; charset=utf-8")
    assert found["metadata"]["cloudevent"] == EVENT
    assert found["data"] == {**EVENT, "data": {"n": 1}}


def test_headers_that_are_no_whole_event_are_only_headers():
    found = message(b"{}", ce_id="e-1", ce_type="t")
    assert "cloudevent" not in found["metadata"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"specversion": "1.0", "id": 1}'])
def test_a_body_that_says_it_is_an_event_must_be_one(body):
    with pytest.raises(BadEnvelope):
        message(body, content_type="application/cloudevents+json")
