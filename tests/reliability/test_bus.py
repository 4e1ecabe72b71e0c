"""The bus only tells earlier what the store knows: without it, and after it lost all, runs end."""

from __future__ import annotations

import shutil

from tests.reliability.oracle import judge
from tests.reliability.wire import Wire
from tests.reliability.work import chain, fanout


async def test_the_store_of_the_bus_is_wiped_and_runs_end_meanwhile(stack, ledger):
    stack.add_server()
    stack.add_worker()
    await stack.start("server", "worker")
    many, steps = fanout(200), chain(20)
    runs = {await stack.begin(many, ledger): many, await stack.begin(steps, ledger): steps}
    await ledger.reaches(60)
    await stack.kill("nats")
    shutil.rmtree(stack.nats.store_dir)
    for run in runs:
        await stack.ended(run)
    before = len(ledger.rows)
    runs[await stack.begin(many, ledger)] = many  # nobody hints at it
    await ledger.reaches(before + 60)
    await stack.start("nats")  # empty: streams and consumers are made again
    runs[await stack.begin(steps, ledger)] = steps
    await judge(stack, ledger, runs, is_patient=True)
    assert ledger.repeats == 0


async def test_a_lost_connection_to_the_bus_is_made_again_and_nothing_runs_twice(stack, ledger):
    stack.add_server()
    async with Wire(stack.nats.port).open() as wire:
        url = stack.nats.url.replace(f":{stack.nats.port}", f":{wire.port}")
        stack.add_worker(NOETL_NATS_URL=url)
        await stack.start("server", "worker")
        work, runs = chain(3), {}
        for at in range(4):
            if at == 2:
                wire.cut()
                wire.heal()
            run = await stack.begin(work, ledger)
            runs[run] = work
            assert (await stack.ended(run)).status == "COMPLETED"
        await wire.carries()
        await judge(stack, ledger, runs)
    assert ledger.repeats == 0
