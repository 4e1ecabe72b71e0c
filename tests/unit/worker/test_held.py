"""Commands in slots."""

import asyncio

import msgspec

from noetl.worker.held import Held
from tests.unit.worker.fakes import FakeServer, play


async def forever(_run):
    await asyncio.Event().wait()


def test_free_slots_are_those_that_nothing_uses_or_may_fill():
    async def scene():
        server, held = FakeServer(), Held(3, forever)
        seen = [held.free]
        with held.promise(2):
            seen.append(held.free)
            held.take([server.command(), server.command()])
            seen.append(held.free)
        seen.append(held.free)
        held.is_closed = True
        return [*seen, held.free, held.running]

    assert play(scene) == [3, 1, 0, 1, 0, 2]


def test_a_word_about_another_attempt_stops_nothing():
    async def scene():
        server, held = FakeServer(), Held(2, forever)
        command = msgspec.structs.replace(server.command(), attempt=2)
        held.take([command])
        before = held.stop_ids(["c1"], {"c1": 1})
        return before, held.stop_ids(["c1"], {"c1": 2}), await held.emptied(1)

    assert play(scene) == (0, 1, True)


def test_a_newer_attempt_waits_until_the_older_one_has_ended():
    async def scene():
        server, order = FakeServer(), []

        async def slowly(run):
            order.append(("begin", run.command.attempt))
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                await asyncio.sleep(2)
                raise
            finally:
                order.append(("end", run.command.attempt))

        held = Held(2, slowly)
        command = server.command()
        held.take([command])
        await asyncio.sleep(0)
        held.take([msgspec.structs.replace(command, attempt=2), command])
        await held.emptied()
        return order

    assert play(scene) == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


def test_what_waits_for_a_slot_can_be_stopped_too():
    async def scene():
        server, held = FakeServer(), Held(1, forever)
        held.take([server.command(), server.command()])
        stopped = held.stop_ids(["c2"])
        return stopped, len(held), [run.command.command_id for run in held.unstarted()]

    assert play(scene) == (1, 1, ["c1"])
