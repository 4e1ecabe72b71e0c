"""Two servers on one database, workers that leave or poison."""

from __future__ import annotations

import signal

from tests.reliability.oracle import judge
from tests.reliability.work import chain, fanout


async def test_one_of_two_servers_is_killed_and_the_other_ends_all_runs(stack, ledger):
    for name in ("a", "b"):
        stack.add_server(f"server-{name}")
        stack.add_worker(f"worker-{name}", server=f"server-{name}", slots=4)
    await stack.start("server-a", "server-b", "worker-a", "worker-b")
    works = [fanout(200), chain(20), fanout(200), chain(20)]
    runs = {}
    for at, work in enumerate(works):
        runs[await stack.begin(work, ledger, f"server-{'ab'[at % 2]}")] = work
    await ledger.reaches(140)
    await stack.kill("server-a")
    for run in runs:
        await stack.ended(run, "server-b")
    await stack.start("server-a")
    await judge(stack, ledger, runs, "server-b")
    await judge(stack, ledger, runs, "server-a")
    names = {
        row["worker_id"]
        for run in runs
        for row in await stack.rows(run, "server-b")
        if row["event_type"] == "command.claimed"
    }
    assert names == {"worker-a", "worker-b"}


async def test_a_worker_that_is_told_to_end_hands_its_work_on(stack, ledger):
    stack.add_server()
    for name in ("first", "second"):
        stack.add_worker(name)
    await stack.start("server", "first")
    work = fanout(200)
    run = await stack.begin(work, ledger)
    await ledger.reaches(60)
    first = stack.parts["first"]
    first._child.send_signal(signal.SIGTERM)  # noqa: SLF001 - a drain, not the stop of the rig
    await stack.start("second")
    assert await first.wait() == 0, stack.last("first")
    await judge(stack, ledger, {run: work})
    rows = await stack.rows(run)
    assert "command.lost" not in {row["event_type"] for row in rows}
    assert ledger.repeats == 0
