"""JSON-RPC: the calls of clients, the same on every way in."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

import msgspec

from noetl.api.gateway import Failure, Wish
from noetl.edge.errors import Unacceptable
from noetl.errors import NoetlError
from noetl.gateway import frames
from noetl.gateway.errors import (
    FORBIDDEN,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RATE_LIMITED,
    TOO_LARGE,
    UNAUTHORIZED,
    ClientNotYours,
    MissingToken,
    rpc_of,
)
from noetl.gateway.hub.stream import Recovery
from noetl.ids import parse, random_uuid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.bus.clients import ClientLog
    from noetl.gateway.hub import Hub
    from noetl.gateway.hub.stream import Stream
    from noetl.gateway.limits import Limits
    from noetl.gateway.person import Person
    from noetl.gateway.requests import Requests

    Method = Callable[[Person, dict[str, Any], Stream | None], Awaitable[object]]

T = TypeVar("T")

MOST_BYTES: Final = 1024 * 1024
VERSION: Final = "2.0"
_STATUSES: Final = {UNAUTHORIZED: 401, FORBIDDEN: 403, TOO_LARGE: 413, RATE_LIMITED: 429}
_MOST_ID: Final = 256
_log: Final = logging.getLogger(__name__)


class _Params(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """What a method takes."""


class Initialize(_Params, frozen=True):
    """A client introduces itself."""

    protocol_version: str | None = None
    client_info: dict[str, Any] | None = None
    capabilities: dict[str, Any] | None = None
    client_id: str | None = None
    session_token: str | None = None
    last_event_id: str | None = None


class _Cancel(_Params, frozen=True):
    request_id: str | None = None
    execution_id: str | int | None = None
    cascade: bool = True
    reason: str = ""


class _Status(_Params, frozen=True):
    request_id: str | None = None
    execution_id: str | int | None = None


class _Watch(_Params, frozen=True):
    execution_ids: list[str | int]
    channels: list[Literal["state", "events", "logs"]] = msgspec.field(
        default_factory=lambda: ["state"]
    )
    client_id: str | None = None


class _Ack(_Params, frozen=True):
    event_id: str
    client_id: str | None = None


class Calls:
    """Every method, for whoever may call it."""

    def __init__(self, *, hub: Hub, requests: Requests, limits: Limits, log: ClientLog) -> None:
        self._hub = hub
        self._requests = requests
        self._limits = limits
        self._log = log
        self._methods: dict[str, Method] = {
            "initialize": self._initialize,
            "playbook/execute": self._execute,
            "playbook/cancel": self._cancel,
            "playbook/status": self._status,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "ack": self._ack,
            "ping": _nothing,
            "pong": _nothing,
        }

    async def call(
        self,
        person: Person | None,
        message: Any,  # noqa: ANN401 - JSON
        *,
        stream: Stream | None = None,
    ) -> dict[str, Any] | None:
        """The answer of a message; none for one that wants no answer."""
        call_id = id_of(message)
        try:
            must_be_call(message)
        except BadCall as refusal:
            return frames.refusal(call_id, refusal.failure)
        try:
            answer = frames.answer(call_id, await self._called(person, message, stream))
        except BadCall as refusal:
            answer = frames.refusal(call_id, refusal.failure)
        except Exception as error:  # noqa: BLE001 - the border: every error of a call is an answer
            noted(error)
            answer = frames.refusal(call_id, rpc_of(error))
        return answer if "id" in message else None

    async def _called(
        self, person: Person | None, message: dict[str, Any], stream: Stream | None
    ) -> object:
        if person is None:
            raise MissingToken("the call says not whose it is", hint="sign in")
        method = self._methods.get(message["method"])
        if method is None:
            raise BadCall(METHOD_NOT_FOUND, "there is no such method")
        return await method(person, message.get("params") or {}, stream)

    async def _initialize(
        self, person: Person, params: dict[str, Any], stream: Stream | None
    ) -> object:
        """Without a stream: what the first message of one would say."""
        if stream is not None:
            raise BadCall(INVALID_REQUEST, "the connection is initialized")
        asked = read(params, Initialize)
        client_id = asked.client_id or random_uuid()
        pending: list[dict[str, Any]] = []
        if asked.client_id:
            await self._must_own(person, client_id)
            pending = await self._requests.pending(person, client_id)
        return frames.init(
            client_id=client_id,
            epoch=await self._log.epoch(),
            expires_at=person.expires_at,
            recovery=Recovery().told(),
            pending=pending,
        )

    async def _execute(
        self, person: Person, params: dict[str, Any], stream: Stream | None
    ) -> object:
        del stream  # whom the result goes to is said by the call, on every way in
        self._limits.take("execute", person.user_id)
        return await self._requests.start(person, read(params, Wish))

    async def _cancel(self, person: Person, params: dict[str, Any], _: Stream | None) -> object:
        asked = read(params, _Cancel)
        request_id, execution_id = _one_of(asked.request_id, asked.execution_id)
        found, status = await self._requests.cancel(
            person,
            request_id=request_id,
            execution_id=execution_id,
            cascade=asked.cascade,
            reason=asked.reason,
        )
        return {"executionId": found, "status": status}

    async def _status(self, person: Person, params: dict[str, Any], _: Stream | None) -> object:
        asked = read(params, _Status)
        request_id, execution_id = _one_of(asked.request_id, asked.execution_id)
        if request_id:
            return await self._requests.document(person, request_id)
        return await self._requests.of_execution(person, execution_id)

    async def _subscribe(
        self, person: Person, params: dict[str, Any], stream: Stream | None
    ) -> object:
        client_id, asked = _watcher(params, stream)
        runs = [parse(run) for run in asked.execution_ids]
        return {"subscribed": await self._hub.watch(person, client_id, runs, asked.channels)}

    async def _unsubscribe(
        self, person: Person, params: dict[str, Any], stream: Stream | None
    ) -> object:
        all_channels = {"channels": ["state", "events", "logs"], **params}
        client_id, asked = _watcher(all_channels, stream)
        runs = [parse(run) for run in asked.execution_ids]
        return {"subscribed": await self._hub.unwatch(person, client_id, runs, asked.channels)}

    async def _ack(self, person: Person, params: dict[str, Any], stream: Stream | None) -> object:
        asked = read(params, _Ack)
        client_id = asked.client_id or ("" if stream is None else stream.client_id)
        await self._hub.acknowledge(person, asked.event_id, client_id)
        return {}

    async def _must_own(self, person: Person, client_id: str) -> None:
        if not await self._hub.owns(person, client_id):
            raise ClientNotYours("the client belongs to somebody else, or is not known")


class BadCall(NoetlError):
    """A message that is no call."""

    code = "validation_failed"
    status: ClassVar[int] = 422

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code=code, message=message)


def parsed(data: bytes | str) -> Any:  # noqa: ANN401 - JSON
    """The JSON of a message; `BadCall` when it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadCall(PARSE_ERROR, "the message is no JSON") from None


def must_be_call(message: Any) -> None:  # noqa: ANN401 - JSON
    """Refuse what is no call of JSON-RPC."""
    if isinstance(message, list):
        raise BadCall(INVALID_REQUEST, "batches are not taken")
    if not isinstance(message, dict) or message.get("jsonrpc") != VERSION:
        raise BadCall(INVALID_REQUEST, 'the message is no call: `jsonrpc` is not "2.0"')
    if "id" in message and message["id"] is not None and id_of(message) is None:
        raise BadCall(INVALID_REQUEST, "`id` is neither a text nor a number")
    if not isinstance(message.get("method"), str):
        raise BadCall(INVALID_REQUEST, "`method` is not a text")
    if not isinstance(message.get("params", {}), dict | None):
        raise BadCall(INVALID_PARAMS, "`params` is not an object")


def id_of(message: Any) -> str | int | None:  # noqa: ANN401 - JSON
    """The id of a call, as far as it is one."""
    found = message.get("id") if isinstance(message, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    return None if isinstance(found, str) and len(found) > _MOST_ID else found


def status_of(answer: dict[str, Any]) -> int:
    """The HTTP status of an answer: what callers of HTTP react to keeps its own."""
    failure = answer.get("error")
    return 200 if failure is None else _STATUSES.get(failure.code, 200)


def read(params: dict[str, Any], kind: type[T]) -> T:
    """Params as their model."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as fault:
        raise BadCall(INVALID_PARAMS, str(fault)) from None


def noted(error: BaseException) -> None:
    """Log what nobody raised on purpose."""
    if not isinstance(error, NoetlError):
        _log.error("a call has failed", exc_info=error)


async def _nothing(person: Person, params: dict[str, Any], stream: Stream | None) -> object:
    del person, params, stream
    return {}


def _one_of(request_id: str | None, execution_id: str | int | None) -> tuple[str, str]:
    if (request_id is None) == (execution_id is None):
        raise Unacceptable("one of `requestId` and `executionId` is to be given")
    return request_id or "", "" if execution_id is None else parse(execution_id)


def _watcher(params: dict[str, Any], stream: Stream | None) -> tuple[str, _Watch]:
    asked = read(params, _Watch)
    client_id = asked.client_id or ("" if stream is None else stream.client_id)
    if not client_id:
        raise BadCall(INVALID_PARAMS, "`clientId` says who is to be told")
    if not asked.channels:
        raise BadCall(INVALID_PARAMS, "`channels` names none")
    return client_id, asked
