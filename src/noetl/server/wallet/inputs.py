"""Secret inputs of runs: taken out of the workload, sealed, and told to workers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.server.wallet.box import Box
    from noetl.store.secrets import ExecutionSecrets

_TABLE: Final = "execution_secret"


class RunSecrets:
    """Values of `secret: true` inputs, by run."""

    def __init__(self, store: ExecutionSecrets, box: Box) -> None:
        self._store = store
        self._box = box

    async def keep(self, tenant_id: str, execution_id: str, values: Mapping[str, Any]) -> None:
        """Seal the values of a run."""
        records = {
            name: await self._box.seal(value, _TABLE, tenant_id, f"{execution_id}/{name}")
            for name, value in values.items()
        }
        await self._store.put(execution_id, records)

    async def of(self, tenant_id: str, execution_id: str) -> dict[str, Any]:
        """The values of a run, by their names."""
        return {
            name: await self._box.open(record, _TABLE, tenant_id, f"{execution_id}/{name}")
            for name, record in (await self._store.get(execution_id)).items()
        }

    async def copy(self, tenant_id: str, source: str, target: str) -> None:
        """Let a run take over the values of another one of its tenant."""
        found = await self.of(tenant_id, source)
        if found:
            await self.keep(tenant_id, target, found)
