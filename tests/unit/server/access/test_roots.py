"""Which run stands above all others of a workflow."""

from __future__ import annotations

from noetl.server.access.owning import root_of
from noetl.store.base import ExecutionRow


def row(execution_id: str, parent: str | None = None) -> ExecutionRow:
    return ExecutionRow(
        execution_id=execution_id, status="RUNNING", catalog_id="1", path="p", version=1,
        pool="shared", priority=5, last_seq=1, last_event_id="1", started_at="", updated_at="",
        parent_execution_id=parent,
    )  # fmt: skip


async def test_the_root_is_found_however_deep_and_as_far_as_runs_are_known() -> None:
    rows = {
        one.execution_id: one for one in (row("1"), row("2", "1"), row("3", "2"), row("5", "4"))
    }

    async def get(execution_id: str) -> ExecutionRow | None:
        return rows.get(execution_id)

    found = [await root_of(rows[name], get) for name in ("1", "2", "3", "5")]
    assert found == ["1", "1", "1", "5"]
