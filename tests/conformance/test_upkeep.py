import pytest

from noetl.store.memory.store import MemoryStore
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.conformance.upkeep_suite import (
    ManySchedulesSuite,
    ProjectionsSuite,
    PublicationsSuite,
    UpkeepSuite,
)


@pytest.fixture(params=["memory", "postgres"])
async def store(request):
    if request.param == "memory":
        yield MemoryStore()
        return
    database = await Database.open(request.getfixturevalue("postgres_url"))
    made = PostgresStore(database)
    yield made
    await made.close()


class TestManySchedules(ManySchedulesSuite):
    pass


class TestPublications(PublicationsSuite):
    pass


class TestUpkeep(UpkeepSuite):
    pass


class TestProjections(ProjectionsSuite):
    pass
