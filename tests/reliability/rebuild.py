"""Read models made anew from nothing but the log, and how what is stored differs from them."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager

from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.engine.status import status_of
from noetl.server.ingest.programs import Programs
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from noetl.store.views import Past, change

PAGE = 1_000
APART = ("concurrency_key", "dedup_key", "kind")
"""What a request said and no event repeats."""
OF_COMMANDS = (
    "execution_id", "command_key", "step", "kind", "pool", "priority", "status", "attempt",
)  # fmt: skip
COMMANDS = "select command_id::text from noetl.command where execution_id = $1"
TIMERS = "select timer_key from noetl.timer where execution_id = $1"


@asynccontextmanager
async def readers(url):
    """What reads and folds the log of a database."""
    database = await Database.open(url, size=2)
    try:
        yield Rebuild(PostgresStore(database), database)
    finally:
        await database.close()


class Rebuild:
    """Folds logs as a server that has just come does."""

    def __init__(self, store, database):
        self._store = store
        self._database = database
        self._programs = Programs(store.catalog)

    async def differences(self, run):
        """What a run is by its log alone, and how its rows differ from that, in words."""
        row = await self._store.executions.get(run)
        state, log = await self._folded(row)
        ids = map(str, itertools.count(1))
        made = change(0, state, log, lambda: next(ids), Past())
        found = [
            f"{name} is {is_!r} and not {ought!r}"
            for name in row.__struct_fields__
            if name not in APART
            and (is_ := getattr(row, name)) != (ought := getattr(made.execution, name))
        ]
        found += await self._of_commands(run, made)
        return status_of(state), found + await self._of_timers(run, state)

    async def _of_commands(self, run, made):
        numbers = await self._database.fetch(COMMANDS, int(run))
        stored = [await self._store.commands.get(row[0]) for row in numbers]
        is_, ought = (
            {row.command_id: {name: getattr(row, name) for name in OF_COMMANDS} for row in rows}
            for rows in (stored, made.commands)
        )
        return [
            f"command {key} is {is_.get(key)} and not {ought.get(key)}"
            for key in sorted(is_.keys() | ought.keys())
            if is_.get(key) != ought.get(key)
        ]

    async def _of_timers(self, run, state):
        rows = await self._database.fetch(TIMERS, int(run))
        is_, ought = {row[0] for row in rows}, set(() if state.terminal else state.timers)
        return [] if is_ == ought else [f"timers are {sorted(is_)} and not {sorted(ought)}"]

    async def _folded(self, row):
        state = State(program=await self._programs.get(row.catalog_id))
        state.execution_id, log = row.execution_id, []
        while len(log) < row.last_seq:  # what comes late, behind the row, is not in it
            missing = min(PAGE, row.last_seq - len(log))
            log += await self._store.log.read(row.execution_id, len(log), missing)
        for item in log:
            fold(state, item)
        return state, log
