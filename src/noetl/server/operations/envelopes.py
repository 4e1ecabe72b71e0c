"""Events as others tell them: one envelope, in the form of a row of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable
from noetl.edge.moments import moment_of
from noetl.engine.rows import TYPES, from_row
from noetl.engine.upcast import type_of
from noetl.ids import parse

if TYPE_CHECKING:
    from datetime import datetime

    from noetl.engine.events import Recorded

_MAPS: Final = ("context", "meta")
_IDS: Final = ("parent_event_id", "catalog_id", "parent_execution_id")


class Envelope:
    """One envelope that is well formed; which event it holds is told when its place is known."""

    __slots__ = ("event_id", "event_type", "execution_id", "row", "seq")

    def __init__(self, told: object, now: datetime) -> None:
        if not isinstance(told, dict):
            raise Unacceptable("an envelope is an object")
        self.event_id = parse(told.get("event_id"))
        self.execution_id = parse(told.get("execution_id"))
        name = told.get("event_type")
        if not isinstance(name, str) or (known := type_of(name)) not in TYPES:
            raise Unacceptable(f"there is no event `{name}`", code="unknown_event_type")
        self.event_type = known
        given = told.get("seq")
        self.seq = given if isinstance(given, int) and not isinstance(given, bool) else None
        self.row = _row(told, now)

    def recorded(self, seq: int, before: str | None) -> Recorded:
        """The event at its place in the log; `InvalidRow` when it is none."""
        return from_row(self.row | {"seq": seq, "prev_event_id": before})


def _row(told: dict[str, Any], now: datetime) -> dict[str, Any]:
    row = dict(told)
    row["event_id"], row["execution_id"] = parse(row["event_id"]), parse(row["execution_id"])
    row["step"] = str(row.get("step") or row.get("node_name") or "playbook")
    row.setdefault("status", "")
    at = row.get("created_at") or row.get("timestamp")
    row["created_at"] = rfc3339(now) if at is None else moment_of(str(at), "created_at")
    if row.get("duration_ms") is None and isinstance(row.get("duration"), int | float):
        row["duration_ms"] = float(row["duration"]) * 1000
    for name in _IDS:
        if row.get(name) is not None:
            row[name] = parse(row[name])
    for name in _MAPS:
        if row.get(name) is not None and not isinstance(row[name], dict):
            raise Unacceptable(f"`{name}` of an envelope is an object", code="bad_value")
    if row.get("tenant_id") is not None:
        row["meta"] = {**(row.get("meta") or {}), "tenant_id": str(row["tenant_id"])}
    return row
