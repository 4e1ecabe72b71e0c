"""Which route stands behind which command of the CLI; told in the contract."""

from __future__ import annotations

from typing import Final

CONTRACT_VERSION: Final = "1.0"

OPERATIONS: Final = {
    "run": "POST /api/execute",
    "exec": "POST /api/execute",
    "exec --batch": "POST /api/execute/batch",
    "register": "POST /api/catalog/register",
    "apply": "POST /api/catalog/register",
    "catalog list": "POST /api/catalog/list",
    "catalog get": "GET /api/catalog/resource",
    "executions list": "GET /api/executions",
    "executions get": "GET /api/executions/{execution_id}",
    "executions status": "GET /api/executions/{execution_id}/status",
    "executions events": "GET /api/executions/{execution_id}/events",
    "executions follow": "GET /api/executions/{execution_id}/events/stream",
    "executions logs": "GET /api/executions/{execution_id}/logs",
    "executions why": "GET /api/executions/{execution_id}/why",
    "executions children": "GET /api/executions/{execution_id}/children",
    "executions cancel": "POST /api/executions/{execution_id}/cancel",
    "executions pause": "POST /api/executions/{execution_id}/pause",
    "executions resume": "POST /api/executions/{execution_id}/resume",
    "executions rerun": "POST /api/executions/{execution_id}/rerun",
    "executions fork": "POST /api/executions/{execution_id}/fork",
    "executions finalize": "POST /api/executions/{execution_id}/finalize",
    "pools list": "GET /api/worker/pools",
    "pools get": "GET /api/worker/pools",
    "pools drain": "POST /api/worker/pools/{pool}/drain",
    "workers list": "GET /api/worker/pools",
    "schedules list": "GET /api/schedules",
    "schedules pause": "POST /api/schedules/{schedule_id}/pause",
    "schedules resume": "POST /api/schedules/{schedule_id}/resume",
    "schedules trigger": "POST /api/schedules/{schedule_id}/trigger",
    "schedules backfill": "POST /api/schedules/{schedule_id}/backfill",
    "status": "GET /api/health",
}
"""A command as it is typed to the route that it asks, `METHOD /path`."""
