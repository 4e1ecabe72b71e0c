from __future__ import annotations

import hashlib

import pytest

from noetl.dsl.subscription.document import (
    Dedup,
    Directive,
    Dispatch,
    Headers,
    SubscriptionSpec,
)
from noetl.sources.base import body_of
from noetl.sources.directives import Plan
from noetl.sources.workloads import (
    dedup_of,
    message_of,
    replay_dedup,
    text_of,
    workload_of,
)


def message(body: bytes = b"{}", **more):
    return {
        "id": "S:7",
        **body_of(body),
        "headers": {"x-a": "1", "x-b": "2"},
        "attributes": {"zone": "z1"},
        "metadata": {"source": "nats", "size_bytes": len(body)},
        "ordering_key": None,
        **more,
    }


def plan(**more):
    return Plan(playbook="a", execution_pool="p", **more)


def payload(body: bytes, **more):
    """What a workload has besides the message and where it came from."""
    made = workload_of(message(body), plan(**more), subscription_path="subs/s", source="nats")
    assert (made.pop("subscription"), made.pop("source")) == ("subs/s", "nats")
    assert made.pop("message") == message(body)
    made.pop("content_type", None)
    return made


def test_an_object_is_merged_and_overwrites_nothing():
    body = b'{"meter": 9, "message": 1, "source": 2, "subscription": 3, "schema_hint": "x"}'
    made = workload_of(
        message(body), plan(schema_hint="v1"), subscription_path="subs/s", source="nats"
    )
    assert made == {
        "meter": 9,
        "message": message(body),
        "source": "nats",
        "subscription": "subs/s",
        "schema_hint": "v1",
    }


@pytest.mark.parametrize(
    ("body", "value"), [(b"[1]", [1]), (b"7", 7), (b"hello", "hello"), (b"", None)]
)
def test_anything_else_is_the_body(body, value):
    assert payload(body) == {"body": value}


def test_what_settles_a_message_is_not_in_its_workload():
    made = workload_of(message(ack_id="r"), plan(), subscription_path="s", source="nats")
    assert made["message"] == message()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"a":1}', '{"a":1}'),
        (b"hello", "hello"),
        (b'"hello"', '"hello"'),
        (b"null", "null"),
        (b"", ""),
        (b"\xff\xfe", "//4="),
    ],
    ids=["object", "text", "text in JSON", "null", "empty", "bytes"],
)
def test_the_body_as_text(body, text):
    assert text_of(message(body)) == text
    assert payload(body, payload_from="message.body") == {"body": text}


def test_the_attributes_as_payload():
    assert payload(b"{}", payload_from="message.attributes") == {"zone": "z1"}


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("Application/JSON; charset=utf-8", b"[1]", {"body": [1]}),
        ("application/json", b'"text"', {"body": "text"}),
        ("application/json", b"null", {"body": None}),
        ("application/json", b"{oops", {"body": "{oops", "payload_error": "the body is not JSON"}),
        ("application/json", b"", {"body": "", "payload_error": "the body is not JSON"}),
        ("application/json", b"\xff", {"body": "/w==", "payload_error": "the body is not JSON"}),
        ("application/x-ndjson", b'{"a":1}\n\n{"b":2}\n', {"body": [{"a": 1}, {"b": 2}]}),
        ("application/x-ndjson", b'{"a":1}', {"body": [{"a": 1}]}),
        (
            "application/x-ndjson",
            b'{"a":1}\noops',
            {"body": '{"a":1}\noops', "payload_error": "a line of the body is not JSON"},
        ),
        ("text/csv", b"a,b\n1,2", {"body": "a,b\n1,2"}),
        ("text/csv", b"17", {"body": "17"}),
        ("text/plain", b'{"a":1}', {"body": '{"a":1}'}),
        (
            "application/cloudevents+json",
            b'{"specversion":"1.0","id":"e","data":{"a":1}}',
            {"body": {"a": 1}, "cloudevent": {"specversion": "1.0", "id": "e"}},
        ),
        (
            "application/cloudevents+json",
            b'{"id":"e","data_base64":"AA=="}',
            {"body": "AA==", "cloudevent": {"id": "e"}},
        ),
        (
            "application/cloudevents+json",
            b"[1]",
            {"body": "[1]", "payload_error": "the body is not a CloudEvent"},
        ),
    ],
)
def test_a_content_type_says_how_a_body_is_read(kind, body, expected):
    assert payload(body, content_type=kind) == expected


# ---------------------------------------------------------------------------- 5.4


def spec(*, enabled=True, **headers):
    return SubscriptionSpec(
        source="nats",
        mode="pull",
        dispatch=Dispatch(playbook="a"),
        dedup=Dedup(enabled=enabled, window_secs=600),
        headers=Headers(**headers),
    )


def test_messages_that_are_the_same_have_one_key():
    assert dedup_of(spec(), plan(), "S:7", "42") == {"key": "m:S:7", "window_secs": 600}
    keyed = plan(idempotency_key="k-1")
    assert dedup_of(spec(), keyed, "S:7", "42") == {"key": "m:k-1", "window_secs": 600}


def test_a_long_key_stands_for_itself_by_its_digest():
    longest, longer = "x" * 500, "é" * 251
    assert dedup_of(spec(), plan(), longest, "42")["key"] == f"m:{longest}"
    digest = hashlib.sha256(longer.encode()).hexdigest()
    assert dedup_of(spec(), plan(), longer, "42")["key"] == f"m:{digest}"


def test_without_dedup_each_delivery_has_a_key_of_its_own():
    off = spec(enabled=False)
    keyed = plan(idempotency_key="k-1")
    assert dedup_of(off, keyed, "S:7", "42") == {"key": "d:42", "window_secs": 86_400}


def test_a_replay_keeps_its_key_for_a_week_and_a_redrive_has_a_new_one():
    assert replay_dedup("m:k-1") == {"key": "m:k-1", "window_secs": 604_800}
    assert replay_dedup("m:k-1", 2) == {"key": "m:k-1#r2", "window_secs": 604_800}


def test_keys_that_were_kept_hold_until_a_further_run_has_its_own():
    kept = {"key": "m:k-1", "window_secs": 60, "replay_key": "r", "replay_window_secs": 600}
    assert replay_dedup("m:k-1", kept=kept) == kept
    assert replay_dedup("m:k-1#r1", kept=kept) == {"key": "m:k-1#r1", "window_secs": 604_800}
    assert replay_dedup("m:k-1", 1, kept=kept) == {"key": "m:k-1#r1", "window_secs": 604_800}


# ---------------------------------------------------------------------------- headers


def test_headers_stay_as_data_unless_they_are_dropped():
    rule = Directive(header="x-a", controls="schema_hint")
    given = message(headers={"X-A": "1", "x-b": "2"}, ack_id="r")
    assert message_of(spec(directives=(rule,)), given) == message()
    dropped = message_of(spec(directives=(rule,), passthrough="drop"), given)
    assert dropped == message(headers={"x-a": "1"})
    assert message_of(spec(normalize=False), given) == message(headers={})
