"""Values that runs keep: results, variables, objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

from noetl.api.callbacks import (
    Collect,
    Collected,
    ContainerCallback,
    ContainerTaken,
    ObjectKept,
    RequestResultKept,
    SinkMarked,
    SinkState,
)
from noetl.api.client.calls import INTERNAL, Calls, decoded, encode, query, segment, vars_path
from noetl.api.results import PutResult, ResultPage, ResultsDeleted, Stored
from noetl.api.variables import (
    SetVariables,
    Variable,
    VariableDeleted,
    VariablesDeleted,
    VariablesSet,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Sequence

    from noetl.api.http import Answer


class Keeps(Calls):
    """Values that runs keep: results, variables, objects."""

    async def put_result(
        self,
        execution_id: str,
        step: str,
        body: bytes,
        media_type: str = "application/json",
        **wishes: str | int | None,
    ) -> dict[str, Any]:
        """Store a large value; its reference."""
        path = query(f"/api/result/{segment(execution_id)}", {"step": step, **wishes})
        answer = await self._call("PUT", path, body, {"content-type": media_type})
        return decoded(answer, Stored).reference

    async def put_result_stream(
        self,
        execution_id: str,
        name: str,
        chunks: AsyncIterable[bytes],
        media_type: str,
        **wishes: str | int | None,
    ) -> Stored:
        """Store bytes as they come."""
        path = query(f"/api/result/{segment(execution_id)}", {"name": name, **wishes})
        answer = await self._uploaded(path, chunks, {"content-type": media_type})
        return decoded(answer, Stored)

    async def get_result_stream(
        self, ref: str, first: int = 0, last: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes of a stored value as they come, or those from `first` to `last`."""
        headers = {}
        if first or last is not None:
            headers["range"] = f"bytes={first}-{'' if last is None else last}"
        path = f"/api/result/resolve?{urlencode({'ref': ref})}"
        async with self._opened(path, headers) as chunks:
            async for chunk in chunks:
                yield chunk

    async def head_result(self, ref: str) -> Answer:
        """What the headers tell of a stored value; the body is its first byte at most."""
        path = f"/api/result/resolve?{urlencode({'ref': ref})}"
        answer = await self.raw("GET", path, headers={"range": "bytes=0-0"})
        if answer.status == 416:  # noqa: PLR2004 - it is empty
            return await self._call("GET", path)
        refusal = self.refusal(answer)
        if refusal is not None:
            raise refusal
        return answer

    async def get_result(self, ref: str) -> bytes:
        """A stored value, as it was put."""
        return (await self._call("GET", f"/api/result/resolve?{urlencode({'ref': ref})}")).body

    async def keep_result(self, execution_id: str, body: PutResult) -> Stored:
        """Store a value under a name of its run."""
        path = f"/api/result/{segment(execution_id)}"
        return decoded(await self._call("PUT", path, encode(body)), Stored)

    async def results(self, execution_id: str, **filters: str | int) -> ResultPage:
        """A page of what is known of the stored values of a run."""
        path = f"/api/result/{segment(execution_id)}/list"
        return await self._get(query(path, filters), ResultPage)

    async def delete_results(self, execution_id: str, **filters: str) -> ResultsDeleted:
        """Delete the stored values of a run; with `ref` one of them, with `name` some."""
        path = query(f"/api/result/{segment(execution_id)}", filters)
        return decoded(await self._call("DELETE", path), ResultsDeleted)

    async def variables(self, execution_id: str) -> tuple[Variable, ...]:
        """Every variable of a run."""
        return await self._get(vars_path(execution_id), tuple[Variable, ...])

    async def set_variables(self, execution_id: str, body: SetVariables) -> VariablesSet:
        """Keep variables of a run, all of them or none."""
        return await self._post(vars_path(execution_id), body, VariablesSet)

    async def variable(self, execution_id: str, var_name: str) -> Variable:
        """One variable; the read is counted."""
        return await self._get(vars_path(execution_id, var_name), Variable)

    async def delete_variable(self, execution_id: str, var_name: str) -> VariableDeleted:
        """Forget one variable."""
        path = vars_path(execution_id, var_name)
        return decoded(await self._call("DELETE", path), VariableDeleted)

    async def delete_variables(self, execution_id: str) -> VariablesDeleted:
        """Forget all variables of a run."""
        answer = await self._call("DELETE", vars_path(execution_id))
        return decoded(answer, VariablesDeleted)

    async def container_ended(
        self, execution_id: str, step: str, body: ContainerCallback
    ) -> ContainerTaken:
        """Tell that a container job of a step has ended."""
        path = f"{INTERNAL}/container-callback/{segment(execution_id)}/{segment(step)}"
        return await self._post(path, body, ContainerTaken)

    async def put_object(
        self, key: str, body: bytes, media_type: str = "application/octet-stream"
    ) -> ObjectKept:
        """Keep bytes under a key, once."""
        headers = {"content-type": media_type}
        answer = await self._call("PUT", f"{INTERNAL}/objects/{quote(key)}", body, headers)
        return decoded(answer, ObjectKept)

    async def get_object(self, key: str) -> bytes:
        """The bytes of a key."""
        return (await self._call("GET", f"{INTERNAL}/objects/{quote(key)}")).body

    async def put_request_result(
        self, request_id: str, body: bytes, *, execution_id: str | None = None
    ) -> RequestResultKept:
        """Keep the result of a client's request; the first one counts."""
        path = f"{INTERNAL}/requests/{segment(request_id)}/result"
        answer = await self._call("PUT", query(path, {"execution_id": execution_id}), body)
        return decoded(answer, RequestResultKept)

    async def get_request_result(self, request_id: str) -> bytes:
        """The result of a client's request."""
        path = f"{INTERNAL}/requests/{segment(request_id)}/result"
        return (await self._call("GET", path)).body

    async def get_request_result_stream(self, request_id: str) -> AsyncIterator[bytes]:
        """The bytes of the result of a client's request as they come."""
        path = f"{INTERNAL}/requests/{segment(request_id)}/result"
        async with self._opened(path, {}) as chunks:
            async for chunk in chunks:
                yield chunk

    async def collect_results(self, body: Collect) -> Collected:
        """Remove objects of runs that there are not."""
        return await self._post(f"{INTERNAL}/result-tier/gc", body, Collected)

    async def sink_state(
        self, action: Literal["mark", "confirm", "release"], execution_ids: Sequence[str]
    ) -> SinkMarked:
        """Say of runs whether a sink has yet to take their data."""
        body = SinkState(execution_ids=tuple(execution_ids))
        return await self._post(f"{INTERNAL}/sink-state/{action}", body, SinkMarked)
