"""What a worker calls."""

from __future__ import annotations

from noetl.api.callbacks import ContainerCallback, ContainerTaken
from noetl.api.client.calls import Calls, encode, segment
from noetl.api.commands import Beat, Claim, Claimed, Claimer, Command, Heartbeat, Release
from noetl.api.events import LogBatch, Reported, Reports
from noetl.api.runtime import Joined, Left, PoolHeartbeat, WorkerEntry


class Works(Calls):
    """What a worker calls."""

    async def report(self, body: Reports) -> Reported:
        """Report what commands came to, and take the next ones."""
        return await self._post("/api/events/batch", body, Reported)

    async def claim(self, body: Claim) -> Claimed:
        """Take commands of a pool; parked while there are none and `wait_seconds` is given."""
        return await self._post("/api/commands/claim", body, Claimed)

    async def claim_one(self, event_id: str, worker_id: str) -> Command:
        """Take the command that a hint names."""
        path = f"/api/commands/{segment(event_id)}/claim"
        return await self._post(path, Claimer(worker_id=worker_id), Command)

    async def heartbeat(self, body: Heartbeat) -> Beat:
        """Extend every lease of a worker."""
        return await self._post("/api/commands/heartbeat", body, Beat)

    async def release(self, body: Release) -> None:
        """Give commands back."""
        await self._call("POST", "/api/commands/release", encode(body))

    async def container_of_command(
        self, command_id: str, body: ContainerCallback
    ) -> ContainerTaken:
        """Tell that the container of a command has ended, which this worker watched over."""
        path = f"/api/commands/{segment(command_id)}/container-callback"
        return await self._post(path, body, ContainerTaken)

    async def log(self, body: LogBatch) -> None:
        """Hand over lines that tasks wrote."""
        await self._call("POST", "/api/logs/batch", encode(body))

    async def register_worker(self, body: WorkerEntry) -> Joined:
        """Join a pool."""
        return await self._post("/api/worker/pool/register", body, Joined)

    async def pool_heartbeat(self, body: PoolHeartbeat) -> Beat:
        """Say that a worker is alive, and extend every lease of it."""
        return await self._post("/api/worker/pool/heartbeat", body, Beat)

    async def leave(self, body: Left) -> None:
        """Leave the pool."""
        await self._call("POST", "/api/worker/pool/deregister", encode(body))
