"""What clients are told: JSON-RPC messages of one line, made once and sent to many.

A message is kept as it is made here. What a transport adds, the id of the event, is put around or
into it without reading it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl import __version__
from noetl.api.gateway import status_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl.api.gateway import Failure, RequestDocument

RESULT: Final = "playbook/result"
PROGRESS: Final = "playbook/progress"
STATE: Final = "playbook/state"
EVENT: Final = "playbook/event"
LOG: Final = "playbook/log"
PING: Final = "ping"
EXPIRING: Final = "session/expiring"
CLOSED: Final = "session/closed"
DRAINING: Final = "server/draining"
SUPERSEDED: Final = "connection/superseded"
ERROR: Final = "gateway/error"
INIT: Final = "init"

PROTOCOL: Final = "2024-11-05"
SERVER: Final = {"name": "noetl-gateway", "version": __version__}
CAPABILITIES: Final = {
    "playbooks": True,
    "callbacks": True,
    "subscriptions": True,
    "playbookState": True,
    "replay": True,
}
COMMENT: Final = b":\n\n"

_HEAD: Final = b'{"jsonrpc":"2.0","method":"'
_PARAMS: Final = b',"params":{'
_RESULT_HEAD: Final = b'%bplaybook/result"%b"requestId":"' % (_HEAD, _PARAMS)
_STATES: Final = frozenset({
    "playbook.started", "playbook.completed", "playbook.failed", "playbook.cancelled",
    "execution.queued", "execution.admitted", "execution.paused", "execution.resumed",
    "step.exit", "step.skipped",
})  # fmt: skip
_encode: Final = msgspec.json.Encoder().encode


def message(method: str, params: Mapping[str, Any]) -> bytes:
    """A notification."""
    return b'%b%b"%b%b}' % (_HEAD, method.encode(), _PARAMS[:-1], _encode(params))


def result(document: RequestDocument) -> bytes:
    """How a request has ended."""
    params: dict[str, Any] = {
        "requestId": document.request_id,
        "executionId": document.execution_id,
        "status": status_of(document.state),
    }
    if document.error is not None:
        params["error"] = document.error
    elif document.result_ref is not None:
        params |= {"data": None, "dataRef": document.result_ref}
    else:
        params["data"] = document.result
    return message(RESULT, params)


def progress(
    request_id: str,
    execution_id: str,
    step: str | None = None,
    text: str | None = None,
    share: float | None = None,
) -> bytes:
    """How far a request is, as its playbook tells."""
    params = {
        "requestId": request_id,
        "executionId": execution_id,
        "step": step,
        "message": text,
        "progress": share,
    }
    return message(PROGRESS, params)


def state(row: Mapping[str, Any], request_id: str | None = None) -> bytes:
    """A step has ended, or the run is in another state: an event of its log, as a row."""
    execution_id, kind, step = row["execution_id"], row["event_type"], row.get("step")
    params: dict[str, Any] = {} if request_id is None else {"requestId": request_id}
    params |= {
        "executionId": execution_id,
        "eventType": kind,
        "stepName": step,
        "status": row.get("status"),
        "at": row.get("created_at"),
        "seq": row.get("seq"),
        "execution_id": execution_id,
        "event_type": kind,
        "step_name": step,
    }
    return message(STATE, params)


def is_state(event_type: str) -> bool:
    """Whether an event is told as a state: a step has ended, or the run is in another one."""
    return event_type in _STATES


def event(row: Mapping[str, Any]) -> bytes:
    """An event of a watched run."""
    return message(EVENT, {"executionId": row.get("execution_id"), **row})


def log(execution_id: str, line: Mapping[str, Any]) -> bytes:
    """A line of a watched run."""
    return message(LOG, {"executionId": execution_id, **line})


def ping() -> bytes:
    """Still there."""
    return message(PING, {})


def closing(method: str, reason: str, **more: object) -> bytes:
    """A word about the stream itself, as a rule its last."""
    return message(method, {"reason": reason, **more})


def init(
    *,
    client_id: str,
    epoch: str,
    expires_at: str | None,
    recovery: Mapping[str, Any],
    pending: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What a client is told first."""
    return {
        "protocolVersion": PROTOCOL,
        "serverInfo": SERVER,
        "clientId": client_id,
        "sessionExpiresAt": expires_at,
        "epoch": epoch,
        "capabilities": CAPABILITIES,
        "recovery": dict(recovery),
        "pendingRequests": list(pending),
    }


def answer(call_id: object, value: object) -> dict[str, Any]:
    """The answer of a call."""
    return {"jsonrpc": "2.0", "id": call_id, "result": value}


def refusal(call_id: object, failure: Failure) -> dict[str, Any]:
    """The answer of a call that failed."""
    return {"jsonrpc": "2.0", "id": call_id, "error": failure}


def line(body: object) -> bytes:
    """A body as one line of JSON."""
    return _encode(body)


def kind_of(frame: bytes) -> str:
    """The method of a notification."""
    begin = len(_HEAD)
    return frame[begin : frame.index(b'"', begin)].decode()


def with_id(frame: bytes, event_id: str) -> bytes:
    """A notification that carries its id itself, where the transport has no place for it."""
    begin = frame.index(_PARAMS) + len(_PARAMS)
    comma = b"" if frame[begin : begin + 1] == b"}" else b","
    return b'%b"eventId":"%b"%b%b' % (frame[:begin], event_id.encode(), comma, frame[begin:])


def sse(frame: bytes, event_id: str = "", name: str = "") -> bytes:
    """A frame as a server-sent event; without a name it is a `message`."""
    head = b"event: %b\n" % name.encode() if name else b""
    if event_id:
        head += b"id: %b\n" % event_id.encode()
    return b"%bdata: %b\n\n" % (head, frame)


def request_of(frame: bytes) -> str:
    """The request of a `playbook/result`; empty for every other message."""
    if not frame.startswith(_RESULT_HEAD):
        return ""
    begin = len(_RESULT_HEAD)
    return frame[begin : frame.index(b'"', begin)].decode()


def word_of(method: str) -> str:
    """A kind of message as metrics name it."""
    family, _, kind = method.partition("/")
    return kind if family in {"playbook", "gateway"} else family
