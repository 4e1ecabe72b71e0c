"""A soak: mixed work with a kill now and then, then rest; everything that may grow is watched.

Beside the runs that are begun at a steady rate, a few people start some through the gateway and
hear of their ends on streams, and messages of a broker become runs through a listener.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.reliability.ledger import Ledger
from tests.reliability.oracle import quiet
from tests.reliability.scenario import Verdict, passable
from tests.reliability.senders import PATHS, Senders
from tests.reliability.visitors import Visitors
from tests.soak.bounds import (
    FLAT,
    MOST_IDLE_PERCENT,
    MOST_KIB_PER_RUN,
    OWN,
    bloated,
    incarnations,
    judged_slope,
    risen,
)
from tests.soak.watch import PARTS, Watch, is_clearing, store_mib, tables
from tests.soak.work import Mixed

RATE = 50.0
VISITORS, VISIT_S, MESSAGE_S = 8, 1.0, 0.2
"""People with streams, and the pauses between their requests and between messages."""
POLL_MS = 5_000
IDLE_SHARE = 1 / 9
KILL_EVERY_S = 300.0
SETTLE_S = 5.0
VACUUM_S = 180.0
LOOK_S = 5.0
LOOKS_AT_REST = 13  # longer than a minute
"""How long the database has to clear dead rows away by itself, once all is quiet."""


@dataclass
class Soak:
    """What is asked for, and what came of it."""

    seed: int
    seconds: float
    rate: float
    verdict: Verdict = field(init=False)
    report: dict = field(default_factory=dict)
    faults: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    """The table: one row for each process."""

    def __post_init__(self):
        self.verdict = Verdict(name="soak", seed=self.seed, is_mid_tool=True)
        self.load_s = self.seconds * (1 - IDLE_SHARE)
        self.warm_s = max(15.0, min(300.0, self.load_s / 8))

    def schedule(self):
        """When which part is killed: each in its turn, in an order by chance."""
        drawn = random.Random(self.seed)
        gap = min(KILL_EVERY_S, self.load_s / 3)
        moments = []
        order = []
        while (len(moments) + 1) * gap < self.load_s - 1:
            order = order or drawn.sample(PARTS, len(PARTS))
            moments.append(((len(moments) + 1) * gap, order.pop()))
        return moments

    async def run(self, stack, say):
        """Load, rest, judge."""
        kills = self.schedule()
        self.verdict.schedule = [f"{at:.0f} s: kill {part}" for at, part in kills]
        stack.add_server()
        stack.add_worker(slots=16)
        stack.add_worker("system", slots=2, pool="system")
        stack.add_gateway()
        stack.add_listener(*PATHS, NOETL_SUBSCRIPTION_STATE_POLL_MS="5000")
        await stack.start("server", "worker", "system", "gateway")
        async with Ledger().open() as ledger, self._others(stack, ledger) as others:
            work = Mixed(stack, ledger, self.verdict, self.rate, random.Random(self.seed))
            await work.prepare()
            watch = Watch(stack)
            watching = asyncio.create_task(watch.run())
            try:
                async with others():
                    await self._load(stack, work, kills, say)
                say(f"{work.begun} runs were begun; they end, and are judged")
                await work.judge_all()
                try:
                    await quiet(stack)
                except AssertionError as left:
                    self.verdict.stuck.append(str(left))
                dead = await self._cleared(stack)
                await self._rest(watch, say)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            await self._judge(stack, watch, work, dead)

    @asynccontextmanager
    async def _others(self, stack, ledger):
        """Who works beside the runs of the rate; at the end it is judged what came of them."""
        spool = passable("spool-", stack.folder)
        senders = Senders(stack, ledger, spool)
        senders.pause_s, senders.poll_ms = MESSAGE_S, POLL_MS
        visitors = Visitors(stack, ledger, ("gateway",), VISITORS)

        @asynccontextmanager
        async def here():
            async with senders.here(), visitors.here(workers=1, pause_s=VISIT_S):
                await stack.start("listener")
                yield
            visitors.judge(self.verdict)
            self.verdict.accepted += len(await senders.judged(self.verdict))

        async with senders.downstream.open():
            yield here

    async def _load(self, stack, work, kills, say):
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(self._kill(stack, kills, say))
            await work.run(self.load_s)
            await killing

    async def _kill(self, stack, kills, say):
        loop = asyncio.get_running_loop()
        began = loop.time()
        for at, part in kills:
            await asyncio.sleep(max(0.0, began + at - loop.time()))
            say(f"kill {part}")
            await stack.again(part)

    async def _rest(self, watch, say):
        seconds = max(20.0, self.seconds * IDLE_SHARE)
        say(f"idle for {seconds:.0f} s")
        watch.phase = "idle"
        await asyncio.sleep(SETTLE_S)
        loop = asyncio.get_running_loop()
        before, began = watch.used_s(), loop.time()
        await asyncio.sleep(seconds)
        after, passed = watch.used_s(), loop.time() - began
        percent = {name: (after[name] - before[name]) / passed * 100 for name in after}
        self.report["idle_percent"] = {name: round(value, 2) for name, value in percent.items()}
        if (whole := sum(percent.values())) > MOST_IDLE_PERCENT:
            self.faults.append(f"idle took {whole:.2f} % of a core")

    async def _judge(self, stack, watch, work, dead):
        self._grown(watch.samples)
        self.faults += bloated(dead)
        store = store_mib(stack)
        if store * 1024 > MOST_KIB_PER_RUN * max(1, work.begun):
            self.faults.append(f"the bus keeps {store:.0f} MiB of {work.begun} runs")
        self.verdict.accepted += work.begun
        self.faults += self.verdict.faults
        begun = work.begun / self.load_s
        told = f"{begun:.1f} runs/s of the {self.rate:g} that were asked for"
        self.report |= {
            "seed": self.seed, "seconds": self.seconds, "rate": told, "refused": work.refused,
            "skipped": work.skipped, "warm_s": self.warm_s, "slopes": self.rows,
            "dead_rows": {name: rows for name, rows in dead.items() if sum(rows)},
            "nats_mib": round(store, 1), "verdict": self.verdict.as_json(),
            "faults": self.faults, "samples": watch.samples,
        }  # fmt: skip

    def _grown(self, samples):
        loaded = [sample for sample in samples if sample["phase"] == "load"]
        for name in PARTS:
            memory = incarnations(loaded, name, "rss_mib", self.warm_s)
            found, word, fault = judged_slope(memory)
            if name not in OWN:
                word = "told"
            elif fault is not None:
                self.faults.append(f"{name} {fault}")
            values = [value for group in memory for _, value in group] or [0.0]
            row = {
                "process": name, "incarnations": len(memory), "judged by": word,
                "rss MiB": f"{min(values):.0f}..{max(values):.0f}",
                "MB/h": "-" if found is None else f"{found.per_hour:+.1f} +- {found.error:.1f}",
            }  # fmt: skip
            for counted in FLAT:
                groups = incarnations(loaded, name, counted, self.warm_s)
                seen = [value for group in groups for _, value in group]
                row[counted] = f"{min(seen)}..{max(seen)}" if seen else "-"
                rises = [risen(one, counted) for one in groups]
                self.faults += [f"{name}: {words}" for words in rises if words]
            self.rows.append(row)

    async def _cleared(self, stack):
        """Dead rows, after the database had the time to clear them away by itself.

        Its rounds begin each minute, and clearing is not idle: it must be at rest for one minute.
        """
        loop = asyncio.get_running_loop()
        until, at_rest = loop.time() + VACUUM_S, 0
        while at_rest < LOOKS_AT_REST and loop.time() < until:
            dead = await tables(stack)
            is_busy = bloated(dead) or await is_clearing(stack)
            at_rest = 0 if is_busy else at_rest + 1
            await asyncio.sleep(LOOK_S)
        return dead
