"""Runs that are begun while parts are harmed: what was answered is kept, and judged at the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.clock import SystemClock
from tests.reliability.oracle import weigh

CLIENTS = 2
PAUSE_S = 0.2
AGAIN_S = 0.05


class Load:
    """Clients that begin runs, one after the other, until they are told to stop."""

    def __init__(self, stack, ledger, works, *, server="server", url=""):
        self.runs = {}
        """Every run that was answered 2xx, with its work."""
        self.refused = Counter()
        self.unanswered = 0
        self.pause_s = PAUSE_S
        """How long a client rests after a start."""
        self._stack = stack
        self._ledger = ledger
        self._works = works
        self._server = server
        self._url = url or ledger.url
        self._clock = SystemClock()

    @asynccontextmanager
    async def going(self):
        """Begin runs inside of the block."""
        client = self._stack.client(self._server)
        entries = [
            await self._stack.insist(lambda work=work: client.register(Register(content=work.text)))
            for work in self._works
        ]
        tasks = [asyncio.create_task(self._begin(entries, number)) for number in range(CLIENTS)]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for fault in ended:
            if not isinstance(fault, asyncio.CancelledError):
                raise fault

    async def _begin(self, entries, at):
        while True:
            work, entry = self._works[at % len(entries)], entries[at % len(entries)]
            at += 1
            body = Execute(catalog_id=entry.catalog_id, payload={"url": self._url})
            starting = asyncio.create_task(self._start(body, work))
            try:
                await asyncio.shield(starting)
            except asyncio.CancelledError:
                await starting  # an answer that is on its way counts
                raise

    async def _start(self, body, work):
        try:
            started = await self._stack.client(self._server).execute(body)
        except Refused as refusal:
            self.refused[refusal.problem.status, refusal.code] += 1
            await asyncio.sleep(AGAIN_S)
        except (NoAnswer, OSError):
            self.unanswered += 1
            await asyncio.sleep(AGAIN_S)
        else:
            self.runs[started.execution_id] = work
            await asyncio.sleep(self.pause_s)

    async def recovered(self, verdict, within_s=60.0):
        """Wait for the end of a run that begins now; how long it took is the recovery."""
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(within_s):
                run = await self._stack.insist(
                    lambda: self._stack.begin(
                        self._works[0], self._ledger, self._server, url=self._url
                    )
                )
                self.runs[run] = self._works[0]
                await self._stack.ended(run, self._server)
        except TimeoutError:
            verdict.stuck.append(f"no run has ended {within_s:g} s after {verdict.schedule[-1]}")
        else:
            verdict.recovery_s.append(round(self._clock.monotonic() - began, 3))

    async def judged(self, verdict, **how):
        """Fill a verdict with what came of the runs."""
        await weigh(self._stack, self._ledger, self.runs, verdict, self._server, **how)
        verdict.measured |= {
            "refused": {f"{at[0]} {at[1]}": count for at, count in self.refused.items()},
            "unanswered": self.unanswered,
        }
