from __future__ import annotations

import pytest

from noetl.dsl.subscription.document import Trace
from noetl.sources.traces import trace_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
W3C = Trace(propagate="w3c", baggage_allowlist=("tenant", "site"))


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        (PARENT, PARENT),
        (f" {PARENT} ", PARENT),
        (f"01-{TRACE}-{SPAN}-01-more", f"01-{TRACE}-{SPAN}-01"),
        (f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01"),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
        ([PARENT, PARENT], None),
        (7, None),
    ],
    ids=[
        "valid", "trimmed", "later with more", "later", "ff", "00 with more", "upper", "no trace",
        "no span", "short", "empty", "twice", "number",
    ],
)  # fmt: skip
def test_a_traceparent_is_kept_as_it_is_or_not_at_all(header, kept):
    assert trace_of(W3C, {"traceparent": header}) == (
        None if kept is None else {"traceparent": kept}
    )


def test_a_tracestate_crosses_with_its_traceparent_up_to_512_characters():
    state = "a=" + "x" * 510
    kept = {"traceparent": PARENT, "tracestate": state}
    assert trace_of(W3C, kept) == kept
    assert trace_of(W3C, {**kept, "tracestate": state + "x"}) == {"traceparent": PARENT}
    assert trace_of(W3C, {"tracestate": state}) is None


def test_several_headers_of_a_list_are_one():
    headers = {"traceparent": PARENT, "tracestate": ["a=1", "b=2"], "baggage": ["tenant=a", "x=1"]}
    assert trace_of(W3C, headers) == {
        "traceparent": PARENT,
        "tracestate": "a=1,b=2",
        "baggage": {"tenant": "a"},
    }


def test_of_the_baggage_64_members_and_8192_bytes_are_read():
    many = ",".join(f"m{n}=1" for n in range(63))
    assert trace_of(W3C, {"baggage": f"{many},tenant=a,site=b"}) == {"baggage": {"tenant": "a"}}
    assert trace_of(W3C, {"baggage": "tenant=" + "x" * 8186}) is None


def test_without_propagation_nothing_crosses():
    assert trace_of(Trace(), {"traceparent": PARENT, "baggage": "tenant=a"}) is None
