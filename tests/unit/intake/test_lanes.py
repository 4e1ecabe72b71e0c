from __future__ import annotations

import asyncio

import pytest

from noetl.intake.lanes import Lanes, Pace
from noetl.intake.outcomes import RunOutcome
from noetl.intake.runs import MOST_REMEMBERED, Runs
from noetl.local.virtual import run_virtually
from tests.simulation.loop import run_shuffled
from tests.unit.intake.world import World


async def passing(lanes, order, lane, name, seconds=0.1):
    turn = lanes.ask(lane)
    await passed(turn, order, name, seconds)


async def passed(turn, order, name, seconds=0.1):
    async with turn.taken():
        await asyncio.sleep(seconds)
        order.append(name)


@pytest.mark.parametrize("seed", range(5))
def test_a_lane_keeps_the_order_in_which_turns_were_asked_for(seed):
    async def main():
        lanes, order = Lanes(), []
        turns = [(lanes.ask("a" if n % 2 else "b"), n) for n in range(10)]
        await asyncio.gather(*(passed(turn, order, n) for turn, n in turns))
        assert [n for n in order if n % 2] == [1, 3, 5, 7, 9]
        assert [n for n in order if not n % 2] == [0, 2, 4, 6, 8]
        assert lanes._last == {}  # noqa: SLF001 - nothing is kept of lanes that are empty

    run_shuffled(main(), str(seed))


def test_whoever_gives_up_lets_nobody_overtake_the_one_before():
    async def main():
        lanes, order = Lanes(), []
        first = asyncio.create_task(passing(lanes, order, "a", 1, 10))
        await asyncio.sleep(0)
        second = asyncio.create_task(passing(lanes, order, "a", 2))
        await asyncio.sleep(0)
        third = asyncio.create_task(passing(lanes, order, "a", 3))
        await asyncio.sleep(1)
        second.cancel()
        await asyncio.wait({first, second, third})
        assert order == [1, 3]
        assert lanes._last == {}  # noqa: SLF001 - as above

    run_virtually(main())


def test_a_fault_ends_a_turn():
    async def main():
        lanes, order = Lanes(), []
        turn, after = lanes.ask("a"), lanes.ask("a")

        async def broken():
            async with turn.taken():
                raise KeyError("x")

        with pytest.raises(KeyError):
            await broken()
        await passed(after, order, 1)
        assert order == [1]

    run_virtually(main())


def test_a_pace_is_even_and_makes_up_for_little():
    async def main():
        world = World()
        pace = Pace(10, world.clock)
        await asyncio.sleep(100)
        at = []
        for _ in range(50):
            await pace.wait()
            at.append(world.clock.monotonic())
        assert at[-1] - at[0] == pytest.approx(4.85, abs=0.1)
        await Pace(None, world.clock).wait()

    run_virtually(main())


# ---------------------------------------------------------------------------- the end of runs


def ended(execution_id, status="COMPLETED"):
    return RunOutcome(execution_id=execution_id, status=status)


def test_an_outcome_finds_those_who_wait_for_it_before_and_after():
    async def main():
        runs = Runs()
        early = [asyncio.create_task(runs.ended("1", None)) for _ in range(2)]
        await asyncio.sleep(0)
        runs.told(ended("1"))
        assert await asyncio.gather(*early) == [ended("1")] * 2
        runs.told(ended("2"))
        assert await runs.ended("2", 1.0) == ended("2")
        assert await runs.ended("3", 1.0) is None

    run_virtually(main())


def test_one_who_gives_up_takes_nothing_from_another():
    async def main():
        runs = Runs()
        patient = asyncio.create_task(runs.ended("1", None))
        assert await runs.ended("1", 1.0) is None
        runs.told(ended("1"))
        assert await patient == ended("1")

    run_virtually(main())


def test_a_run_that_ended_before_anybody_listened_is_asked_for():
    async def main():
        async def ask(execution_id):
            return ended(execution_id) if execution_id == "1" else None

        runs = Runs(ask)
        assert await runs.ended("1", None, is_old=True) == ended("1")
        assert await runs.ended("2", 1.0, is_old=True) is None

    run_virtually(main())


def test_only_so_many_outcomes_are_remembered():
    runs = Runs()
    for n in range(MOST_REMEMBERED + 10):
        runs.told(ended(str(n)))
    assert len(runs._ended) == MOST_REMEMBERED  # noqa: SLF001 - what is bounded
