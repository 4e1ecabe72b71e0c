"""Parts that do not hear each other, both ways or one way, for a moment or longer than a lease.

A worker that was cut off for longer than its leases has lost them: what it did meanwhile is stored
as `command.late` and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from tests.reliability.figures import figure, reaches
from tests.reliability.ledger import Ledger
from tests.reliability.load import Load
from tests.reliability.rig import LEASE_S
from tests.reliability.scenario import Verdict
from tests.reliability.wire import Wire
from tests.reliability.work import chain, fanout

WIRES = ("worker-server", "worker-bus", "server-bus")
KINDS = ("cut", "stall both", "stall there", "stall back", "lose there", "lose back")
LONGER_S = LEASE_S + 2.0
HELD = 4
LATE = "noetl_command_late_total"


async def play(plan):
    """A zombie first, then short partitions, of which some last longer than a lease."""
    verdict = Verdict(name="partitions", seed=plan.seed, is_mid_tool=True)
    async with AsyncExitStack() as exits:
        ledger = await exits.enter_async_context(Ledger().open())
        stack = await exits.enter_async_context(plan.stack())
        wires = await _wired(exits, stack)
        await stack.start("server", "far")
        runs = await _zombie(stack, ledger, wires, verdict)
        load = Load(stack, ledger, [chain(3), fanout(8)])
        load.runs |= runs
        drawn = _drawn(plan.random)
        async with load.going():
            while len(verdict.schedule) == 1 or plan.left_s > 0:
                name, kind, seconds = next(drawn)
                verdict.schedule.append(f"{name}: {kind} for {seconds} s")
                harm(wires[name], kind)
                await asyncio.sleep(seconds)
                wires[name].heal()
                if len(verdict.schedule) % 5 == 2:
                    await load.recovered(verdict)
        await load.recovered(verdict)
        await load.judged(verdict)
        await _late(stack, load.runs, verdict)
        async with asyncio.timeout(60):
            for wire in wires.values():
                await wire.carries()
        verdict.measured["schedules"] = len(verdict.schedule)
    return verdict


async def _wired(exits, stack):
    """A server and two workers; everything of one worker, and the bus of the server, by wire."""
    wires = {
        name: await exits.enter_async_context(Wire(stack.nats.port).open())
        for name in ("worker-bus", "server-bus")
    }
    stack.add_server(NOETL_NATS_URL=_bus(stack, wires["server-bus"]))
    port = stack.parts["server"].port
    wires["worker-server"] = wire = await exits.enter_async_context(Wire(port).open())
    known = {"NOETL_SERVER_URL": f"http://127.0.0.1:{wire.port}"}
    stack.parts["server"].environ |= known  # hints name it, too
    stack.add_worker("far", NOETL_NATS_URL=_bus(stack, wires["worker-bus"]), **known)
    stack.add_worker("near")
    return wires


def _bus(stack, wire):
    return stack.nats.url.replace(f":{stack.nats.port}", f":{wire.port}")


def _drawn(random):
    """Which wire is harmed how and for how long, without end."""
    while True:
        name, kind = random.choice(WIRES), random.choice(KINDS)
        is_long = name == "worker-server" and random.random() < 0.1
        yield name, kind, LONGER_S if is_long else round(random.uniform(0.05, 0.8), 2)


def harm(wire, kind):
    """Treat a wire so until it is healed."""
    if kind == "cut":
        wire.cut()
        return
    act, which = kind.split()
    ways = {"both": (), "there": (wire.there,), "back": (wire.back,)}[which]
    (wire.stall if act == "stall" else wire.swallow)(*ways)


async def _zombie(stack, ledger, wires, verdict):
    """A worker is cut off in the middle of its calls, another one does them, the first comes back.

    Acceptance: what it did is stored as late, changes nothing, and is counted.
    """
    verdict.schedule.append(f"worker cut off for more than {LEASE_S} s")
    work = fanout(HELD)
    ledger.gate.clear()
    run = await stack.begin(work, ledger)
    async with asyncio.timeout(60):
        await ledger.called(HELD)
        wires["worker-server"].cut()
        wires["worker-bus"].cut()
        await stack.start("near")
        await ledger.called(2 * HELD)  # lost, and tried again by the other
        ledger.gate.set()
        await stack.ended(run)
        await reaches(stack, "far", "noetl_worker_outbox_events", HELD)
        wires["worker-server"].heal()
        wires["worker-bus"].heal()
        late = await stack.until(run, "command.late", HELD)
    rows = await stack.rows(run)
    done = [row["attempt"] for row in rows if row["event_type"] == "call.done"]
    if {row["attempt"] for row in late} != {1} or done != [2] * HELD:
        verdict.wrong.append(f"{run}: a zombie's result was applied: {done}")
    return {run: work}


async def _late(stack, runs, verdict):
    """Nothing of an attempt that was lost is applied, and what came late is counted."""
    count = 0
    for run in runs:
        rows = await stack.rows(run)
        of = {name: Counter() for name in ("command.lost", "call.done", "command.late")}
        for row in rows:
            if row["event_type"] in of:
                of[row["event_type"]][row["node_id"], row["attempt"]] += 1
        stale = set(of["command.lost"]) & set(of["call.done"])
        verdict.wrong += [f"{run}: applied after it was lost: {key}" for key in sorted(stale)]
        count += of["command.late"].total()
    counted = await figure(stack, "server", LATE)
    if counted != count:
        verdict.wrong.append(f"{count} late results are stored, {counted:g} were counted")
    verdict.measured["late"] = count
