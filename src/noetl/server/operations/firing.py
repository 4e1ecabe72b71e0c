"""The run of one time of a time table: who asks for it, under which key, and with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.api.executions import Control
from noetl.dsl.secret_inputs import has_mask
from noetl.errors import NoetlError
from noetl.server.ingest.wanted import Wanted

if TYPE_CHECKING:
    from noetl.server.runs.control import Controls
    from noetl.store.base import Executions, ScheduleRow

SCOPE: Final = "schedule"
WINDOW_S: Final = 86_400


def wanted_of(
    row: ScheduleRow,
    due_at: str,
    fired_at: str,
    *,
    created_by: str | None = None,
    is_in_turn: bool = False,
) -> Wanted:
    """The run of a tick; in turn, it waits for the runs of the ticks before."""
    policy: dict[str, Any] = row.policy
    name = policy.get("name") or row.name
    priority = policy.get("priority")
    waits = is_in_turn or policy.get("overlap") == "queue"
    return Wanted(
        path=row.path,
        version=policy.get("version"),
        payload=row.payload,
        secrets_of=row.schedule_id if has_mask(row.payload) else None,
        added={"schedule": {"name": name, "due_at": due_at, "fired_at": fired_at}},
        pool=policy.get("pool"),
        priority=5 if priority is None else int(priority),
        dedup=(SCOPE, f"schedule:{row.schedule_id}:{due_at}", WINDOW_S),
        queue=f"schedule:{row.schedule_id}" if waits else None,
        created_by=row.created_by if created_by is None else created_by,
        tenant_id=row.tenant_id,
        trigger={
            "kind": "schedule",
            "name": name,
            "schedule_id": row.schedule_id,
            "due_at": due_at,
        },
    )


async def still_running(executions: Executions, row: ScheduleRow) -> str | None:
    """The last run of a time table, if it has not ended."""
    if row.last_execution_id is None:
        return None
    previous = await executions.get(row.last_execution_id)
    is_over = previous is None or previous.completed_at is not None
    return None if is_over else row.last_execution_id


async def supersede(controls: Controls, execution_id: str) -> None:
    """Cancel a run for the sake of the next one; it may have ended meanwhile."""
    try:
        await controls.cancel(execution_id, Control(reason="superseded"), SCOPE)
    except NoetlError as refusal:
        if refusal.code != "already_terminal":
            raise
