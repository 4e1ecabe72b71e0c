"""A client of the gateway: runs playbooks, and hears of them on one stream until they end.

    transport = SocketTransport("http://127.0.0.1:8090", token=token)
    async with GatewayClient(transport) as gateway:
        running = await gateway.execute_playbook("reports/daily", {"day": "2026-01-01"})
        data = await running.result(timeout_s=120)

A stream that is lost is opened again where it stopped, for ever. A result that comes before the
answer that names its request waits for it, and each is told once. A start whose answer is lost is
sent again under its key, so that there is one run.

A session that is renewed meanwhile is given as what asks for its token:
`GatewayClient(SocketTransport(url), token=newest_token)`.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from noetl.api.client.calls import Calls, encode, query, segment
from noetl.api.gateway import Accepted, Failure, RequestDocument, Wish
from noetl.api.gateway_messages import Greeting, Progress, Result
from noetl.api.http import Answer, NoAnswer
from noetl.api.problems import Refused
from noetl.api.renewing import RenewingTransport
from noetl.errors import NoetlError
from noetl.ids import random_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from types import TracebackType

    from noetl.api.http import Transport
    from noetl.api.renewing import TokenSource

CONNECT_S: Final = 10.0
SILENT_S: Final = 90.0
"""Three pings."""
LEAST_WAIT_S: Final = 0.5
MOST_WAIT_S: Final = 30.0
START_S: Final = 120.0
"""How long a start is sent again while nobody answers it."""
LEAVE_S: Final = 1.0
"""How long a client that leaves waits for its acknowledgements to be taken."""
LOOK_S: Final = 20
"""How long one look at a request waits for its end."""
MOST_EARLY: Final = 200
MOST_ENDED: Final = 10_000
_OVER: Final = frozenset({400, 401, 403, 404})
"""Refusals of a stream that another try does not change."""
_NOT_FOUND: Final = 404
_UNAVAILABLE: Final = -32007
_NOT_NOW: Final = frozenset({502, 503, 504})
_COMPLETED: Final = "COMPLETED"
_RUNNING: Final = frozenset({"accepted", "running"})
_document: Final = msgspec.json.Decoder(RequestDocument).decode
_value: Final = msgspec.json.Decoder().decode


class RequestFailed(NoetlError):
    """A request ended without a result, or was not taken."""

    code = "request_failed"

    def __init__(self, failure: Failure, request_id: str = "", execution_id: str = "") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.request_id = request_id
        self.execution_id = execution_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A request that was taken."""

    request_id: str
    execution_id: str
    _ended: asyncio.Future[Result] = field(repr=False)
    _value_of: Callable[[Result], Any] = field(repr=False)

    async def result(self, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - what the playbook gives
        """The value; `RequestFailed` without one. A time-out leaves the run alone."""
        async with asyncio.timeout(timeout_s):
            ended = await asyncio.shield(self._ended)
            return await self._value_of(ended)


class GatewayClient(Calls):
    """Somebody at the gateway; `async with` keeps it connected."""

    def __init__(
        self, transport: Transport, *, client_id: str = "", token: TokenSource | None = None
    ) -> None:
        super().__init__(transport if token is None else RenewingTransport(transport, token))
        self.client_id = client_id
        self.last_event_id = ""
        self.greeting: Greeting | None = None
        self._is_open = asyncio.Event()
        self._fault: NoetlError | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()
        """What is said without an answer."""
        self._waiting: dict[str, tuple[asyncio.Future[Result], Callable[[Progress], None]]] = {}
        self._early: OrderedDict[str, Result] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._looked: set[str] = set()

    async def __aenter__(self) -> Self:
        """Connect, and stay connected."""
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave; what runs goes on running."""
        await self.close()

    # ------------------------------------------------------------------ what callers do

    async def connect(self) -> Greeting:
        """Come back when the gateway has said who we are."""
        if not self._tasks:
            self._fault = None
            self._is_open.clear()
            self._spawn(self._stay())
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._is_open.wait()
        except TimeoutError:
            raise NoAnswer(f"no connection within {CONNECT_S:g} s") from None
        if self._fault is not None or self.greeting is None:
            raise self._fault or NoAnswer("the gateway said nothing")
        return self.greeting

    async def close(self) -> None:
        """End the stream; whoever waits for a result is told that nobody listens any more."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=LEAVE_S)
        for task in (running := (*self._tasks, *self._telling)):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._end(NoAnswer("the client was closed"))

    async def execute_playbook(
        self,
        path: str,
        variables: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        start_s: float = START_S,
        **more: Any,  # noqa: ANN401 - the other fields of a wish
    ) -> Running:
        """Start a playbook; `more` are the other fields of `Wish`.

        While nobody answers, the start is sent again for `start_s` seconds, under one key.
        """
        await self.connect()
        given = dict(variables) if variables is not None else None
        more.setdefault("idempotency_key", random_uuid())
        wish = Wish(name=path, variables=given, client_id=self.client_id, **more)
        accepted = await self._started(wish, start_s)
        return self.follow(accepted.request_id, accepted.execution_id, on_progress)

    def follow(
        self,
        request_id: str,
        execution_id: str = "",
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Running:
        """Wait for a request that runs already, such as one of `greeting.pending_requests`."""
        ended: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        early = self._early.pop(request_id, None)
        if early is not None:
            ended.set_result(early)
        elif self._fault is not None:
            ended.set_exception(self._fault)
        else:
            self._waiting[request_id] = (ended, on_progress or _nothing)
        ended.add_done_callback(_seen)
        return Running(
            request_id=request_id,
            execution_id=execution_id,
            _ended=ended,
            _value_of=self._value_of,
        )

    async def cancel(self, request_id: str, reason: str = "") -> None:
        """Stop a run."""
        await self.call("playbook/cancel", {"requestId": request_id, "reason": reason})

    async def request(self, request_id: str, wait_s: int = 0) -> RequestDocument:
        """What is known of a request; waits up to 30 s for its end."""
        path = query(f"/api/requests/{segment(request_id)}", {"wait": wait_s or None})
        return _document((await self._call("GET", path)).body)

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any result
        """One call of JSON-RPC; `RequestFailed` when it is refused."""
        body = encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = await self.raw("POST", "/rpc", body)
        told = _object_of(answer)
        if "error" in told:
            raise RequestFailed(msgspec.convert(told["error"], Failure))
        refusal = self.refusal(answer)
        if refusal is not None:
            raise refusal
        return told.get("result")

    async def _started(self, wish: Wish, start_s: float) -> Accepted:
        """Send a start until it is answered; the last fault when that takes too long."""
        params = msgspec.to_builtins(wish)
        loop, failures = asyncio.get_running_loop(), 0
        ends_at = loop.time() + start_s
        while True:
            try:
                return msgspec.convert(await self.call("playbook/execute", params), Accepted)
            except (NoAnswer, RequestFailed, Refused) as fault:
                wait_s = _pause(failures)
                if not _is_lost(fault) or loop.time() + wait_s >= ends_at:
                    raise
                failures += 1
                await asyncio.sleep(wait_s)

    # ------------------------------------------------------------------ the stream

    async def _stay(self) -> None:
        """Keep a stream open; only a refusal ends it."""
        failures = 0
        while True:
            try:
                await self._listen()
            except (NoAnswer, TimeoutError):
                pass
            except Refused as refusal:
                if refusal.problem.status in _OVER:
                    self._end(refusal)
                    return
            failures = 0 if self._is_open.is_set() else failures + 1
            self._is_open.clear()
            await asyncio.sleep(_pause(failures))

    async def _listen(self) -> None:
        """Hear one stream to its end; one that is silent for long has lost its other side."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SILENT_S) as limit:
            async for told in self._streamed(self._address(), self.last_event_id or None):
                limit.reschedule(loop.time() + SILENT_S)
                self._take(told["data"], told["id"])

    def _address(self) -> str:
        return query("/events", {"frames": "message", "client_id": self.client_id or None})

    def _take(self, frame: dict[str, Any], event_id: str | None) -> None:
        if "result" in frame:
            self._begin(msgspec.convert(frame["result"], Greeting))
            return
        params = frame.get("params", {})
        match frame.get("method"):
            case "playbook/result":
                self._tell(msgspec.convert(params, Result))
                if event_id:
                    self._keep_telling(self._acknowledge(event_id))
            case "playbook/progress":
                progress = msgspec.convert(params, Progress)
                waiting = self._waiting.get(progress.request_id)
                if waiting is not None:
                    waiting[1](progress)
            case "connection/superseded":
                self.client_id = self.last_event_id = ""  # another one has our name now
                return
        if event_id:
            self.last_event_id = event_id

    def _begin(self, greeting: Greeting) -> None:
        self.greeting = greeting
        self.client_id = greeting.client_id
        self._is_open.set()
        if not greeting.recovery.recovered:
            for request_id in set(self._waiting) - self._looked:
                self._spawn(self._look(request_id))

    def _tell(self, result: Result) -> None:
        """Tell a result, once."""
        if result.request_id in self._ended:
            return
        _keep(self._ended, result.request_id, None, MOST_ENDED)
        waiting = self._waiting.pop(result.request_id, None)
        if waiting is None:
            _keep(self._early, result.request_id, result, MOST_EARLY)
        elif not waiting[0].done():
            waiting[0].set_result(result)

    async def _look(self, request_id: str) -> None:
        """Ask for a request until it has ended: the stream may have nothing to say of it."""
        self._looked.add(request_id)
        try:
            while request_id in self._waiting:
                try:
                    document = await self.request(request_id, LOOK_S)
                except (NoAnswer, Refused) as fault:
                    if isinstance(fault, Refused) and fault.problem.status == _NOT_FOUND:
                        self._tell(_unknown(request_id, fault))
                        return
                    await asyncio.sleep(LEAST_WAIT_S)
                else:
                    if document.state not in _RUNNING:
                        self._tell(Result.of(document))
        finally:
            self._looked.discard(request_id)

    async def _value_of(self, result: Result) -> Any:  # noqa: ANN401 - what the playbook gives
        if result.status != _COMPLETED:
            failure = result.error or Failure(code=-32000, message=result.status)
            raise RequestFailed(failure, result.request_id, result.execution_id)
        if result.data_ref is None:
            return result.data
        path = f"/api/requests/{segment(result.request_id)}/result"
        return _value((await self._call("GET", path)).body)

    def _end(self, fault: NoetlError) -> None:
        self._fault = fault
        for ended, _ in self._waiting.values():
            if not ended.done():
                ended.set_exception(fault)
        self._waiting.clear()
        self._is_open.set()

    async def _acknowledge(self, event_id: str) -> None:
        """Say that a result was told; one that is not heard comes again, and is known then."""
        params = {"clientId": self.client_id, "eventId": event_id}
        with suppress(NoAnswer):
            await self.raw(
                "POST", "/rpc", encode({"jsonrpc": "2.0", "method": "ack", "params": params})
            )

    def _keep_telling(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def _spawn(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _keep(kept: OrderedDict[str, Any], key: str, value: object, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)


def _pause(failures: int) -> float:
    """How long to wait before another try: anything up to a bound that doubles."""
    longest = min(MOST_WAIT_S, LEAST_WAIT_S * 2.0 ** min(failures, 16))
    return random.uniform(0, longest)  # noqa: S311 - spreads load, hides nothing


def _is_lost(fault: NoAnswer | RequestFailed | Refused) -> bool:
    """Whether nobody has said what became of a call."""
    if isinstance(fault, RequestFailed):
        return fault.failure.code == _UNAVAILABLE
    return isinstance(fault, NoAnswer) or fault.problem.status in _NOT_NOW


def _unknown(request_id: str, fault: Refused) -> Result:
    error = Failure(code=-32008, message=fault.message)
    return Result(request_id=request_id, status="FAILED", error=error)


def _object_of(answer: Answer) -> dict[str, Any]:
    try:
        found = _value(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _nothing(_: Progress) -> None:
    """Nobody wants to hear of it."""


def _seen(ended: asyncio.Future[Result]) -> None:
    """A fault that nobody asks for is no fault of the loop."""
    if not ended.cancelled():
        ended.exception()
