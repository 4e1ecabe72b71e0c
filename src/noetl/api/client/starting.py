"""Starting runs, and steering them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.api.callbacks import CallbackTaken
from noetl.api.client.calls import Calls, decoded, encode, run_path, segment
from noetl.api.executions import (
    Control,
    Controlled,
    Execute,
    Finalize,
    Fork,
    Rehearsed,
    Rerun,
    Started,
    StartedBatch,
)
from noetl.api.reading import Bulk, Bulked, Retried, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence


class Starts(Calls):
    """Starting runs, and steering them."""

    async def execute(self, body: Execute) -> Started:
        """Start a run."""
        return await self._post("/api/execute", body, Started)

    async def rehearse(self, body: Execute) -> Rehearsed:
        """Check what a start would do, and store nothing."""
        asked = msgspec.structs.replace(body, dry_run=True)
        return await self._post("/api/execute", asked, Rehearsed)

    async def execute_batch(self, bodies: Sequence[Execute]) -> StartedBatch:
        """Start many runs at once."""
        answer = await self._call("POST", "/api/execute/batch", encode({"executions": bodies}))
        return decoded(answer, StartedBatch)

    async def cancel(
        self, execution_id: str, body: Control, *, key: str | None = None
    ) -> Controlled:
        """End a run."""
        return await self._post(f"{run_path(execution_id)}/cancel", body, Controlled, key)

    async def pause(
        self, execution_id: str, body: Control, *, key: str | None = None
    ) -> Controlled:
        """Issue nothing new."""
        return await self._post(f"{run_path(execution_id)}/pause", body, Controlled, key)

    async def resume(
        self, execution_id: str, body: Control, *, key: str | None = None
    ) -> Controlled:
        """Go on after a pause."""
        return await self._post(f"{run_path(execution_id)}/resume", body, Controlled, key)

    async def finalize(
        self, execution_id: str, body: Finalize, *, key: str | None = None
    ) -> Controlled:
        """End a run with a status of the caller's choice."""
        return await self._post(f"{run_path(execution_id)}/finalize", body, Controlled, key)

    async def rerun(self, execution_id: str, body: Rerun, *, key: str | None = None) -> Started:
        """Start the same playbook again."""
        return await self._post(f"{run_path(execution_id)}/rerun", body, Started, key)

    async def fork(self, execution_id: str, body: Fork, *, key: str | None = None) -> Started:
        """Start a run where another one was."""
        return await self._post(f"{run_path(execution_id)}/fork", body, Started, key)

    async def bulk(self, body: Bulk, *, key: str | None = None) -> Bulked:
        """Cancel, pause, resume or repeat many runs."""
        return await self._post("/api/executions/bulk", body, Bulked, key)

    async def retry_step(
        self, execution_id: str, step: str, body: Retry | None = None, *, key: str | None = None
    ) -> Retried:
        """Let a failed step be visited again while its run goes on."""
        path = f"{run_path(execution_id)}/steps/{segment(step)}/retry"
        return await self._post(path, body or Retry(), Retried, key)

    async def answer(self, callback_key: str, body: bytes) -> CallbackTaken:
        """Resume the command that waits for this key."""
        path = f"/api/callbacks/{segment(callback_key)}"
        return decoded(await self._call("POST", path, body), CallbackTaken)
