"""The only way to talk to the server: one method per route, typed in and typed out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from noetl.api.catalog import CatalogPage, CatalogQuery, Entry, Register, Registered
from noetl.api.commands import (
    Beat,
    Claim,
    Claimed,
    Claimer,
    Command,
    Heartbeat,
    Release,
)
from noetl.api.events import LogBatch, LogPage, Reported, Reports
from noetl.api.executions import (
    Control,
    Controlled,
    Events,
    Execute,
    Execution,
    ExecutionPage,
    Finalize,
    Fork,
    Rehearsed,
    Rerun,
    Started,
    StartedBatch,
    Status,
)
from noetl.api.http import Answer
from noetl.api.models import decoder_of
from noetl.api.problems import Problem, Refused
from noetl.api.results import Stored
from noetl.api.runtime import Joined, Left, PoolHeartbeat, Pools, WorkerEntry
from noetl.api.sse import StreamTransport, parsed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from noetl.api.http import Transport

T = TypeVar("T")

_JSON: Final = {"content-type": "application/json"}
_SHOWN_BYTES: Final = 200
_encode: Final = msgspec.json.Encoder().encode
_problems: Final = decoder_of(Problem)


class Client:
    """A server behind a transport; every call raises `Refused` for an answer that is a problem."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def execute(self, body: Execute) -> Started:
        """Start a run."""
        return await self._post("/api/execute", body, Started)

    async def rehearse(self, body: Execute) -> Rehearsed:
        """Check what a start would do, and store nothing."""
        asked = msgspec.structs.replace(body, dry_run=True)
        return await self._post("/api/execute", asked, Rehearsed)

    async def execute_batch(self, bodies: Sequence[Execute]) -> StartedBatch:
        """Start many runs at once."""
        answer = await self._call("POST", "/api/execute/batch", _encode({"executions": bodies}))
        return _decoded(answer, StartedBatch)

    async def report(self, body: Reports) -> Reported:
        """Report what commands came to, and take the next ones."""
        return await self._post("/api/events/batch", body, Reported)

    async def claim(self, body: Claim) -> Claimed:
        """Take commands of a pool; parked while there are none and `wait_seconds` is given."""
        return await self._post("/api/commands/claim", body, Claimed)

    async def claim_one(self, event_id: str, worker_id: str) -> Command:
        """Take the command that a hint names."""
        path = f"/api/commands/{_segment(event_id)}/claim"
        return await self._post(path, Claimer(worker_id=worker_id), Command)

    async def heartbeat(self, body: Heartbeat) -> Beat:
        """Extend every lease of a worker."""
        return await self._post("/api/commands/heartbeat", body, Beat)

    async def release(self, body: Release) -> None:
        """Give commands back."""
        await self._call("POST", "/api/commands/release", _encode(body))

    async def log(self, body: LogBatch) -> None:
        """Hand over lines that tasks wrote."""
        await self._call("POST", "/api/logs/batch", _encode(body))

    async def register_worker(self, body: WorkerEntry) -> Joined:
        """Join a pool."""
        return await self._post("/api/worker/pool/register", body, Joined)

    async def pool_heartbeat(self, body: PoolHeartbeat) -> Beat:
        """Say that a worker is alive, and extend every lease of it."""
        return await self._post("/api/worker/pool/heartbeat", body, Beat)

    async def pools(self, **filters: str) -> Pools:
        """Known processes and their pools; filters are `kind`, `status` and `name`."""
        return await self._get(_query("/api/worker/pools", filters), Pools)

    async def health(self) -> dict[str, Any]:
        """How the server is; told too when it is not well."""
        answer = await self._transport.request("GET", "/api/health", b"", _JSON)
        return _decoded(answer, dict[str, Any])

    async def leave(self, body: Left) -> None:
        """Leave the pool."""
        await self._call("POST", "/api/worker/pool/deregister", _encode(body))

    async def register(self, body: Register) -> Registered:
        """Keep a document in the catalog."""
        return await self._post("/api/catalog/register", body, Registered)

    async def entry(self, catalog_id: str) -> Entry:
        """A document by its id."""
        return await self._get(
            f"/api/catalog/resource?{urlencode({'catalog_id': catalog_id})}", Entry
        )

    async def resolve(self, path: str, version: str | int | None = None) -> Entry:
        """A document by its path; the newest version unless one is named."""
        asked = {"path": path} if version is None else {"path": path, "version": str(version)}
        return await self._get(f"/api/catalog/resource?{urlencode(asked)}", Entry)

    async def catalog(self, body: CatalogQuery) -> CatalogPage:
        """A page of documents."""
        return await self._post("/api/catalog/list", body, CatalogPage)

    async def executions(self, **filters: str | int | Sequence[str]) -> ExecutionPage:
        """A page of runs; filters are the names of the query, some of them with several values."""
        return await self._get(_query("/api/executions", filters), ExecutionPage)

    async def execution(self, execution_id: str, *, with_state: bool = True) -> Execution:
        """One run; with its state, what its steps and its context hold is told too."""
        path = _run(execution_id)
        return await self._get(f"{path}?include_state=true" if with_state else path, Execution)

    async def status(self, execution_id: str) -> Status:
        """How far a run is."""
        return await self._get(f"{_run(execution_id)}/status", Status)

    async def children(self, execution_id: str) -> ExecutionPage:
        """The runs that a run has started."""
        return await self._get(f"{_run(execution_id)}/children", ExecutionPage)

    async def events(
        self,
        execution_id: str,
        after: int = 0,
        limit: int = 100,
        **filters: str | Sequence[str],
    ) -> Events:
        """A page of a run's log."""
        asked = {"after_seq": after, "limit": limit, **filters}
        return await self._get(_query(f"{_run(execution_id)}/events", asked), Events)

    async def stream(
        self, execution_id: str, *, since_event_id: str | None = None, fields: str = "lean"
    ) -> AsyncIterator[dict[str, Any]]:
        """Events as they are committed, `{event, id, data}` each; the last one is `end`."""
        transport = self._transport
        if not isinstance(transport, StreamTransport):
            raise TypeError(f"{type(transport).__name__} carries no streams")
        path = _query(f"{_run(execution_id)}/events/stream", {"fields": fields})
        headers = {"accept": "text/event-stream"}
        if since_event_id is not None:
            headers["last-event-id"] = since_event_id
        async with transport.stream(path, headers) as (status, chunks):
            if status != 200:  # noqa: PLR2004 - the one answer that is a stream
                raise Refused(_problem(Answer(status, {}, b"".join([c async for c in chunks]))))
            async for told in parsed(chunks):
                yield told

    async def why(self, execution_id: str) -> dict[str, Any]:
        """What a run waits for."""
        return await self._get(f"{_run(execution_id)}/why", dict[str, Any])

    async def logs(self, execution_id: str) -> list[dict[str, Any]]:
        """The first lines that the steps of a run wrote."""
        return (await self.log_page(execution_id)).items

    async def log_page(self, execution_id: str, **filters: str | int) -> LogPage:
        """A page of the lines that the steps of a run wrote."""
        return await self._get(_query(f"{_run(execution_id)}/logs", filters), LogPage)

    async def step_result(self, execution_id: str, step: str) -> Any:  # noqa: ANN401 - a user's value
        """What a step returned, fetched when it lies apart."""
        path = f"{_run(execution_id)}/steps/{_segment(step)}/result"
        return await self._get(path, Any)

    async def cancel(self, execution_id: str, body: Control) -> Controlled:
        """End a run."""
        return await self._post(f"{_run(execution_id)}/cancel", body, Controlled)

    async def pause(self, execution_id: str, body: Control) -> Controlled:
        """Issue nothing new."""
        return await self._post(f"{_run(execution_id)}/pause", body, Controlled)

    async def resume(self, execution_id: str, body: Control) -> Controlled:
        """Go on after a pause."""
        return await self._post(f"{_run(execution_id)}/resume", body, Controlled)

    async def finalize(self, execution_id: str, body: Finalize) -> Controlled:
        """End a run with a status of the caller's choice."""
        return await self._post(f"{_run(execution_id)}/finalize", body, Controlled)

    async def rerun(self, execution_id: str, body: Rerun) -> Started:
        """Start the same playbook again."""
        return await self._post(f"{_run(execution_id)}/rerun", body, Started)

    async def fork(self, execution_id: str, body: Fork) -> Started:
        """Start a run where another one was."""
        return await self._post(f"{_run(execution_id)}/fork", body, Started)

    async def answer(self, callback_key: str, body: bytes) -> dict[str, Any]:
        """Resume the command that waits for this key."""
        path = f"/api/callbacks/{_segment(callback_key)}"
        return _decoded(await self._call("POST", path, body), dict[str, Any])

    async def put_result(
        self, execution_id: str, step: str, body: bytes, media_type: str = "application/json"
    ) -> dict[str, Any]:
        """Store a large value; its reference."""
        path = f"/api/result/{_segment(execution_id)}?{urlencode({'step': step})}"
        answer = await self._call("PUT", path, body, {"content-type": media_type})
        return _decoded(answer, Stored).reference

    async def get_result(self, ref: str) -> bytes:
        """A stored value, as it was put."""
        return (await self._call("GET", f"/api/result/resolve?{urlencode({'ref': ref})}")).body

    async def _post(self, path: str, body: msgspec.Struct, kind: type[T]) -> T:
        return _decoded(await self._call("POST", path, _encode(body)), kind)

    async def _get(self, path: str, kind: type[T]) -> T:
        return _decoded(await self._call("GET", path), kind)

    async def _call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = _JSON
    ) -> Answer:
        answer = await self._transport.request(method, path, body, headers)
        if 200 <= answer.status < 300:  # noqa: PLR2004 - the range of success
            return answer
        raise Refused(_problem(answer))


def _segment(text: str) -> str:
    return text if text.isalnum() and text.isascii() else quote(text, safe="")


def _query(path: str, asked: Mapping[str, object]) -> str:
    given = {name: value for name, value in asked.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _run(execution_id: str) -> str:
    return f"/api/executions/{_segment(execution_id)}"


def _decoded(answer: Answer, kind: type[T]) -> T:
    try:
        value = decoder_of(kind).decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(_bad_answer(answer, str(error))) from error
    return value


def _problem(answer: Answer) -> Problem:
    try:
        return _problems.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _bad_answer(answer, answer.body[:_SHOWN_BYTES].decode("utf-8", "replace"))


def _bad_answer(answer: Answer, detail: str) -> Problem:
    return Problem(
        type="https://noetl.dev/e/bad_answer",
        title="The answer is not one of ours",
        status=answer.status,
        code="bad_answer",
        detail=f"status {answer.status}: {detail}",
        hint="is something else listening at the server's address?",
    )
