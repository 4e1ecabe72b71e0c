"""The server and the worker die exactly between two of their steps."""

from __future__ import annotations

import asyncio

import pytest

from tests.reliability.oracle import judge
from tests.reliability.work import chain, fanout


async def dies_at(stack, name, point):
    """Start a part that dies when it comes to a point, and wait for that."""
    part = stack.parts[name]
    sound = part.environ
    part.environ = sound | {"NOETL_FAILPOINTS": f"{point}=crash"}
    await part.spawn()  # it may die before it is ready
    async with asyncio.timeout(20):
        assert await part.wait() == -9, stack.last(name)
    part.environ = sound


@pytest.mark.parametrize("shape", [chain, fanout])
async def test_the_server_dies_around_its_commit(stack, ledger, shape):
    stack.add_server()
    stack.add_worker()
    await stack.start("server", "worker")
    work = shape()
    run = await stack.begin(work, ledger)
    await ledger.reaches(3)
    await stack.kill("server")
    for point in ("server.append.before_commit", "server.append.after_commit", "server.publish"):
        await dies_at(stack, "server", point)
    await stack.start("server")
    await judge(stack, ledger, {run: work})


async def test_the_worker_dies_around_its_tool_and_its_report(stack, ledger):
    stack.add_server()
    stack.add_worker(slots=1)
    await stack.start("server", "worker")
    work = chain()
    run = await stack.begin(work, ledger)
    for point in ("worker.tool.end", "worker.report.after"):
        await ledger.reaches(len(ledger.rows) + 3)
        await stack.parts["worker"].stop(10)  # in good order: nothing is lost yet
        await dies_at(stack, "worker", point)
        await stack.start("worker")
    await judge(stack, ledger, {run: work})
    assert 1 <= ledger.repeats <= 2
