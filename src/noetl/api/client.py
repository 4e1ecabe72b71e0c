"""The only way to talk to the server: one method per route, typed in and typed out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from noetl.api.catalog import Entry, Register, Registered
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
    Finalize,
    Fork,
    Rerun,
    Started,
)
from noetl.api.models import decoder_of
from noetl.api.problems import Problem, Refused
from noetl.api.results import Stored
from noetl.api.runtime import Joined, Left, WorkerEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.api.http import Answer, Transport

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

    async def execution(self, execution_id: str) -> Execution:
        """One run."""
        return await self._get(_run(execution_id), Execution)

    async def events(self, execution_id: str, after: int = 0, limit: int = 100) -> Events:
        """A page of a run's log."""
        return await self._get(f"{_run(execution_id)}/events?after={after}&limit={limit}", Events)

    async def why(self, execution_id: str) -> dict[str, Any]:
        """What a run waits for."""
        return await self._get(f"{_run(execution_id)}/why", dict[str, Any])

    async def logs(self, execution_id: str) -> list[dict[str, Any]]:
        """Lines that the steps of a run wrote."""
        return (await self._get(f"{_run(execution_id)}/logs", LogPage)).items

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
        return (await self._call("GET", f"/api/result?{urlencode({'ref': ref})}")).body

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
