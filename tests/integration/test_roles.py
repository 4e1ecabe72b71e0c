"""Roles of servers that share a database, when a server, its connection or the network fails."""

import asyncio
import contextlib
import sys
from urllib.parse import urlsplit

import asyncpg
import pytest

from noetl.store.errors import DatabaseGone
from noetl.store.postgres.database import Database
from noetl.store.postgres.roles import PostgresRoles

HOLDER = """
import asyncio, sys
from noetl.store.postgres.database import Database
from noetl.store.postgres.roles import PostgresRoles

async def main():
    database = await Database.open(sys.argv[1])
    async with PostgresRoles(database).lead("loops"):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
LEADERS = """
select pid from pg_locks where locktype = 'advisory' and granted
    and database = (select oid from pg_database where datname = current_database())"""
WAITING = """
select count(*) from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())"""

END_OTHERS = """
select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'
    and database = (select oid from pg_database where datname = current_database())"""
INSIDE = "inside"


@contextlib.asynccontextmanager
async def opened(url):
    database = await Database.open(url, size=2)
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
async def servers(postgres_url):
    """Two servers of one cluster."""
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        yield one, two


async def until_waiting(database, number):
    """Ask until it is so: the server tells nobody."""
    while await database.fetchval(WAITING) != number:
        pass


async def lead(database, taken, ended):
    async with PostgresRoles(database).lead("loops"):
        taken.set()
        await ended.wait()


async def test_a_lost_connection_is_a_lost_role_and_another_takes_it(servers):
    one, two = servers
    taken, ended = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        async with PostgresRoles(one).lead("loops") as lost:
            group.create_task(lead(two, taken, ended))
            await until_waiting(one, 1)
            assert not taken.is_set()
            [holder] = await one.fetch(LEADERS)
            await one.execute("select pg_terminate_backend($1)", holder["pid"])
            await lost.wait()
        await taken.wait()
        ended.set()
    async with PostgresRoles(one).lead("loops") as lost:
        assert not lost.is_set()


async def test_a_process_that_is_killed_leaves_its_role(servers, postgres_url):
    one, _ = servers
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, postgres_url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert await holder.stdout.readline() == b"held\n"
        taken, ended = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(lead(one, taken, ended))
        await until_waiting(one, 1)
    finally:
        holder.kill()
        await holder.wait()
    await taken.wait()
    ended.set()
    await task


async def test_one_who_gave_up_waiting_never_holds_the_role(servers):
    one, two = servers
    taken, ended = asyncio.Event(), asyncio.Event()
    async with PostgresRoles(one).lead("loops"):
        task = asyncio.create_task(lead(two, taken, ended))
        await until_waiting(one, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_waiting(one, 0)
    await until_free(one)
    assert not taken.is_set()


async def test_a_network_that_swallows_everything_is_noticed(postgres_url):
    async with swallowing(postgres_url) as (url, swallows), opened(url) as database:
        async with PostgresRoles(database, probe_s=0.1).lead("loops") as lost:
            swallows.set()
            await lost.wait()
        swallows.clear()


async def test_a_name_is_held_by_one_server_at_a_time(servers):
    inside, most = 0, 0

    async def one(roles):
        nonlocal inside, most
        async with roles.exclusive("concurrency:key"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    roles = [PostgresRoles(database) for database in servers]
    await asyncio.gather(*(one(roles[n % 2]) for n in range(20)))
    assert (inside, most) == (0, 1)
    assert await servers[0].fetch(LEADERS) == []


async def test_one_who_gave_up_a_name_leaves_nothing(servers):
    one, two = servers
    reached = asyncio.Event()

    async def holding(database):
        async with PostgresRoles(database).exclusive("key"):
            reached.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(holding(one))
    await reached.wait()
    waiter = asyncio.create_task(holding(two))
    await until_waiting(one, 1)
    for task in (waiter, holder):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with PostgresRoles(two).exclusive("key"):
        pass
    await until_free(one)


async def test_waiting_for_a_name_leaves_connections_for_others(servers):
    one, two = servers
    roles = PostgresRoles(one)

    async def waiting(key):
        async with roles.exclusive(key):
            pass

    async with asyncio.TaskGroup() as group, PostgresRoles(two).exclusive("held"):
        for number in range(50):
            group.create_task(waiting("held" if number % 2 else f"free {number}"))
        await until_waiting(one, 1)
        assert await one.background.fetchval("select 1") == 1


async def failing(holding, database):
    async with holding:
        await database.execute(END_OTHERS)
        raise TimeoutError(INSIDE)


async def test_what_is_raised_inside_is_told_as_it_is(servers):
    one, _ = servers
    roles = PostgresRoles(one)
    for holding in (roles.lead("loops"), roles.exclusive("key")):
        with pytest.raises(TimeoutError, match="inside"):
            await failing(holding, one)
    await until_free(one)


async def test_a_name_whose_connection_was_lost_is_told_to_its_holder(servers):
    one, two = servers
    with pytest.raises(DatabaseGone):
        async with PostgresRoles(one).exclusive("key"):
            await two.execute(END_OTHERS)
    async with PostgresRoles(one).exclusive("key"):
        pass


async def until_free(database):
    while await database.fetch(LEADERS):
        pass


@contextlib.asynccontextmanager
async def swallowing(url):
    """The same database through a wire that can be told to swallow what it is given."""
    swallows = asyncio.Event()
    target = await asyncpg.connect(url)
    folder = await target.fetchval("show unix_socket_directories")
    port = await target.fetchval("show port")
    await target.close()
    writers = []

    async def pump(reader, writer):
        while data := await reader.read(65536):
            if not swallows.is_set():
                writer.write(data)

    async def joined(reader, writer):
        inner, outer = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        writers.extend((writer, outer))
        await asyncio.wait(
            [asyncio.create_task(pump(reader, outer)), asyncio.create_task(pump(inner, writer))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        outer.close()
        writer.close()

    server = await asyncio.start_server(joined, "127.0.0.1", 0)
    async with server:
        host, number = server.sockets[0].getsockname()
        parts = urlsplit(url)
        who = parts.netloc.partition("@")[0]
        yield parts._replace(netloc=f"{who}@{host}:{number}", query="").geturl(), swallows
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
