import pytest

from noetl.store.memory.store import MemoryStore
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore

pytest.register_assert_rewrite(
    "tests.conformance.audit_suite",
    "tests.conformance.catalog_suite",
    "tests.conformance.identity_suite",
    "tests.conformance.reading_suite",
    "tests.conformance.secrets_suite",
    "tests.conformance.store_suite",
    "tests.conformance.store_suite_more",
    "tests.conformance.subscriptions_suite",
    "tests.conformance.tools_suite",
    "tests.conformance.upkeep_suite",
    "tests.conformance.values_suite",
)


@pytest.fixture(scope="module")
def shared_url(postgres_server):
    """One database for all tests of a module: making one costs more than any of them."""
    name = postgres_server.make()
    yield postgres_server.url_of(name)
    postgres_server.drop(name)


@pytest.fixture(params=["memory", "postgres"])
async def store(request):
    """A store of each kind; the module says how its shared database is emptied (`EMPTY`)."""
    if request.param == "memory":
        yield MemoryStore()
        return
    database = await Database.open(request.getfixturevalue("shared_url"))
    await database.execute(request.module.EMPTY)
    made = PostgresStore(database)
    yield made
    await made.close()
