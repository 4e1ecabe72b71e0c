"""The row of a schedule from what a caller has written, if it can be meant."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.cron import cron_fault, timezone_fault
from noetl.edge.errors import Unacceptable
from noetl.edge.moments import moment_of
from noetl.server.ingest.wanted import Wanted, check, version_of
from noetl.server.ticks import MOST_CATCHUP, next_run_at
from noetl.store.base import ScheduleRow

if TYPE_CHECKING:
    from datetime import datetime

    from noetl.api.schedules import ScheduleBody
    from noetl.server.access.caller import Caller

LEAST_INTERVAL_S: Final = 10
MOST_INTERVAL_S: Final = 366 * 86_400
MOST_JITTER_S: Final = 86_400
MOST_NAME: Final = 255
MOST_PATH: Final = 512


def row_of(body: ScheduleBody, schedule_id: str, caller: Caller, now: datetime) -> ScheduleRow:
    """The row; refused with the place of what is wrong."""
    _check(body)
    check(Wanted(pool=body.pool, priority=5 if body.priority is None else body.priority))
    version_of(body.version)
    policy: dict[str, Any] = {
        "overlap": body.overlap,
        "catchup": body.catchup,
        "max_catchup": body.max_catchup,
        "jitter_s": body.jitter_s,
        "start_at": _moment(body.start_at, "start_at"),
        "end_at": _moment(body.end_at, "end_at"),
        "pool": body.pool,
        "priority": body.priority,
        "version": None if body.version in {"latest", ""} else body.version,
    }
    if policy["start_at"] and policy["end_at"] and policy["end_at"] < policy["start_at"]:
        raise _bad("end_at", "is before `start_at`")
    row = ScheduleRow(
        schedule_id=schedule_id,
        name=body.name,
        path=body.path,
        cron=body.cron,
        interval_s=body.interval_seconds,
        timezone=body.timezone,
        payload=body.payload or body.input or {},
        policy={key: value for key, value in policy.items() if value is not None},
        enabled=body.enabled,
        origin="api",
        tenant_id=caller.tenant_id,
        created_by=caller.account,
    )
    return msgspec.structs.replace(row, next_run_at=next_run_at(row, now))


def _check(body: ScheduleBody) -> None:
    if not 1 <= len(body.name) <= MOST_NAME or not body.name.isprintable():
        raise _bad("name", f"has 1..{MOST_NAME} printable characters")
    if ":" in body.name:  # the triggers of playbooks are named so
        raise _bad("name", "has no `:`; that is how triggers are named")
    if not 1 <= len(body.path) <= MOST_PATH or "@" in body.path:
        raise _bad("path", "is not the path of a playbook")
    if body.payload is not None and body.input is not None:
        raise _bad("input", "is another word for `payload`; name one of them")
    _check_times(body)
    if not 1 <= body.max_catchup <= MOST_CATCHUP:
        raise _bad("max_catchup", f"is not in 1..{MOST_CATCHUP}")
    if not (isfinite(body.jitter_s) and 0 <= body.jitter_s <= MOST_JITTER_S):
        raise _bad("jitter_s", f"is not in 0..{MOST_JITTER_S}")


def _check_times(body: ScheduleBody) -> None:
    if (body.cron is None) == (body.interval_seconds is None):
        raise Unacceptable("name either `cron` or `interval_seconds`")
    interval = body.interval_seconds
    if interval is not None and not LEAST_INTERVAL_S <= interval <= MOST_INTERVAL_S:
        raise _bad("interval_seconds", f"is not in {LEAST_INTERVAL_S}..{MOST_INTERVAL_S}")
    if body.cron is not None and (fault := cron_fault(body.cron)) is not None:
        raise _bad("cron", f"is not a schedule: {fault}")
    if (fault := timezone_fault(body.timezone)) is not None:
        raise _bad("timezone", f"is no zone: {fault}")


def _moment(text: str | None, name: str) -> str | None:
    return None if text is None else moment_of(text, name)


def _bad(name: str, what: str) -> Unacceptable:
    return Unacceptable(
        f"`{name}` {what}", errors=({"pointer": f"/{name}", "code": "validation_failed"},)
    )
