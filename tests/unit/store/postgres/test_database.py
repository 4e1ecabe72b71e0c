"""What the pools of connections know of the database."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import asyncpg
import pytest

from noetl.store.errors import StorageFull
from noetl.store.postgres.database import FULL_S, Connections


class Pool:
    """A pool whose database has no space left."""

    @asynccontextmanager
    async def lend(self):
        yield self

    async def execute(self, sql):
        raise asyncpg.DiskFullError(sql)


class Clock:
    """Time that stands still until it is moved."""

    at = 100.0

    def monotonic(self):
        return self.at


def test_a_database_that_had_no_space_counts_as_full_for_a_while():
    clock = Clock()
    connections = Connections(Pool(), clock)
    assert not connections.is_full
    with pytest.raises(StorageFull):
        asyncio.run(connections.execute("insert"))
    assert connections.is_full
    clock.at += FULL_S
    assert not connections.is_full
