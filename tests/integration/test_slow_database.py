"""A database that is too slow, locked or read only for a while: told as such, and outlived."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import pytest

from noetl.api.problems import Refused
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.errors import DatabaseBusy, DatabaseGone
from noetl.store.postgres.database import Connections, Database
from noetl.store.postgres.pool import Pool
from noetl.store.postgres.store import PostgresStore
from noetl.store.postgres.upkeep import PostgresUpkeep
from noetl.store.upkeep import ROWS
from tests.unit.server.rig import ONE_STEP, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOCKED = "lock table noetl.schedule in access exclusive mode"
RAISES = "do $$ begin raise exception using errcode = '{}'; end $$"
NEXT_YEAR = "select noetl.ensure_partitions(now() + interval '1 year', 0)"


def pool(url: str, size: int = 2, **settings: str) -> Pool:
    return Pool(url, least=1, most=size, settings=settings)


@asynccontextmanager
async def connected(url: str, **settings: str) -> AsyncIterator[Connections]:
    lent = pool(url, **settings)
    await lent.open()
    try:
        yield Connections(lent)
    finally:
        await lent.close()


@asynccontextmanager
async def locked(url: str, sql: str) -> AsyncIterator[None]:
    """Somebody who has locked a table and does not end."""
    held = await asyncpg.connect(url)
    try:
        async with held.transaction():
            await held.execute(sql)
            yield
    finally:
        await held.close()


async def until_waiting(url: str) -> None:
    """Until a statement waits for the lock, and then until none does."""
    count = """
        select count(*) from pg_locks where not granted and relation = 'noetl.schedule'::regclass"""
    watching = await asyncpg.connect(url)
    try:
        for is_waiting in (True, False):
            while bool(await watching.fetchval(count)) is not is_waiting:  # noqa: ASYNC110 - of a server
                await asyncio.sleep(0.01)
    finally:
        await watching.close()


@asynccontextmanager
async def impatient(url: str) -> AsyncIterator[Rig]:
    """A server whose statements may take a fifth of a second."""
    patience = {"statement_timeout": "200ms", "timezone": "UTC"}
    main, background = pool(url, 4, **patience), pool(url, 4, **patience)
    await main.open()
    await background.open()
    database = Database(url, main, background)
    try:
        clock, store, bus = SystemClock(), PostgresStore(database), MemoryBus()
        ids = Ids(clock, 1)
        parts = ServerParts(
            store=store, bus=bus, blobs=MemoryBlobs(), clock=clock, ids=ids, is_alone=False
        )
        async with create_server(parts) as made:
            yield Rig(made, store, ids, bus)
    finally:
        await database.close()


async def test_a_statement_that_takes_too_long_may_be_tried_again(postgres_url: str) -> None:
    async with connected(postgres_url, statement_timeout="50ms") as database:
        with pytest.raises(DatabaseGone, match="did not answer in time") as caught:
            await database.fetchval("select pg_sleep(60)")
        assert (caught.value.code, caught.value.status, caught.value.retryable) == (
            "db_unavailable",
            503,
            True,
        )
        assert await database.fetchval("select 1") == 1


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("57014", DatabaseGone),
        ("25006", DatabaseGone),
        ("55P03", DatabaseBusy),
        ("53000", DatabaseBusy),
        ("53200", DatabaseBusy),
        ("53300", DatabaseBusy),
        ("53400", DatabaseBusy),
    ],
)
async def test_what_passes_by_itself_may_be_tried_again(
    postgres_url: str, state: str, error: type[Exception]
) -> None:
    async with connected(postgres_url) as database:
        with pytest.raises(error):
            await database.execute(RAISES.format(state))


async def test_a_session_of_a_server_that_became_read_only_is_not_used_again(
    postgres_url: str,
) -> None:
    async with connected(postgres_url) as database:
        pid = await database.fetchval("select pg_backend_pid()")
        await database.execute("set default_transaction_read_only = on")
        with pytest.raises(DatabaseGone, match="takes no writes now"):
            await database.execute("delete from noetl.timer")
        assert await database.execute("delete from noetl.timer") == "DELETE 0"
        assert await database.fetchval("select pg_backend_pid()") != pid


async def test_a_server_outlives_statements_that_take_too_long(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with impatient(postgres_url) as r:
        async with locked(postgres_url, LOCKED):
            await until_waiting(postgres_url)
            with pytest.raises(Refused) as caught:
                await r.client.schedules()
            told = caught.value.problem
            assert (told.status, told.code, told.retry_after) == (503, "db_unavailable", 1)
        failed = [item.loop for item in caplog.records if item.msg == "a loop failed and goes on"]
        assert failed == ["leader: schedules"]
        assert (await r.client.schedules()).items == ()
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.done(work)
        assert await r.status(run) == "COMPLETED"


async def test_months_are_made_without_holding_everybody_up(postgres_url: str) -> None:
    async with (
        connected(postgres_url, statement_timeout="20s") as database,
        locked(postgres_url, "select from noetl.event"),
    ):
        with pytest.raises(DatabaseBusy, match="lock timeout"):
            await database.fetchval(NEXT_YEAR)


async def test_results_of_old_runs_go_in_pieces(postgres_url: str) -> None:
    database = await Database.open(postgres_url, size=2)
    try:
        await database.execute(
            """insert into noetl.result (result_id, execution_id, name, ref, scope, sha256, bytes)
            select n, 7, 'x', n::text, case when n % 2 = 0 then 'permanent' end, '', 0
            from generate_series(1, 2 * $1::int + 4) as n""",
            ROWS,
        )
        # No statement may delete more than a piece.
        await database.execute(
            f"""create function noetl.not_many() returns trigger language plpgsql as $$
            begin
                if (select count(*) from gone) > {ROWS} then raise exception 'many'; end if;
                return null;
            end $$"""  # noqa: S608 - made of constants
        )
        await database.execute(
            """create trigger not_many after delete on noetl.result
            referencing old table as gone for each statement execute function noetl.not_many()"""
        )
        assert await PostgresUpkeep(database).forget_runs(["7"]) == ROWS + 2
        kept = await database.fetchval("select count(*) from noetl.result")
        assert kept == ROWS + 2
        await database.execute("drop function noetl.not_many() cascade")
    finally:
        await database.close()
