"""The clock of servers that share a database, whatever the walls of their machines say."""

from datetime import timedelta

import pytest

from noetl.clock import SystemClock
from noetl.store.errors import DatabaseGone
from noetl.store.postgres.clock import DatabaseClock
from noetl.store.postgres.database import Database

NEAR = timedelta(milliseconds=50)
"""Far more than the clocks differ by, for machines that are busy with other tests."""


class Ahead(SystemClock):
    """A machine whose wall clock is a day ahead."""

    def now(self):
        return super().now() + timedelta(days=1)


@pytest.fixture
async def database(postgres_url):
    database = await Database.open(postgres_url, size=2)
    yield database
    await database.close()


async def test_a_server_whose_clock_is_a_day_ahead_tells_the_same_time(database):
    clocks = [
        await DatabaseClock.open(database),
        await DatabaseClock.open(database.background, Ahead()),
    ]
    for clock in clocks:
        before = clock.now()
        told = await database.fetchval("select clock_timestamp()")
        after = clock.now()
        assert before - NEAR <= told <= after + NEAR
        assert clock.uncertainty_s < NEAR.total_seconds()
    assert abs(clocks[0].now() - clocks[1].now()) < NEAR


async def test_a_correction_leaves_the_time_as_it_is(database):
    clock = await DatabaseClock.open(database, Ahead())
    before = clock.now()
    await clock.correct()
    assert before <= clock.now() < before + timedelta(seconds=30)


async def test_it_is_told_also_after_the_database_has_gone(postgres_url):
    database = await Database.open(postgres_url, size=2)
    clock = await DatabaseClock.open(database)
    before = clock.now()
    await database.close()
    with pytest.raises(DatabaseGone):
        await clock.correct()
    assert clock.now() >= before
