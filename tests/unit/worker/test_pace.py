"""Work beyond the slots."""

import asyncio

import pytest

from noetl.worker.held import Held
from noetl.worker.pace import MOST_AHEAD, SOON_S, Pace
from tests.unit.worker.fakes import FakeServer, play


@pytest.mark.parametrize(
    ("took_s", "each"), [(0.001, MOST_AHEAD), (SOON_S / 2.5, 2), (SOON_S * 1.5, 0), (10, 0)]
)
def test_as_much_is_held_beforehand_as_begins_soon(took_s, each):
    pace = Pace()
    for _ in range(100):
        pace.ended(took_s)

    assert pace.ahead(8, [0.0] * 8) == each * 8


def test_nothing_is_held_beforehand_while_nothing_is_known():
    assert Pace().ahead(8, []) == 0


def test_a_slot_that_is_held_for_long_counts_for_nothing():
    pace = Pace()
    for _ in range(100):
        pace.ended(0)

    assert pace.ahead(4, [SOON_S, SOON_S * 9, 0.0]) == 2 * MOST_AHEAD
    assert pace.ahead(2, [SOON_S, SOON_S]) == 0


def test_a_worker_whose_commands_are_short_wants_more_than_its_slots():
    async def scene():
        server = FakeServer()

        async def at_once(run):
            held.reported(run)

        held = Held(2, at_once)
        seen = [held.wanted]
        for _ in range(50):
            held.take([server.command()])
            await asyncio.sleep(0)
        with held.promise(3):
            seen.append(held.wanted)
        seen.append(held.wanted)
        held.is_closed = True
        return [*seen, held.wanted, held.free]

    whole = 2 + 2 * MOST_AHEAD
    assert play(scene) == [2, whole - 3, whole, 0, 0]
