import pytest

from noetl.store.memory.store import MemoryStore
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.conformance.store_suite import (
    CallbacksSuite,
    CatalogSuite,
    ClaimsSuite,
    ExecutionsSuite,
    HoldingSuite,
    LeasesSuite,
    LogSuite,
    OutboxSuite,
    OutputSuite,
    TimersSuite,
)

BACKENDS = ("memory", "postgres")


@pytest.fixture(params=BACKENDS)
async def store(request):
    if request.param == "memory":
        yield MemoryStore()
        return
    database = await Database.open(request.getfixturevalue("postgres_url"))
    made = PostgresStore(database)
    yield made
    await made.close()


class TestLog(LogSuite):
    pass


class TestHolding(HoldingSuite):
    pass


class TestExecutions(ExecutionsSuite):
    pass


class TestClaims(ClaimsSuite):
    pass


class TestLeases(LeasesSuite):
    pass


class TestTimers(TimersSuite):
    pass


class TestOutbox(OutboxSuite):
    pass


class TestCatalog(CatalogSuite):
    pass


class TestCallbacks(CallbacksSuite):
    pass


class TestOutput(OutputSuite):
    pass
