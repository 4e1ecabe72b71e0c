"""What clients are told, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noetl.api.gateway import DataRef, Failure, RequestDocument
from noetl.gateway import frames


def _document(**more: Any) -> RequestDocument:
    given = {
        "request_id": "r-1",
        "execution_id": "42",
        "playbook_path": "demo/it",
        "state": "completed",
        "created_at": "2026-01-01T00:00:00Z",
        "deadline": "2026-01-01T00:30:00Z",
    }
    return RequestDocument(**{**given, **more})


def _params(frame: bytes) -> Any:
    told = json.loads(frame)
    assert (told["jsonrpc"], "id" in told) == ("2.0", False)
    return told["method"], told["params"]


def test_a_result_carries_its_data() -> None:
    ids = {"requestId": "r-1", "executionId": "42"}
    made = frames.result(_document(result={"a": [1, None]}))
    assert _params(made) == (
        "playbook/result",
        {**ids, "status": "COMPLETED", "data": {"a": [1, None]}},
    )


def test_a_result_of_nothing_carries_null() -> None:
    assert _params(frames.result(_document()))[1]["data"] is None


def test_a_failed_request_carries_its_error_and_no_data() -> None:
    failure = Failure(code=-32000, message="broken", data={"step": "one"})
    params = _params(frames.result(_document(state="failed", error=failure)))[1]
    assert params["status"] == "FAILED"
    assert params["error"] == {"code": -32000, "message": "broken", "data": {"step": "one"}}
    assert "data" not in params


@pytest.mark.parametrize(
    ("state", "status"),
    [("timeout", "FAILED"), ("cancelled", "CANCELLED"), ("rejected", "FAILED")],
)
def test_every_end_has_a_status(state: str, status: str) -> None:
    assert _params(frames.result(_document(state=state)))[1]["status"] == status


def test_a_large_result_is_a_reference() -> None:
    ref = DataRef(ref="noetl://x", bytes=5, sha256="ab")
    params = _params(frames.result(_document(result_ref=ref)))[1]
    assert (params["data"], params["dataRef"]) == (
        None,
        {"ref": "noetl://x", "bytes": 5, "sha256": "ab"},
    )


def test_a_state_has_both_spellings() -> None:
    row = {
        "execution_id": "42",
        "event_type": "step.exit",
        "step": "one",
        "status": "COMPLETED",
        "created_at": "t",
        "seq": 7,
    }
    assert _params(frames.state(row, "r-1")) == (
        "playbook/state",
        {
            "requestId": "r-1",
            "executionId": "42",
            "eventType": "step.exit",
            "stepName": "one",
            "status": "COMPLETED",
            "at": "t",
            "seq": 7,
            "execution_id": "42",
            "event_type": "step.exit",
            "step_name": "one",
        },
    )
    assert "requestId" not in _params(frames.state(row))[1]


def test_progress_has_all_of_its_fields() -> None:
    assert _params(frames.progress("r-1", "42", "one", "half", 0.5)) == (
        "playbook/progress",
        {
            "requestId": "r-1",
            "executionId": "42",
            "step": "one",
            "message": "half",
            "progress": 0.5,
        },
    )


def test_a_ping_is_what_the_contract_says() -> None:
    assert frames.ping() == b'{"jsonrpc":"2.0","method":"ping","params":{}}'


@pytest.mark.parametrize(
    "frame", [frames.ping(), frames.progress("r", "1"), frames.closing(frames.CLOSED, "revoked")]
)
def test_an_id_is_put_into_the_params_and_nothing_else_changes(frame: bytes) -> None:
    method, params = _params(frame)
    assert _params(frames.with_id(frame, "e-1")) == (method, {"eventId": "e-1", **params})


def test_a_frame_is_one_line_whatever_its_text() -> None:
    frame = frames.progress("r", "1", text="a\nb\r\n\u2028c")
    assert frames.sse(frame, "e-1", "x").count(b"\n") == 4
    assert b"\r" not in frame
    assert frames.sse(frame, "e-1", "x").startswith(b"event: x\nid: e-1\ndata: {")
    assert frames.sse(frame).startswith(b"data: {")


def test_the_kind_and_the_request_of_a_frame_are_read_without_decoding() -> None:
    frame = frames.result(_document())
    assert (frames.kind_of(frame), frames.request_of(frame)) == ("playbook/result", "r-1")
    assert frames.request_of(frames.ping()) == ""
    words = ["playbook/result", "ping", "session/closed", "gateway/error", "connection/superseded"]
    assert [frames.word_of(word) for word in words] == [
        "result",
        "ping",
        "session",
        "error",
        "connection",
    ]
