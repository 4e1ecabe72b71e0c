"""Workers that were away longer than their leases: what they did is stored, and never applied."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from noetl.api.executions import Control
from tests.reliability.figures import reaches
from tests.reliability.oracle import judge
from tests.reliability.work import chain, fanout, sleeper


def is_alive(pid):
    return Path(f"/proc/{pid}").exists()


async def gone(pid):
    while is_alive(pid):  # noqa: ASYNC110 - the process of another process
        await asyncio.sleep(0.02)


async def pid_in(mark):
    """The process that a sleeping step has told."""
    while not mark.exists():  # noqa: ASYNC110 - written by another process
        await asyncio.sleep(0.02)
    return int(mark.read_text())


@pytest.fixture
def mark(stack):
    return stack.folder / "mark"


async def test_a_worker_that_was_frozen_stops_what_it_lost(stack, ledger, mark):
    stack.add_server()
    stack.add_worker("frozen", NOETL_PYTHON_SANDBOX="off")
    stack.add_worker("other", NOETL_PYTHON_SANDBOX="off")
    await stack.start("server", "frozen")
    work = sleeper(mark)
    run = await stack.begin(work, ledger)
    child = await pid_in(mark)
    os.kill(stack.pid("frozen"), signal.SIGSTOP)
    await stack.start("other")
    assert (await stack.ended(run)).status == "COMPLETED"
    assert is_alive(child)
    os.kill(stack.pid("frozen"), signal.SIGCONT)
    async with asyncio.timeout(10):
        await gone(child)
    more = chain(3)
    await judge(stack, ledger, {run: work, await stack.begin(more, ledger): more})
    rows = await stack.rows(run)
    done = [row["attempt"] for row in rows if row["event_type"] == "call.done"]
    assert done == [2]


@pytest.mark.parametrize("dies", [False, True])
async def test_what_ends_while_the_server_is_away_arrives_once(stack, ledger, dies):
    stack.add_server()
    stack.add_worker()
    await stack.start("server", "worker")
    ledger.gate.clear()
    work = fanout(8, in_flight=8)
    run = await stack.begin(work, ledger)
    await ledger.called(8)
    await stack.until(run, "command.started", 8)
    await stack.kill("server")
    ledger.gate.set()
    await reaches(stack, "worker", "noetl_worker_outbox_events", 8)
    if dies:
        await stack.kill("worker")
        await stack.start("server", "worker")
    else:
        await stack.start("server")
    await judge(stack, ledger, {run: work})
    rows = await stack.rows(run)
    assert [row["attempt"] for row in rows if row["event_type"] == "call.done"] == [1] * 8
    assert ledger.repeats == 0


async def test_cancelling_ends_a_sleeping_child_with_and_without_the_bus(stack, ledger, mark):
    stack.add_server()
    stack.add_worker(NOETL_PYTHON_SANDBOX="off")
    await stack.start("server", "worker")
    for within_s in (3, 8):
        run = await stack.begin(sleeper(mark), ledger)
        child = await pid_in(mark)
        async with asyncio.timeout(within_s):
            await stack.client().cancel(run, Control(reason="enough"))
            await gone(child)
        mark.unlink()
        assert (await stack.ended(run)).status == "CANCELLED"
        names = [row["event_type"] for row in await stack.rows(run)]
        assert names.count("playbook.cancelled") == 1
        assert "call.done" not in names
        if stack.parts["nats"].pid:
            await stack.kill("nats")
    assert stack.pid("worker")
