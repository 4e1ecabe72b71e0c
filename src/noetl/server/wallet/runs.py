"""What deliveries need to know of a run; it never changes, so the last ones are kept."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.edge.errors import UnknownExecution
from noetl.server.access.owning import root_of
from noetl.server.wallet.naming import Named, Names, texts_of

if TYPE_CHECKING:
    from noetl.server.ingest.programs import Programs
    from noetl.server.recent import Recent
    from noetl.store.base import ExecutionRow, Executions

MOST_KEPT: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Whose run it is, and which secrets it may have."""

    execution_id: str
    tenant_id: str
    catalog_id: str
    path: str
    root_execution_id: str
    named: Named
    aliases: frozenset[str]
    """Those of the playbook, and texts of the workload when that has a say."""


class Runs:
    """Facts by run."""

    def __init__(self, executions: Executions, programs: Programs, recent: Recent) -> None:
        self._executions = executions
        self._recent = recent
        self._programs = programs
        self._names = Names()
        self._kept: OrderedDict[str, RunFacts] = OrderedDict()

    async def get(self, execution_id: str) -> RunFacts:
        """What there is to know of a run."""
        found = self._kept.get(execution_id)
        if found is not None:
            self._kept.move_to_end(execution_id)
            return found
        found = self._kept[execution_id] = await self._of(
            _must_be(execution_id, await self._begun(execution_id))
        )
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    async def known(self, execution_id: str) -> RunFacts | None:
        """The same; none when there is no such run."""
        try:
            return await self.get(execution_id)
        except UnknownExecution:
            return None

    async def row(self, execution_id: str) -> ExecutionRow:
        """A run as the store has it."""
        return _must_be(execution_id, await self._executions.get(execution_id))

    async def _begun(self, execution_id: str) -> ExecutionRow | None:
        """A run as it began, or later; the facts are the same."""
        return self._recent.first_row(execution_id) or await self._executions.get(execution_id)

    async def named(self, catalog_id: str) -> Named:
        """What a version of a playbook names."""
        program = await self._programs.get(catalog_id)
        return self._names.of(catalog_id, program.playbook)

    async def _of(self, row: ExecutionRow) -> RunFacts:
        program = await self._programs.get(row.catalog_id)
        named = self._names.of(row.catalog_id, program.playbook)
        of_workload = texts_of(row.workload) if named.is_templated else frozenset()
        return RunFacts(
            execution_id=row.execution_id,
            tenant_id=row.tenant_id,
            catalog_id=row.catalog_id,
            path=row.path,
            root_execution_id=await root_of(row, self._begun),
            named=named,
            aliases=named.aliases | of_workload | program.aliases,
        )


def _must_be(execution_id: str, row: ExecutionRow | None) -> ExecutionRow:
    if row is None:
        raise UnknownExecution(f"there is no execution {execution_id}")
    return row
