"""One PostgreSQL per test process, started on first use; every test has a database of its own.

It runs on a loop and a thread of its own, because it outlives the loops of the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from noetl.local.postgres import DURABLE, Postgres
from noetl.store.postgres.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

FAST = {
    **DURABLE,
    "shared_buffers": "32MB",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "autovacuum": "off",
}
TEMPLATE = "migrated_template"
MOST_USES = 40
"""What was deleted stays on the disk, so that a database does not last for ever."""
OTHERS = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1"
EMPTY = """
do $$
declare
    name text;
begin
    perform set_config('session_replication_role', 'replica', true); -- the audit forbids it
    for name in select tablename from pg_tables where schemaname = 'noetl' loop
        if name <> 'migration' then
            execute format('delete from noetl.%I', name);
        end if;
    end loop;
    insert into noetl.tenant (tenant_id, name) values ('default', 'default');
    insert into noetl.audit_head (seq, hash) values (0, decode(repeat('00', 32), 'hex'));
end
$$"""
SHAPE = """
select string_agg(name, ' ' order by name) from (
    select format('%s.%s:%s', relnamespace, relname, relnatts) as name from pg_class
    where relnamespace in ('noetl'::regnamespace, 'public'::regnamespace)
    union all
    select name || sha256 from noetl.migration
) as named"""


class Server:
    """A server and the databases that tests ask it for."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test postgres")
        self._thread.start()
        self._numbers = itertools.count(1)
        self._emptied: list[str] = []
        self._uses: dict[str, int] = {}
        try:
            self._call(self._started(folder))
        except BaseException:
            self._ended()
            raise

    async def _started(self, folder: Path) -> None:
        self.postgres = Postgres(folder / "pg", settings=FAST)
        await self.postgres.start()
        self._admin = await asyncpg.connect(self.postgres.url)
        await self._admin.execute(f"create database {TEMPLATE}")
        await migrate(self.url_of(TEMPLATE))
        connection = await asyncpg.connect(self.url_of(TEMPLATE))
        self._shape = await connection.fetchval(SHAPE)
        await connection.close()

    def url_of(self, name: str) -> str:
        return urlsplit(self.postgres.url)._replace(path=f"/{name}").geturl()

    def make(self, *, template: str = TEMPLATE) -> str:
        """A fresh database; its name."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self._call(self._admin.execute(f"create database {name} template {template}"))
        return name

    def drop(self, name: str) -> None:
        self._call(self._admin.execute(f"drop database if exists {name} with (force)"))

    def take(self) -> str:
        """A database with today's schema and no rows; its name."""
        return self._emptied.pop() if self._emptied else self.make()

    def give_back(self, name: str) -> None:
        """Keep a database for the next test, unless this one has changed more than rows."""
        self._uses[name] = self._uses.get(name, 0) + 1
        if self._uses[name] < MOST_USES and self._call(self._empty(name)):
            self._emptied.append(name)
        else:
            self.drop(name)

    async def _empty(self, name: str) -> bool:
        await self._admin.fetch(OTHERS, name)
        try:
            connection = await asyncpg.connect(self.url_of(name))
        except asyncpg.InvalidCatalogNameError:
            return False  # the test dropped it
        try:
            await connection.execute(EMPTY)
            return bool(await connection.fetchval(SHAPE) == self._shape)
        finally:
            await connection.close()

    def stop(self) -> None:
        async def stopped() -> None:
            await self._admin.close()
            await self.postgres.stop()

        try:
            self._call(stopped())
        finally:
            self._ended()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _ended(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that every user may pass (root's server runs as another); pytest's are closed."""
    made = Path(tempfile.mkdtemp(prefix="noetl-pg-"))
    made.chmod(0o711)
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server in a folder of its own, which goes with it."""
    with folder() as home:
        server = Server(home)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def postgres_home() -> Iterator[Path]:
    """A folder for a server of one test alone."""
    with folder() as home:
        yield home


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server of this test process."""
    with running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Server) -> Iterator[str]:
    """A database with today's schema and nothing in it."""
    name = postgres_server.take()
    yield postgres_server.url_of(name)
    postgres_server.give_back(name)


@pytest.fixture
def empty_postgres_url(postgres_server: Server) -> Iterator[str]:
    """A database without a schema."""
    name = postgres_server.make(template="template1")
    yield postgres_server.url_of(name)
    postgres_server.drop(name)
