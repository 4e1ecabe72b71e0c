"""The catalog of a server on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.catalog import CatalogQuery, Register, Removal, RunTests
from noetl.api.executions import Execute
from noetl.api.problems import Refused
from noetl.local.trials.player import TrialPlayer
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig

PATH = "demo/it"


@pytest.fixture
async def r(postgres_url):
    database = await Database.open(postgres_url, size=4)
    store = PostgresStore(database)
    async with rig(store) as made:
        made.database = database
        yield made
    await store.close()


async def refused(call):
    with pytest.raises(Refused) as caught:
        await call
    return caught.value.problem.status, caught.value.code


async def test_a_version_with_runs_is_archived_and_comes_back(r):
    first = await r.client.register(Register(content=HEAD + ONE_STEP))
    run = (await r.client.execute(Execute(path=PATH))).execution_id
    await r.client.register(Register(content=HEAD + TWO_STEPS))
    gone = await r.client.delete_document(Removal(path=PATH))
    assert (gone.deleted, gone.archived, gone.count) == ((2,), (1,), 2)
    assert await refused(r.client.execute(Execute(path=PATH))) == (404, "unknown_path")
    again = await r.client.execute(Execute(catalog_id=first.catalog_id))
    assert (again.version, (await r.client.execution(run)).path) == (1, PATH)
    assert (await r.client.restore_document(Removal(path=PATH))).restored == (1,)
    assert (await r.client.execute(Execute(path=PATH))).version == 1
    page = await r.client.versions(PATH)
    assert [(one.version, one.active, one.execution_count) for one in page.items] == [(1, True, 3)]
    assert (await r.client.register(Register(content=HEAD + TWO_STEPS))).version == 3


async def test_the_same_text_is_one_version_whatever_its_line_ends(r):
    texts = [HEAD + ONE_STEP, (HEAD + ONE_STEP).replace("\n", "\r\n")] * 4
    made = await asyncio.gather(*(r.client.register(Register(content=text)) for text in texts))
    assert {one.version for one in made} == {1}
    assert sum(one.changed for one in made) == 1


async def test_one_of_several_writers_on_top_of_a_version_wins(r):
    await r.client.register(Register(content=HEAD + ONE_STEP))
    texts = [HEAD + f"workload: {{n: {n}}}" + ONE_STEP for n in range(6)]
    writers = (r.client.register(Register(content=text, if_version=1)) for text in texts)
    ended = await asyncio.gather(*writers, return_exceptions=True)
    refusals = [one.code for one in ended if isinstance(one, Refused)]
    assert refusals == ["version_conflict"] * 5
    assert (await r.client.resolve(PATH)).version == 2


async def test_promoting_and_comparing(r):
    await r.client.register(Register(content=HEAD + ONE_STEP))
    await r.client.register(Register(content=HEAD + TWO_STEPS, activate=False))
    assert (await r.client.resolve(PATH)).version == 1
    assert (await r.client.promote(PATH, 2)).previous == 1
    found = await r.client.difference(PATH)
    assert (found.from_, found.to, found.steps.added) == (1, 2, ("end",))
    page = await r.client.catalog(CatalogQuery(q="IT", content=True))
    assert [entry.content for entry in page.entries] == [HEAD + TWO_STEPS]


async def test_a_gate_is_played_in_a_child_of_the_server(postgres_url):
    database = await Database.open(postgres_url, size=4)
    store = PostgresStore(database)
    test = "apiVersion: noetl.io/v2\nkind: PlaybookTest\nmetadata: {name: t, path: demo/t}\n"
    spec = """
spec:
  playbook: demo/it
  gate: true
  cases:
    - {name: asks twice, mocks: [{step: start, return: 1}], expect: {steps: {end: COMPLETED}}}
"""
    async with rig(store, player=TrialPlayer(must_be_shut_in=True)) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        await r.client.register(Register(content=test + spec))
        other = HEAD + "workload: {n: 1}" + ONE_STEP
        assert await refused(r.client.register(Register(content=other))) == (409, "test_gate")
        noop = "{kind: noop}"
        steps = TWO_STEPS.replace('{kind: python, code: "return 1"}', noop)
        assert (await r.client.register(Register(content=HEAD + steps))).version == 2
        done = await r.client.run_tests("demo/t", RunTests())
        assert (done.passed, done.failed) == (1, 0)
        assert await refused(r.client.promote(PATH, 1)) == (409, "test_gate")
    await store.close()


async def test_runs_are_counted_and_lists_are_read_by_an_index(r):
    database = r.database
    await database.execute(
        """insert into noetl.catalog (catalog_id, path, version, kind, content, digest, meta,
            active, activation)
        select n, 'big/' || lpad(n::text, 6, '0'), 1, 'playbook', 'x', '', '{}', true, 1
        from generate_series(1, 20000) as n"""
    )
    await database.execute(
        """insert into noetl.execution (execution_id, catalog_id, path, version, status, last_seq,
            last_event_id, pool, priority, started_at, updated_at)
        select n, 1 + n % 3, 'big/000001', 1, 'COMPLETED', 1, 1, 'shared', 5, now(), now()
        from generate_series(1, 30000) as n"""
    )
    await database.execute("analyze noetl.catalog")
    await database.execute("analyze noetl.execution")
    page = await r.client.versions("big/000001")
    assert page.items[0].execution_count == 10_000
    last = await r.client.catalog(CatalogQuery(path_prefix="big/01999", limit=3))
    assert [entry.path for entry in last.entries] == ["big/019990", "big/019991", "big/019992"]
    plan = await database.background.fetch(
        """explain select * from noetl.catalog where tenant_id = 'default' and removed_at is null
            and path collate "C" >= 'big/0199' and path collate "C" < 'big/0199~' and active
        order by path collate "C", version desc limit 50"""
    )
    assert "catalog_latest" in str(plan) or "catalog_by_path" in str(plan)
    counted = await database.background.fetch(
        "explain select count(*) from noetl.execution where catalog_id = 9"
    )
    assert "execution_by_document" in str(counted)
