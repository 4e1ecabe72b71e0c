"""The example of the postgres tool on a real database: COPY, a cursor loop, an error arc."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from noetl.api.credentials import CredentialPut
from noetl.clock import SystemClock
from noetl.engine.rows import to_row
from noetl.ids import Ids
from noetl.local.launch import Job, finish, start
from noetl.local.parts import Parts
from noetl.local.run import stack
from noetl.local.watch import Watch
from noetl.local.workshop import workshop
from tests.servers.sql_stage import fields_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres_queue.yaml"
LETTERS = ["1,sent to Ada", "2,sent to Bo; DROP TABLE letter", "3,sent to Cy", "id,state"]


async def ran(file, fields):
    """How a run ends, and the events that it made, as text."""
    clock, text = SystemClock(), file.read_text()
    watch = Watch()
    watch.is_kept = True
    job = Job(file=file.name, text=text, payload={}, timeout_s=50)
    put = CredentialPut(name="letters_db", type="postgres", data=fields)
    async with workshop(1) as shop, shop.tools(file.parent, clock) as tools:
        parts = Parts(
            watch=watch, folder=file.parent, home=file.parent, tools=tools, credentials=(put,),
            clock=clock, ids=Ids(clock),
        )  # fmt: skip
        async with stack(parts, text) as running:
            await start(running, job)
            done = await finish(running, job, asyncio.Event())
    return done.run, str([to_row(item) for item in watch.events])


@pytest.fixture
def file(tmp_path):
    return Path(shutil.copy(EXAMPLE, tmp_path))


async def test_the_queue_is_worked_through(file, empty_postgres_url):
    fields = fields_of(empty_postgres_url)
    run, events = await ran(file, fields)

    assert (run.status, run.error) == ("COMPLETED", None)
    assert sorted(run.result.pop("csv").splitlines()) == LETTERS
    assert run.result == {"sent": 3, "rows": 3, "was_known": True}
    assert "23505" in events
    assert fields["password"] not in events


async def test_a_wrong_password_fails_the_run_and_is_seen_nowhere(file, empty_postgres_url):
    canary = "canary-91d2-letters"
    run, events = await ran(file, fields_of(empty_postgres_url) | {"password": canary})

    assert (run.status, run.error["kind"], run.error["code"]) == ("FAILED", "auth", "PG_28P01")
    assert canary not in events
