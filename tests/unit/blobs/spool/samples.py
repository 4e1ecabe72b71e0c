"""Items and parts that tests of the spool share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from noetl.blobs.spool.item import Item, sha256_of
from noetl.blobs.spool.memory import MemoryStore
from noetl.blobs.spool.rules import Place, Rules
from noetl.blobs.spool.spool import Spool
from noetl.ids import EPOCH

PLACE = Place("default", "subscriptions/meters")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Hands:
    """A clock that a test turns."""

    def __init__(self, at: datetime = NOON) -> None:
        self.at = at
        self.passed_s = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.passed_s

    def turn(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.passed_s += seconds


def seq_at(at: datetime, number: int = 0) -> str:
    """A snowflake of a moment."""
    return str((int((at - EPOCH).total_seconds() * 1000) << 22) + number)


def item(number: int = 1, *, lane: str = "m-9", at: datetime = NOON, **fields) -> Item:
    message = {"id": f"t:{number}", "data": {"n": number}, "headers": {}, "attributes": {}}
    plan = {"playbook": "plant/store_reading", "execution_pool": "meters", "trace": None}
    given = {
        "subscription": PLACE.path,
        "source": "kafka",
        "message_id": f"t:{number}",
        "recv_seq": seq_at(at, number),
        "ordering_key": lane,
        "downstream": "tsdb",
        "dispatch_key": "m:k-1",
        "sha256": sha256_of(message, plan),
        "spooled_at": "2026-05-01T10:00:00.000Z",
        "reason": "circuit_open",
        "spec_version": 4,
        "plan": plan,
        "message": message,
    }
    return Item(**given | fields)


def spool_of(store=None, clock=None, **rules):
    """A spool and what it tells."""
    told: list[tuple[str, dict]] = []
    made = Spool(
        store if store is not None else MemoryStore(),
        PLACE,
        Rules(**rules),
        clock or Hands(),
        lambda *event: told.append(event),
    )
    return made, told
