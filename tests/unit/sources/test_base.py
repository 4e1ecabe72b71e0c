"""Bodies, headers and reports of messages."""

import msgspec
import pytest

from noetl.sources.base import SourceError, body_of, bytes_of, lowered, report_of, unavailable
from noetl.sources.nats import stream_of


@pytest.mark.parametrize("value", [None, "text", 5, [1, {"a": None}], {"b": "c"}, True])
def test_a_value_comes_back_as_it_was(value):
    assert body_of(bytes_of(value)) == {"data": value}


def test_bytes_that_are_no_text_stay_in_base64():
    assert body_of(b"\xff") == {"data": None, "encoding": "base64", "raw": "/w=="}


def test_headers_of_one_name_become_a_list_in_order():
    pairs = [("X-A", "1"), ("x-b", "2"), ("x-a", "3")]
    assert lowered(pairs) == {"x-a": ["1", "3"], "x-b": "2"}


def test_a_report_counts_what_failed():
    report = report_of(["a", "b"], {"b": ("stale", "gone")})
    assert (report.requested, report.disposed) == (2, 1)
    assert [(error.ack_id, error.code) for error in report.errors] == [("b", "stale")]


@pytest.mark.parametrize(
    ("ack_id", "stream"),
    [
        ("$JS.ACK.S.c.1.2.3.4.5", "S"),
        ("$JS.ACK.hub.ACC.S.c.1.2.3.4.5", "S"),
        ("$JS.ACK.hub.ACC.S.c.1.2.3.4.5.tok", "S"),
    ],
)
def test_an_id_names_its_stream(ack_id, stream):
    assert stream_of(ack_id) == stream


@pytest.mark.parametrize(
    "ack_id", ["", "x", "$JS.API.STREAM.DELETE.S", "$JS.ACK.S.c.1.2.3.4", "$JS.ACK.S.c.1.2.3.4.*"]
)
def test_what_is_no_id_is_refused(ack_id):
    with pytest.raises(SourceError):
        stream_of(ack_id)


@pytest.mark.parametrize("kind", ["kafka", "pubsub"])
def test_a_source_whose_client_is_missing_names_the_line_that_brings_it(kind):
    fault = unavailable(kind)
    assert (fault.kind, fault.code) == ("config", "source_unavailable")
    assert f"pip install 'noetl[{kind}]'" in fault.message


def test_a_body_that_is_nested_without_end_is_text():
    body = b"[" * 100_000 + b"]" * 100_000
    assert body_of(body) == {"data": body.decode()}


def test_a_body_can_be_sent_on_however_deep_it_is():
    for depth in range(800, 1_010):
        value = body_of(b"[" * depth + b"]" * depth)
        for _ in range(32):
            value = {"in": value}
        msgspec.json.encode(value)
