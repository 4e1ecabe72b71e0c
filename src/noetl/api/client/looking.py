"""Looking at runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.api.client.calls import Calls, query, run_path, segment
from noetl.api.events import LogPage
from noetl.api.executions import Events, Execution, ExecutionPage, Status
from noetl.api.reading import Replayed, RunGraph, Timeline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class Looks(Calls):
    """Looking at runs."""

    async def executions(self, **filters: str | int | Sequence[str]) -> ExecutionPage:
        """A page of runs; filters are the names of the query, some of them with several values."""
        return await self._get(query("/api/executions", filters), ExecutionPage)

    async def execution(self, execution_id: str, *, with_state: bool = True) -> Execution:
        """One run; with its state, what its steps and its context hold is told too."""
        path = run_path(execution_id)
        return await self._get(f"{path}?include_state=true" if with_state else path, Execution)

    async def status(self, execution_id: str) -> Status:
        """How far a run is."""
        return await self._get(f"{run_path(execution_id)}/status", Status)

    async def children(self, execution_id: str, **filters: str | int) -> ExecutionPage:
        """A page of the runs that a run has started, oldest first."""
        return await self._get(query(f"{run_path(execution_id)}/children", filters), ExecutionPage)

    async def events(
        self,
        execution_id: str,
        after: int = 0,
        limit: int = 100,
        **filters: str | Sequence[str],
    ) -> Events:
        """A page of a run's log."""
        asked = {"after_seq": after, "limit": limit, **filters}
        return await self._get(query(f"{run_path(execution_id)}/events", asked), Events)

    async def stream(
        self, execution_id: str, *, since_event_id: str | None = None, fields: str = "lean"
    ) -> AsyncIterator[dict[str, Any]]:
        """Events as they are committed, `{event, id, data}` each; the last one is `end`."""
        path = query(f"{run_path(execution_id)}/events/stream", {"fields": fields})
        async for told in self._streamed(path, since_event_id):
            yield told

    async def log_stream(
        self, execution_id: str, *, since: str | None = None, **filters: str
    ) -> AsyncIterator[dict[str, Any]]:
        """Lines as they are written, `{event, id, data}` each; the last one is `end`."""
        path = query(f"{run_path(execution_id)}/logs", {"follow": "true", **filters})
        async for told in self._streamed(path, since):
            yield told

    async def why(self, execution_id: str) -> dict[str, Any]:
        """What a run waits for."""
        return await self._get(f"{run_path(execution_id)}/why", dict[str, Any])

    async def logs(self, execution_id: str) -> list[dict[str, Any]]:
        """The first lines that the steps of a run wrote."""
        return (await self.log_page(execution_id)).items

    async def log_page(self, execution_id: str, **filters: str | int) -> LogPage:
        """A page of the lines that the steps of a run wrote."""
        return await self._get(query(f"{run_path(execution_id)}/logs", filters), LogPage)

    async def step_result(self, execution_id: str, step: str) -> Any:  # noqa: ANN401 - a user's value
        """What a step returned, fetched when it lies apart."""
        path = f"{run_path(execution_id)}/steps/{segment(step)}/result"
        return await self._get(path, Any)

    async def graph(self, execution_id: str) -> RunGraph:
        """How far a run is on each node and arc of its playbook."""
        return await self._get(f"{run_path(execution_id)}/graph", RunGraph)

    async def timeline(self, execution_id: str, **filters: str | int) -> Timeline:
        """A page of the attempts of a run; filters are `limit` and `cursor`."""
        return await self._get(query(f"{run_path(execution_id)}/timeline", filters), Timeline)

    async def replay(self, execution_id: str, **filters: str | int) -> Replayed:
        """The state of a run after any of its events."""
        asked = {"execution_id": execution_id, **filters}
        return await self._get(query("/api/replay/state", asked), Replayed)

    async def state(self, execution_id: str, seq: int | None = None) -> Replayed:
        """The state of a run, now or after so many events."""
        return await self._get(query(f"{run_path(execution_id)}/state", {"seq": seq}), Replayed)

    async def follow(
        self, *topics: str, since: str | None = None, **filters: str | int | Sequence[str]
    ) -> AsyncIterator[dict[str, Any]]:
        """Rows of lists as they change, `{event, id, data}` each; `reset`: read them again."""
        asked = {"topics": ",".join(topics) or "executions", **filters}
        async for told in self._streamed(query("/api/stream", asked), since):
            yield told
