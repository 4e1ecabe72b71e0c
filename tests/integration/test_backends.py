"""The machine number of a server, on a real database."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from noetl.clock import SystemClock
from noetl.server.backends import KIND, Seat, SeatLost
from noetl.settings import ServerSettings
from noetl.store.base import RuntimeRow
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore

LATER = "2126-01-01T00:00:00.000000Z"


@asynccontextmanager
async def opened(url: str):
    database = await Database.open(url)
    try:
        yield PostgresStore(database)
    finally:
        await database.close()


def seat(store: PostgresStore, port: int, **more: int) -> Seat:
    settings = ServerSettings(database_url="postgresql://x", port=port, **more)
    return Seat(settings, store, SystemClock())


async def test_servers_have_numbers_of_their_own_and_keep_them(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        first, second = seat(store, 8001), seat(store, 8002)
        numbers = (await first.take(), await second.take())
        assert numbers[0] != numbers[1]
        assert await seat(store, 8001).take() == numbers[0]
        assert len(await store.runtimes.listed(KIND)) == 2
        await first.leave()
        await second.leave()
        assert await store.runtimes.listed(KIND) == []


async def test_a_number_that_was_told_is_taken(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        assert await seat(store, 8001, machine_id=1000).take() == 1000


async def test_a_forgotten_server_comes_back_unless_its_number_is_taken(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        first = seat(store, 8001)
        number = await first.take()
        await store.runtimes.forget(LATER)
        assert await first.take() == number
        await store.runtimes.forget(LATER)
        other = RuntimeRow(
            runtime_id="7", name="other", kind="worker_pool", heartbeat=LATER, created_at=LATER
        )
        joined = await store.runtimes.join(other, silent_since="2000-01-01T00:00:00.000000Z")
        assert joined.machine_id == number
        with pytest.raises(SeatLost):
            await first.take()
