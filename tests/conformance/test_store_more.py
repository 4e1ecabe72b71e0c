import pytest

from noetl.store.memory.store import MemoryStore
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.conformance.store_suite_more import (
    CatalogListSuite,
    OutputPagesSuite,
    RolesSuite,
    RuntimesSuite,
    SchedulesSuite,
)

EMPTY = """
delete from noetl.catalog; delete from noetl.log; delete from noetl.runtime;
delete from noetl.schedule"""


@pytest.fixture(scope="module")
def shared_url(postgres_server):
    """One database for all tests here: making one costs more than any of them."""
    name = postgres_server.make()
    yield postgres_server.url_of(name)
    postgres_server.drop(name)


@pytest.fixture(params=["memory", "postgres"])
async def store(request):
    if request.param == "memory":
        yield MemoryStore()
        return
    database = await Database.open(request.getfixturevalue("shared_url"))
    await database.execute(EMPTY)
    store = PostgresStore(database)
    yield store
    await store.close()


class TestCatalogList(CatalogListSuite):
    pass


class TestOutputPages(OutputPagesSuite):
    pass


class TestRuntimes(RuntimesSuite):
    pass


class TestSchedules(SchedulesSuite):
    pass


class TestRoles(RolesSuite):
    pass
