"""Callbacks of playbooks: the results and the progress of requests, and answers to hooks."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from noetl.api.gateway import (
    CALLBACK_HEADER,
    MOST_CALLBACK_BYTES,
    Callback,
    CallbackAnswer,
    CallbackHeard,
    Progress,
)
from noetl.bus.base import BusGone
from noetl.edge.errors import BadJson, BadMediaType, RateLimited, TooLarge, Unacceptable
from noetl.edge.reading import json, read
from noetl.errors import NoetlError
from noetl.gateway.declaring import CALLBACK, Declared, route
from noetl.gateway.errors import (
    CallbackTokenMissing,
    CallbackTokenWrong,
    UnknownRequest,
    told,
)
from noetl.gateway.sessions import digest

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from noetl.gateway.gate import Gate

T = TypeVar("T", Callback, Progress)

STRANGERS: Final = "callback_address"
"""The limit of those who show no token of a request."""
_STRANGE: Final = (
    CallbackTokenMissing, CallbackTokenWrong, UnknownRequest, BadJson, BadMediaType, TooLarge,
    Unacceptable,
)  # fmt: skip
"""Why a callback fails before its token has counted."""
_MOST_NAME: Final = 128
_SHARES: Final = (0.0, 1.0)
_CODES: Final = (
    "callback_token_missing", "callback_token_wrong", "execution_mismatch", "body_too_large",
    "upstream_unavailable", "rate_limited",
)  # fmt: skip


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file."""
    finished = Declared(
        about="Takes the result of a request from its playbook.",
        body=Callback,
        answer=CallbackAnswer,
        also={202: CallbackAnswer},
        codes=(*_CODES, "unknown_request", "bad_status"),
        limit="",
    )
    answered = Declared(
        about="Takes the answer of a playbook that somebody waits for.",
        body=Callback,
        answer=CallbackHeard,
        codes=(*_CODES, "bad_status"),
        limit="",
    )
    going_on = Declared(
        about="Takes the progress of a request from its playbook.",
        body=Progress,
        answer=CallbackAnswer,
        codes=(*_CODES, "unknown_request"),
        limit="",
    )
    base = "/api/internal"
    return [
        route(gate, "POST", f"{base}/callback/async", _async, CALLBACK, finished),
        route(gate, "POST", f"{base}/callback", _callback, CALLBACK, answered),
        route(gate, "POST", f"{base}/progress", _progress, CALLBACK, going_on),
    ]


async def _async(gate: Gate, request: Request) -> Response:
    with _Counted(gate, "async") as counted, _Slowed(gate, request):
        body, token, is_service = await _given(gate, request, Callback)
        given = await gate.requests.callback(body, token, is_service=is_service)
        counted.outcome = given
        if given == "queued":
            return json(CallbackAnswer(status="queued", client_disconnected=True), 202)
        return json(CallbackAnswer(status=given))


async def _callback(gate: Gate, request: Request) -> Response:
    with _Counted(gate, "callback") as counted, _Slowed(gate, request) as slowed:
        body, token, is_service = await _given(gate, request, Callback)
        payload = {"data": body.data, "callback_token": body.callback_token}
        if await gate.hooks.woken(body.request_id, payload, token, is_trusted=is_service):
            counted.outcome = "hook"
            return json(CallbackHeard(delivered=True, message="delivered"))
        try:
            whole = body if body.data is not None else msgspec.structs.replace(body, data={})
            given = await gate.requests.callback(whole, token, is_service=is_service)
        except UnknownRequest:
            counted.outcome = "unknown_request"
            slowed.note()
            return json(CallbackHeard(delivered=False, message="nobody waits under this id"))
        counted.outcome = given
        return json(CallbackHeard(delivered=True, message=given))


async def _progress(gate: Gate, request: Request) -> Response:
    with _Counted(gate, "progress") as counted, _Slowed(gate, request):
        body, token, is_service = await _given(gate, request, Progress)
        least, most = _SHARES
        if body.progress is not None and not least <= body.progress <= most:
            raise Unacceptable(
                "`progress` is not in 0..1",
                errors=({"pointer": "/progress", "code": "validation_failed"},),
            )
        given = await gate.requests.progress(body, token, is_service=is_service)
        counted.outcome = given
        return json(CallbackAnswer(status=given))


async def _given(gate: Gate, request: Request, kind: type[T]) -> tuple[T, str | None, bool]:
    """The body, the token of the header, and whether one of our own processes calls."""
    body = await read(request, kind, MOST_CALLBACK_BYTES)
    token, is_service = request.headers.get(CALLBACK_HEADER), gate.access.is_service(request)
    shown, name = token or body.callback_token or "", body.request_id[:_MOST_NAME]
    address = gate.peers.address(request)
    # Whoever shares his address with strangers is let through: his token is looked at first.
    is_suspect = not is_service and gate.limits.is_empty(STRANGERS, address)
    if is_suspect and not await _is_expected(gate, body.request_id, shown):
        gate.limits.take(STRANGERS, address)
    # A stranger who has only heard of a request takes nothing from the bucket of its playbook.
    gate.limits.take("callback", f"{name}.{digest(shown)}")
    return body, token, is_service


async def _is_expected(gate: Gate, request_id: str, shown: str) -> bool:
    """Whether a request is known here whose token this is; the server is not asked."""
    if await gate.hooks.expects(request_id, shown):
        return True
    try:
        record = await gate.requests.parts.records.route(request_id)
    except BusGone:
        return False
    if record is None:
        return False
    if not shown:
        return not gate.settings.needs_callback_token
    known = record.callback_hash or "-"
    return hmac.compare_digest(digest(shown).encode(), known.encode())


class _Slowed:
    """Limits how often callbacks of strangers come from an address; nobody else is counted."""

    def __init__(self, gate: Gate, request: Request) -> None:
        self._gate = gate
        self._request = request

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _STRANGE):
            self.note()

    def note(self) -> None:
        """A stranger has called; `RateLimited` when he did so too often."""
        if not self._gate.access.is_service(self._request):
            self._gate.limits.take(STRANGERS, self._gate.peers.address(self._request))


class _Counted:
    """Counts what became of a callback."""

    def __init__(self, gate: Gate, name: str) -> None:
        self._gate = gate
        self._name = name
        self.outcome = "other"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.outcome = _word_of(error)
        self._gate.metrics.callback.inc(self._name, self.outcome)


def _word_of(error: BaseException) -> str:
    seen = told(error)
    if isinstance(seen, TooLarge | RateLimited):
        return seen.code
    is_fault = isinstance(seen, NoetlError) and seen.status >= 500  # noqa: PLR2004 - the range of faults
    return "unavailable" if is_fault else str(getattr(seen, "code", "other"))
