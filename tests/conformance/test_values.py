import pytest

from noetl.store.memory.store import MemoryStore
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.conformance.values_suite import (
    ExportsSuite,
    HeldSuite,
    RequestsSuite,
    ResultsSuite,
    VariablesSuite,
)

EMPTY = """
delete from noetl.transient; delete from noetl.result; delete from noetl.request_result;
delete from noetl.callback_held; delete from noetl.event; delete from noetl.execution"""


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


class TestVariables(VariablesSuite):
    pass


class TestResults(ResultsSuite):
    pass


class TestRequests(RequestsSuite):
    pass


class TestHeld(HeldSuite):
    pass


class TestExports(ExportsSuite):
    pass
