"""kill -9 of each part during a fan-out and during a chain: every run ends, every effect once."""

from __future__ import annotations

import pytest

from tests.reliability.oracle import judge
from tests.reliability.work import chain, fanout

PARTS = ("worker", "server", "nats", "postgres")


@pytest.mark.parametrize("part", PARTS)
async def test_a_part_is_killed_during_a_fan_out_and_during_a_chain(stack, ledger, part):
    stack.add_server()
    stack.add_worker()
    await stack.start("server", "worker")
    runs = {}
    for work in (fanout(200), chain(20)):
        before = len(ledger.rows)
        run = await stack.begin(work, ledger)
        runs[run] = work
        await ledger.reaches(before + len(work.effects) // 3)
        await stack.again(part)
        await stack.ended(run)
    await judge(stack, ledger, runs)
