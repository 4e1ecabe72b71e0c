"""How every call is made: encoded, sent, and its answer decoded or refused."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from noetl.api.http import Answer
from noetl.api.models import decoder_of
from noetl.api.problems import Problem, Refused
from noetl.api.sse import StreamTransport, UploadTransport, parsed

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping

    from noetl.api.http import Transport

T = TypeVar("T")

JSON: Final = {"content-type": "application/json"}
INTERNAL: Final = "/api/internal"
_SHOWN_BYTES: Final = 200
encode: Final = msgspec.json.Encoder().encode
_problems: Final = decoder_of(Problem)


class Calls:
    """A server behind a transport; every call raises `Refused` for an answer that is a problem."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def raw(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = JSON
    ) -> Answer:
        """One call as it stands; the answer, whatever its status is."""
        return await self._transport.request(method, path, body, headers)

    @staticmethod
    def refusal(answer: Answer) -> Refused | None:
        """The problem that an answer of `raw` is, if it is one."""
        is_good = 200 <= answer.status < 300  # noqa: PLR2004 - the range of success
        return None if is_good else Refused(problem(answer))

    async def _streamed(self, path: str, last_id: str | None) -> AsyncIterator[dict[str, Any]]:
        transport = self._transport
        if not isinstance(transport, StreamTransport):
            raise TypeError(f"{type(transport).__name__} carries no streams")
        headers = {"accept": "text/event-stream"}
        if last_id is not None:
            headers["last-event-id"] = last_id
        async with transport.stream(path, headers) as (status, chunks):
            if status != 200:  # noqa: PLR2004 - the one answer that is a stream
                raise Refused(problem(Answer(status, {}, b"".join([c async for c in chunks]))))
            async for told in parsed(chunks):
                yield told

    @asynccontextmanager
    async def _opened(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer as they come."""
        transport = self._transport
        if not isinstance(transport, StreamTransport):
            raise TypeError(f"{type(transport).__name__} carries no streams")
        async with transport.stream(path, headers) as (status, chunks):
            if not 200 <= status < 300:  # noqa: PLR2004 - the range of success
                raise Refused(problem(Answer(status, {}, b"".join([c async for c in chunks]))))
            yield chunks

    async def _uploaded(
        self, path: str, chunks: AsyncIterable[bytes], headers: Mapping[str, str]
    ) -> Answer:
        transport = self._transport
        if not isinstance(transport, UploadTransport):
            raise TypeError(f"{type(transport).__name__} takes no streams")
        answer = await transport.upload("PUT", path, chunks, headers)
        if 200 <= answer.status < 300:  # noqa: PLR2004 - the range of success
            return answer
        raise Refused(problem(answer))

    async def _post(
        self, path: str, body: msgspec.Struct, kind: type[T], key: str | None = None
    ) -> T:
        headers = JSON if key is None else {**JSON, "idempotency-key": key}
        return decoded(await self._call("POST", path, encode(body), headers), kind)

    async def _get(self, path: str, kind: type[T]) -> T:
        return decoded(await self._call("GET", path), kind)

    async def _call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = JSON
    ) -> Answer:
        answer = await self._transport.request(method, path, body, headers)
        if 200 <= answer.status < 300:  # noqa: PLR2004 - the range of success
            return answer
        raise Refused(problem(answer))


def segment(text: str) -> str:
    """A part of a path."""
    return text if text.isalnum() and text.isascii() else quote(text, safe="")


def query(path: str, asked: Mapping[str, object]) -> str:
    """A path with what is asked for."""
    given = {name: value for name, value in asked.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def document_path(path: str) -> str:
    """Where a document is."""
    return f"/api/catalog/{quote(path)}"


def vars_path(execution_id: str, var_name: str | None = None) -> str:
    """Where the variables of a run are, or one of them."""
    path = f"/api/vars/{segment(execution_id)}"
    return path if var_name is None else f"{path}/{segment(var_name)}"


def schedule_path(schedule_id: str) -> str:
    """Where a schedule is."""
    return f"/api/schedules/{segment(schedule_id)}"


def run_path(execution_id: str) -> str:
    """Where a run is."""
    return f"/api/executions/{segment(execution_id)}"


def decoded(answer: Answer, kind: type[T]) -> T:
    """An answer as its model."""
    try:
        value = decoder_of(kind).decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(bad_answer(answer, str(error))) from error
    return value


def problem(answer: Answer) -> Problem:
    """The problem that an answer is."""
    try:
        return _problems.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return bad_answer(answer, answer.body[:_SHOWN_BYTES].decode("utf-8", "replace"))


def bad_answer(answer: Answer, detail: str) -> Problem:
    """An answer that is neither what was asked for nor a problem."""
    return Problem(
        type="https://noetl.dev/e/bad_answer",
        title="The answer is not one of ours",
        status=answer.status,
        code="bad_answer",
        detail=f"status {answer.status}: {detail}",
        hint="is something else listening at the server's address?",
    )
