from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from noetl.store.reading import Circuit
from tests.conformance.reading_suite import ReadingSuite

EMPTY = """
delete from noetl.event; delete from noetl.execution; delete from noetl.command;
delete from noetl.circuit"""
CIRCUITS = """
insert into noetl.circuit (tenant_id, path, state) values
    ('default', 'a/b.tsdb', '{"state": "open"}'), ('default', 'a/b', '{"state": "closed"}'),
    ('default', 'a/bc', '{}'), ('other', 'a/b', '{}')"""


class TestReading(ReadingSuite):
    pass


async def test_circuits_are_those_of_a_path_and_its_downstreams(shared_url):
    database = await Database.open(shared_url)
    try:
        await database.execute(EMPTY)
        await database.execute(CIRCUITS)
        assert await PostgresStore(database).reading.circuits("default", "a/b") == [
            Circuit(path="a/b", state={"state": "closed"}),
            Circuit(path="a/b.tsdb", state={"state": "open"}),
        ]
    finally:
        await database.close()
