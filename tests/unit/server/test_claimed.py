"""Claims of a moment ago: the last ones, for a second, and none that has ended."""

from __future__ import annotations

import asyncio

from noetl.clock import LoopClock
from noetl.server.claimed import BELIEVED_S, MOST, Claimed
from noetl.store.base import CommandRow
from tests.unit.server.rig import virtually
from tests.unit.server.test_publish import START


def row(command_id: str, status: str = "CLAIMED") -> CommandRow:
    return CommandRow(
        execution_id="1", command_id=command_id, command_key="k", step="s", kind="noop",
        pool="shared", priority=0, status=status, attempt=1, worker_id="w",
    )  # fmt: skip


def claimed() -> Claimed:
    return Claimed(LoopClock(asyncio.get_running_loop(), START))


@virtually
async def test_a_claim_is_known_until_it_ends_or_gets_old() -> None:
    known = claimed()
    known.committed([row("1"), row("2"), row("3"), row("4", "PENDING")])
    known.committed([row("2", "COMPLETED")])
    known.drop("3")
    known.drop("unknown")
    assert [one for one in "1234" if known.get(one)] == ["1"]
    await asyncio.sleep(BELIEVED_S / 2)
    assert known.get("1") == row("1")
    await asyncio.sleep(BELIEVED_S / 2)
    assert known.get("1") is None
    known.committed([row("1")])
    assert known.get("1") == row("1")


@virtually
async def test_the_last_ones_are_kept() -> None:
    known = claimed()
    known.committed([row(str(number)) for number in range(MOST + 2)])
    assert [one for one in ("0", "1", "2", str(MOST + 1)) if known.get(one)] == ["2", str(MOST + 1)]
