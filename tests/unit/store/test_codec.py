import json

import pytest

from noetl.dsl.views import Reference
from noetl.engine.events import (
    CallError,
    CommandIssued,
    Error,
    PlaybookCompleted,
    Recorded,
    StepEntered,
)
from noetl.engine.rows import InvalidRow
from noetl.store.codec import decode, encode


def _recorded(event):
    return Recorded(
        execution_id="7",
        seq=2,
        event_id="9",
        prev_event_id="8",
        parent_event_id="8",
        created_at="2026-01-01T00:00:00.000000Z",
        event_time="2026-01-01T00:00:00.000001Z",
        event=event,
    )


EVENTS = [
    StepEntered(step="a", visit=1, from_=("b",)),
    CommandIssued(
        step="a",
        visit=1,
        command_key="a#1/i3",
        kind="python",
        pool="shared",
        bindings={"workload": {"text": "é\n\u2028"}},
        refs={"ctx.big": Reference(ref="noetl://execution/7/result/a/x", store="kv", size=70_000)},
        index=3,
    ),
    CallError(
        step="a",
        command_key="a#1",
        attempt=2,
        error=Error(kind="timeout", code="tool_timeout", message="late", retryable=True),
    ),
    PlaybookCompleted(result={"rows": [1, None, 2**70]}),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_one_line_and_comes_back(event):
    recorded = _recorded(event)
    line = encode(recorded)
    assert b"\n" not in line
    assert json.loads(line)["event_id"] == "9"
    assert decode(line) == recorded


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{", b'{"event_type":"no.such"}', b"\xff", b"{}", b'{"seq":1}']
)
def test_a_line_that_is_no_event_is_refused(line):
    with pytest.raises(InvalidRow):
        decode(line)
