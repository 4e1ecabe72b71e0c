"""R13: ten times what the stack can do.

First the peak is found: clients that each wait for the end of a run before they start the next,
more and more of them. Then requests come at ten times that rate, whether they are answered or not.
What is refused is refused with 429 or 503 and a time to come back; what is accepted ends; as much
is done as at the peak; and soon after the storm all is as before.

The limits of the account are raised for it, since the ordinary ones would keep the storm from the
rest of the server. Shorter storms meet those, and limits far below what the stack can do.
"""

from __future__ import annotations

import asyncio
import statistics

import asyncpg

from bench.processes import cpu_s, trees
from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.api.problems import Refused
from tests.reliability.bulk import ended_between, unfinished, verdicts
from tests.reliability.flood import flooding
from tests.reliability.ledger import Ledger
from tests.reliability.oracle import weigh
from tests.reliability.scenario import Verdict
from tests.reliability.work import chain
from tests.soak.processes import look

TIMES = 10
CLIENTS = (4, 8, 16, 32)
BACKLOG = 64
"""Enough to keep the slots of one worker busy, and soon done; see `NOETL_BACKLOG_MAX`."""
BESIDE = 200
"""Runs that may be unfinished beside those that wait: in the hands of workers, between steps."""
GOODPUT = 0.8
SHORT_S, SHORT_GOODPUT = 60.0, 0.3
"""A storm of seconds has hardly filled the queue, on a machine of many; a collapse is 0.04."""
NORMAL_S = 60.0
MOST_GROWTH_MIB = 150.0
PROBES = 5
SLACK_S = 0.25
SAMPLE = 5
_LIMITS = "update noetl.tenant set limits = $1::jsonb"
_RAISED = '{"execute_rate": 1000000, "execute_burst": 1000000}'
_TIGHT = '{"execute_rate": 2, "execute_burst": 5}'
_NOW = "select clock_timestamp()"


async def play(plan):
    """A storm that no limit of the account holds back, then some that one does."""
    verdict = Verdict(name="overload", seed=plan.seed)
    is_long = plan.seconds >= SHORT_S
    clients = CLIENTS if is_long else CLIENTS[1::2]
    step_s = min(10.0, max(1.0, plan.seconds / 16))
    storms = {"raised": (_RAISED, plan.seconds / 2), "tight": (_TIGHT, max(1.5, plan.seconds / 8))}
    if is_long:
        storms["ordinary"] = ("{}", plan.seconds / 8)
    verdict.schedule = [f"{count} clients for {step_s:g} s" for count in clients]
    verdict.schedule += [f"{TIMES} times the peak, limits {name}" for name in storms]
    async with plan.stack() as stack, Ledger().open() as ledger:
        await _limits(stack, _RAISED)
        stack.add_server(NOETL_BACKLOG_MAX=str(BACKLOG))
        stack.add_worker(slots=16)
        await stack.start("server", "worker")
        connection = await asyncpg.connect(stack.postgres.url)
        try:
            storm = _Storm(stack, ledger, connection, verdict)
            await storm.prepare()
            await storm.peak(clients, step_s)
            for name, (limits, seconds) in storms.items():
                if name != "raised":
                    await _limits(stack, limits)
                    await stack.again("server")  # limits are looked up every few seconds
                    await storm.calm()
                await storm.rages(name, seconds)
                if name == "raised":
                    await storm.compare(is_long=is_long)
            await _limits(stack, _RAISED)
            await storm.judged(plan.random)
        finally:
            await connection.close()
    return verdict


async def _limits(stack, limits):
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        await connection.execute(_LIMITS, limits)
    finally:
        await connection.close()


class _Storm:
    def __init__(self, stack, ledger, connection, verdict):
        self._stack = stack
        self._ledger = ledger
        self._connection = connection
        self._verdict = verdict
        self._work = chain(2)
        self._last = self._work.effects[-1][0]
        self._runs = {}
        self._body = {}
        self._ended = {}
        self._normal_s = 0.0
        self._peak = 0.0
        self._again = (0, 0.0)

    async def prepare(self):
        """Register, and see how long one run takes on a stack at rest."""
        client = self._stack.client()
        entry = await client.register(Register(content=self._work.text))
        self._body = {"catalog_id": entry.catalog_id, "payload": {"url": self._ledger.url}}
        self._ledger.on_call = self._called
        for _ in range(PROBES):
            await self._one()
        self._normal_s = statistics.median([await self._one() for _ in range(PROBES)])

    async def calm(self):
        """See a run end: the workers are back."""
        async with asyncio.timeout(NORMAL_S):
            await self._one()

    async def _called(self, key, row):
        if row["step"] == self._last:
            self._event(key.partition("/")[0]).set()

    def _event(self, run):
        return self._ended.setdefault(run, asyncio.Event())

    async def _one(self):
        """Start a run and wait until its last step is reached; how long that took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        started = await self._stack.client().execute(Execute(**self._body))
        self._runs[started.execution_id] = self._work
        await self._event(started.execution_id).wait()
        return loop.time() - began

    # ------------------------------------------------------------------ the peak

    async def peak(self, clients, step_s):
        """The most that is done in a second, with any number of clients."""
        found = {}
        for count in clients:
            found[count] = await self._goodput(self._closed(count, step_s))
        best = max(found, key=lambda count: found[count][0])
        self._peak, cost = found[best]
        self._again = (best, step_s)
        self._verdict.measured |= {
            "peak": self._peak, "cpu_ms_per_run": cost, "normal_s": self._normal_s,
            "by_clients": {count: goodput for count, (goodput, _) in found.items()},
        }  # fmt: skip

    async def _closed(self, count, seconds):
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds

        async def client():
            while loop.time() < until:
                await self._one()

        async with asyncio.timeout(seconds + NORMAL_S), asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(client())

    async def _goodput(self, work):
        """Runs that are completed in a second while some work goes on, and what they cost."""
        since, before = await self._connection.fetchval(_NOW), self._used_s()
        await work
        until, after = await self._connection.fetchval(_NOW), self._used_s()
        ended = await ended_between(self._connection, since, until)
        cost = {
            part: round(1000 * (after[part] - before[part]) / max(1, ended), 2) for part in after
        }
        return round(ended / (until - since).total_seconds(), 1), cost

    def _used_s(self):
        roots = {part: self._stack.pid(part) for part in ("server", "worker", "nats", "postgres")}
        return {part: cpu_s(pids) for part, pids in trees(roots).items()}

    # ------------------------------------------------------------------ the storm

    async def rages(self, name, seconds):
        """Send ten times the peak for a while; then wait until all is normal."""
        rate = TIMES * self._peak
        told = self._verdict.measured[name] = {"rate": rate, "seconds": seconds}
        before = look(self._stack.pid("server")).rss_mib
        async with flooding(self._stack, self._body) as flood:
            watching = asyncio.create_task(self._watched(flood))
            try:
                told["goodput"], told["cpu_ms_per_run"] = await self._goodput(
                    flood.at(rate, seconds)
                )
            finally:
                watching.cancel()
            await flood.answered()
        answers = flood.answers
        most_open, most_rss = await watching
        took = sorted(answers.took_s) or [0.0]
        told |= {
            "sent": answers.sent, "accepted": len(answers.accepted),
            "refused": dict(answers.refused), "most_unfinished": most_open,
            "rss_mib": [round(before, 1), round(most_rss, 1)],
            "accepted_p99_s": round(took[int(len(took) * 0.99)], 3),
            "refused_p99_s": _p99(answers.refused_s),
        }  # fmt: skip
        self._runs |= dict.fromkeys(answers.accepted, self._work)
        wrong = self._verdict.wrong
        wrong += [f"{name}: {count} times {words}" for words, count in answers.faults.items()]
        if not answers.refused:
            wrong.append(f"{name}: nothing of {answers.sent} requests was refused")
        if most_open > BACKLOG + BESIDE:
            wrong.append(f"{name}: {most_open} runs were unfinished")
        if most_rss - before > MOST_GROWTH_MIB:
            wrong.append(f"{name}: the server grew from {before:.0f} to {most_rss:.0f} MiB")
        told["normal_after_s"] = await self._normal()

    async def compare(self, *, is_long):
        """Compare what was done in the storm with the peak.

        A short one has other tests beside it, which come and go: the peak is what can be done
        before or after it, whichever is less.
        """
        told, least, peak = self._verdict.measured["raised"], GOODPUT, self._peak
        if not is_long:
            told["peak_after"], _ = await self._goodput(self._closed(*self._again))
            least, peak = SHORT_GOODPUT, min(peak, told["peak_after"])
        if told["goodput"] < least * peak:
            self._verdict.wrong.append(f"{told['goodput']} runs/s were done, {peak} at the peak")

    async def _watched(self, flood):
        """The most unfinished runs and the most memory while the storm lasts."""
        most_open, most_rss = 0, 0.0
        try:
            while True:
                connection = await asyncpg.connect(self._stack.postgres.url)
                try:
                    runs = list(flood.answers.accepted)
                    most_open = max(most_open, await unfinished(connection, runs))
                finally:
                    await connection.close()
                most_rss = max(most_rss, look(self._stack.pid("server")).rss_mib)
                await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            return most_open, most_rss

    async def _normal(self):
        """Wait until runs are taken and end as fast as before; how long that took."""
        loop = asyncio.get_running_loop()
        began, good = loop.time(), 0
        while good < PROBES:
            if loop.time() - began > NORMAL_S:
                self._verdict.stuck.append(f"not normal {NORMAL_S:g} s after the storm")
                break
            try:
                async with asyncio.timeout(NORMAL_S):
                    took = await self._one()
            except (TimeoutError, Refused):
                await asyncio.sleep(0.5)
                continue
            good = good + 1 if took <= 3 * self._normal_s + SLACK_S else 0
        return round(loop.time() - began, 1)

    async def judged(self, random):
        """Every accepted run has ended as it must, and some are looked at from every side."""
        async with asyncio.timeout(NORMAL_S):
            while await unfinished(self._connection, self._runs):  # noqa: ASYNC110 - another process ends them
                await asyncio.sleep(0.2)
        await verdicts(self._stack, self._ledger, self._runs, self._verdict)
        self._verdict.calls, self._verdict.repeats = (
            self._ledger.calls.total(),
            self._ledger.repeats,
        )
        picked = random.sample(sorted(self._runs), min(SAMPLE, len(self._runs)))
        sample = dict.fromkeys(picked, self._work)
        await weigh(self._stack, self._ledger, sample, self._verdict)
        self._verdict.accepted = len(self._runs)


def _p99(samples):
    ordered = sorted(samples) or [0.0]
    return round(ordered[int(len(ordered) * 0.99)], 3)
