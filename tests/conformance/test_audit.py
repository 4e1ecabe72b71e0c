import pytest

from noetl.store.memory.store import MemoryStore
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.conformance.audit_suite import AuditSuite

EMPTY = """
alter table noetl.audit disable trigger user;
delete from noetl.audit;
alter table noetl.audit enable trigger user;
update noetl.audit_head set seq = 0, hash = decode(repeat('00', 32), 'hex')"""


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


class TestAudit(AuditSuite):
    pass
