"""Which commands wait, without asking the store for every request."""

from __future__ import annotations

from noetl.server.ingest.pending import LOOK_S, MOST_SEEN, MOST_URGENT, Pending, Waiting
from noetl.store.base import CommandRow

NOBODY = frozenset()


class Clock:
    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        return self.time


class Commands:
    """The store, as far as it is asked here."""

    def __init__(self):
        self.rows = []
        self.looks = 0
        self.limit = 0

    async def pending(self, pool, limit):
        self.looks += 1
        self.limit = limit
        return [row for row in self.rows if row.pool == pool][:limit]


def row(number, **more):
    known = {
        "execution_id": "7", "command_id": str(number), "command_key": "a#1", "step": "a",
        "kind": "python", "pool": "shared", "priority": 5, "status": "PENDING", "attempt": 1,
        "available_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return CommandRow(**(known | more))


def waiting(number, execution_id="7", kind="python", priority=5, at="2026-01-01T00:00:01Z"):
    return Waiting(execution_id, str(number), kind, priority, at)


def made():
    commands, clock = Commands(), Clock()
    return Pending(commands, clock), commands, clock


async def names(pending, limit=10, exclude=NOBODY, pool="shared"):
    return [item.command_id for item in (await pending.of(pool, limit, exclude))[0]]


async def test_higher_priority_comes_first_then_age_then_the_id_as_a_number():
    pending, *_ = made()
    pending._looked["shared"] = 0.0  # noqa: SLF001 - the store is not the point here
    old = waiting(3, at="2026-01-01T00:00:00Z")
    for item in (waiting(10), waiting(9), old, waiting(4, priority=9)):
        pending.add("shared", item)
    assert await names(pending) == ["4", "3", "9", "10"]
    assert await names(pending, limit=2) == ["4", "3"]


async def test_kinds_are_left_out_and_pools_apart():
    pending, *_ = made()
    await names(pending)
    pending.add("shared", waiting(1, kind="http"))
    pending.add("shared", waiting(2))
    pending.add("gpu", waiting(3))
    assert await names(pending, exclude=frozenset({"http"})) == ["2"]


async def test_the_store_is_asked_once_a_second_and_at_once_after_a_doubt():
    pending, commands, clock = made()
    commands.rows = [row(1)]
    assert await names(pending) == ["1"]
    commands.rows = [row(1), row(2)]
    assert await names(pending) == ["1"]
    clock.time += LOOK_S
    assert await names(pending) == ["1", "2"]
    assert commands.looks == 2
    pending.doubt()
    await names(pending)
    assert commands.looks == 3


async def test_what_the_store_no_longer_has_is_forgotten():
    pending, commands, clock = made()
    commands.rows = [row(1), row(2)]
    await names(pending)
    commands.rows = [row(2)]
    clock.time += LOOK_S
    assert await names(pending) == ["2"]


async def test_a_store_that_has_more_than_it_tells_removes_nothing():
    pending, commands, clock = made()
    await names(pending)
    pending.add("shared", waiting(5_000))
    commands.rows = [row(number) for number in range(1, MOST_SEEN + 1)]
    clock.time += LOOK_S
    assert "5000" in await names(pending, limit=2 * MOST_SEEN)


async def test_only_what_is_urgent_is_looked_for_while_more_than_enough_waits():
    pending, commands, clock = made()
    await names(pending)
    assert commands.limit == MOST_SEEN
    commands.rows = [row(number) for number in range(1, MOST_SEEN + 1)]
    clock.time += LOOK_S
    await names(pending)
    commands.rows = [row(7_000, priority=9), *commands.rows]
    clock.time += LOOK_S
    assert "7000" in await names(pending)
    assert (commands.limit, pending.count("shared")) == (MOST_URGENT, MOST_SEEN + 1)
    commands.rows = [row(1)]
    clock.time += LOOK_S
    assert await names(pending) == ["1"]


async def test_a_run_that_leaves_takes_its_commands_along():
    pending, *_ = made()
    await names(pending)
    pending.add("shared", waiting(1))
    pending.add("shared", waiting(2, execution_id="8"))
    pending.leave("7")
    pending.leave("7")
    pending.drop("1")
    assert await names(pending) == ["2"]
