"""Deliveries that the server has a gateway take: tried ones, and those rejected before."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from noetl.api.ingress import SendAgain, Sent
from noetl.edge.errors import Unacceptable
from noetl.server.access.listening import CONTROL
from noetl.server.pushed.signing import Draft, sign

if TYPE_CHECKING:
    from noetl.api.http import Answer
    from noetl.api.ingress import KeepRejected, TestDelivery
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.server.access.caller import Caller
    from noetl.server.fleet.gateways import Gateways
    from noetl.server.subscriptions.desk import SubscriptionDesk
    from noetl.server.wallet.listeners import Listeners
    from noetl.store.subscriptions import SubscriptionRow

MOST_HEADERS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4096}")
_QUERY: Final = re.compile(r"[\x21-\x7e]{0,4096}")
_OURS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "expect"}
)
"""Headers of the connection, which nobody sets from outside."""
_TYPE: Final = "content-type"
_JSON: Final = "application/json"
_encode: Final = msgspec.json.Encoder().encode


class Sending:
    """Sends deliveries to a gateway."""

    def __init__(
        self,
        desk: SubscriptionDesk,
        gateways: Gateways,
        listeners: Listeners,
        *,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._desk = desk
        self._gateways = gateways
        self._listeners = listeners
        self._clock = clock
        self._ids = ids

    async def tried(self, caller: Caller, subscription_id: str, body: TestDelivery) -> Sent:
        """Sign a delivery as its sender would, and send it the way that all of them come."""
        row = await self._desk.found(caller, CONTROL, subscription_id)
        _, spec = await self._desk.specs.of(row)
        listener = _listener(row)
        draft = Draft(
            path=f"/ingress/{quote(listener)}",
            body=_body(body),
            headers=_headers(body),
            query=_query(body),
            now=int(self._clock.now().timestamp()),
            id=self._ids.new(),
        )
        draft.given(_TYPE, _JSON)
        secrets = await self._listeners.secrets(row, spec)
        sign(spec.ingress.verify if spec.ingress else None, secrets, draft)
        path = f"{draft.path}?{draft.query}" if draft.query else draft.path
        return sent_of(await self._gateways.post(path, draft.body, draft.headers))

    async def again(self, row: SubscriptionRow, delivery_id: str, kept: KeepRejected) -> Sent:
        """Have a rejected delivery judged once more, but for its time."""
        body = SendAgain(
            replay_of=delivery_id, headers=kept.headers, body=kept.body, query=kept.query
        )
        path = f"/api/internal/ingress/{quote(_listener(row))}/again"
        answer = self._gateways.post(path, _encode(body), {_TYPE: _JSON}, as_service=True)
        return sent_of(await answer)


def sent_of(answer: Answer) -> Sent:
    """How a gateway answered: as it answers senders, as it answers us, or with a problem."""
    try:
        told = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = None
    found: dict[str, Any] = told if isinstance(told, dict) else {}
    status = found.get("status")
    outcome = status if isinstance(status, str) else found.get("outcome")
    is_ours = isinstance(status, int) and "type" not in found

    def text(name: str) -> str | None:
        value = found.get(name)
        return value if isinstance(value, str) else None

    return Sent(
        status=status if is_ours and isinstance(status, int) else answer.status,
        delivery_id=text("delivery_id"),
        execution_id=text("execution_id"),
        outcome=outcome if isinstance(outcome, str) else None,
        code=text("code"),
    )


def _listener(row: SubscriptionRow) -> str:
    if row.listener is None:
        raise Unacceptable(f"nothing is delivered to {row.path}: it fetches its messages itself")
    return row.listener


def _body(body: TestDelivery) -> bytes:
    if not body.is_base64:
        return body.body.encode()
    try:
        return b64decode(body.body, validate=True)
    except ValueError:
        raise _unfit("/body", "is no base64") from None


def _headers(body: TestDelivery) -> dict[str, str]:
    if len(body.headers) > MOST_HEADERS:
        raise _unfit("/headers", f"has more than {MOST_HEADERS} names")
    found: dict[str, str] = {}
    for name, value in body.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _OURS:
            raise _unfit(f"/headers/{name[:80]}", "is no header that can be sent")
        found[name.lower()] = value
    return found


def _query(body: TestDelivery) -> str:
    if not _QUERY.fullmatch(body.query) or "#" in body.query:
        raise _unfit("/query", "is not one that can be sent")
    return body.query


def _unfit(pointer: str, message: str) -> Unacceptable:
    errors = ({"pointer": pointer, "code": "validation_failed"},)
    return Unacceptable(f"{pointer} {message}", errors=errors)
