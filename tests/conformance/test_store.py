import pytest

from noetl.store.memory.store import MemoryStore
from tests.conformance.store_suite import (
    CallbacksSuite,
    CatalogSuite,
    ClaimsSuite,
    ExecutionsSuite,
    LeasesSuite,
    LogSuite,
    OutboxSuite,
    OutputSuite,
    TimersSuite,
)

BACKENDS = {"memory": MemoryStore}


@pytest.fixture(params=sorted(BACKENDS))
def store(request):
    return BACKENDS[request.param]()


class TestLog(LogSuite):
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
