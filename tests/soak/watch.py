"""Looks at every process of a stack each few seconds."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import asyncpg

from bench.processes import cpu_s, trees
from noetl.errors import NoetlError
from tests.soak.processes import look

EVERY_S = 2.0
PARTS = ("server", "worker", "system", "gateway", "listener", "nats", "postgres")
_CONNECTIONS = """
select count(*) from pg_stat_activity
where backend_type = 'client backend' and pid <> pg_backend_pid()
"""
_CLEARING = "select count(*) from pg_stat_activity where backend_type = 'autovacuum worker'"
_DEAD = "select relname, n_live_tup, n_dead_tup from pg_stat_user_tables where schemaname = 'noetl'"


class Watch:
    """Samples, oldest first: seconds since the begin, and what each process held."""

    def __init__(self, stack):
        self.samples = []
        self.phase = "load"
        self._stack = stack
        self._began = asyncio.get_running_loop().time()

    @property
    def at(self):
        return asyncio.get_running_loop().time() - self._began

    async def run(self):
        while True:
            await self._sample()
            await asyncio.sleep(EVERY_S)

    async def _sample(self):
        found = {}
        for name in PARTS:
            pid = self._pid(name)
            seen = None if pid is None else look(pid)
            if seen is not None:
                found[name] = asdict(seen)
        is_idle = self.phase == "idle"  # then to ask is work, too
        if "server" in found and not is_idle:
            tasks = await self._tasks()
            if tasks is not None:
                found["server"]["tasks"] = tasks
        if "postgres" in found and not is_idle:
            connections = await self._connections()
            if connections is not None:
                found["postgres"]["connections"] = connections
        self.samples.append({"at": round(self.at, 2), "phase": self.phase, "processes": found})

    def _pid(self, name):
        if name == "postgres":
            return self._stack.postgres.pid
        return self._stack.parts[name].pid

    async def _tasks(self):
        try:
            return (await self._stack.client().server_status())["process"]["tasks"]
        except (NoetlError, OSError):
            return None  # it is about to be killed, or comes back

    async def _connections(self):
        try:
            async with asyncio.timeout(EVERY_S):
                connection = await asyncpg.connect(self._stack.postgres.url)
                try:
                    return await connection.fetchval(_CONNECTIONS)
                finally:
                    await connection.close()
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return None

    def used_s(self):
        """Processor seconds of all processes and their children so far, by part."""
        roots = {name: pid for name in PARTS if (pid := self._pid(name)) is not None}
        return {name: cpu_s(pids) for name, pids in trees(roots).items()}


async def tables(stack):
    """Live and dead rows by table."""
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        rows = await connection.fetch(_DEAD)
    finally:
        await connection.close()
    return {row["relname"]: (row["n_live_tup"], row["n_dead_tup"]) for row in rows}


async def is_clearing(stack):
    """Whether the database is clearing dead rows away."""
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        return await connection.fetchval(_CLEARING) > 0
    finally:
        await connection.close()


def store_mib(stack):
    """What the bus keeps on the disk."""
    folder = stack.folder / "nats"
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()) / 1024 / 1024
