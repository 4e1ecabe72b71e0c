"""A steady load: guests that each start a run, follow it, answer what it asks, and start the next.

A guest insists as any client does: a start that got no answer is sent again under the same key, a
stream that broke is taken up behind the last event that was seen. What a guest sees is kept: each
event once, one end.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec

from noetl.api.catalog import Register
from noetl.api.client.calls import JSON, decoded, encode
from noetl.api.executions import Execute, Started
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.clock import SystemClock
from tests.reliability.oracle import ENDS
from tests.reliability.work import ANSWER, chain, leaf, tour

AGAIN_S = 0.1
SYSTEM_PAUSE_S = 0.2
MOST = 2_000
"""About so many runs are started; the longer there is harm, the more seldom."""
AWAY = {429, 502, 503, 507}


class Guests:
    """Whoever starts runs, of the pool `shared` and of the pool `system`."""

    def __init__(self, stack, ledger, *, lasts_s, shared=6, system=1, server="server"):  # noqa: PLR0913 - how many, and where
        self.runs = {}
        """Every run that was accepted, with its work."""
        self.of_system = set()
        self.wrong = []
        self._stack = stack
        self._ledger = ledger
        self._server = server
        self._counts = {"shared": shared, "system": system}
        self._pauses_s = {"shared": shared * lasts_s / MOST, "system": SYSTEM_PAUSE_S}
        self._started = 0
        self._leaving = asyncio.Event()
        self._clock = SystemClock()

    @asynccontextmanager
    async def here(self):
        """Guests come inside of the block; who is there at its end is waited for, a while."""
        client = self._stack.client(self._server)
        for work in (leaf(), tour(), chain(3)):
            body = Register(content=work.text)
            await self._stack.insist(lambda body=body: client.register(body))
        tasks = [
            asyncio.create_task(self._stay(pool))
            for pool, count in self._counts.items()
            for _ in range(count)
        ]
        try:
            yield self
            await self._gone(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()

    async def _gone(self, tasks, within_s=90.0):
        """No guest comes any more; those who do not leave have a run that does not end."""
        self._leaving.set()
        await asyncio.wait(tasks, timeout=within_s)

    async def recovered(self, verdict, part, since, within_s=60.0):
        """Wait for work that was not under way; how long since a moment goes to the verdict."""
        is_system = part == "system"
        try:
            async with asyncio.timeout(within_s):
                await self._ledger.anew(1, lambda key: self._is_of(key, is_system=is_system))
        except TimeoutError:
            verdict.stuck.append(f"nothing new was begun for {within_s:g} s after {part}")
        verdict.recovery_s.append(round(self._clock.monotonic() - since, 3))

    def _is_of(self, key, *, is_system):
        return (key.partition("/")[0] in self.of_system) == is_system

    # ------------------------------------------------------------------ one guest

    async def _stay(self, pool):
        while not self._leaving.is_set():
            self._started += 1
            number = self._started
            work = chain(3) if pool == "system" else tour(number)
            run = await self._begin(work, pool, f"guest-{number}")
            await self._follow(run)
            await asyncio.sleep(self._pauses_s[pool])

    async def _begin(self, work, pool, key):
        body = Execute(
            path=work.path,
            payload={"url": self._ledger.url} | work.payload,
            execution_pool=None if pool == "shared" else pool,
        )
        client = self._stack.client(self._server)
        headers = JSON | {"idempotency-key": key}

        async def start():
            answer = await client.raw("POST", "/api/execute", encode(body), headers)
            if (refusal := client.refusal(answer)) is not None:
                raise refusal
            return decoded(answer, Started)

        run = (await self._stack.insist(start)).execution_id
        if run in self.runs:
            self.wrong.append(f"{run} was given to two guests")
        if pool == "system":
            self.of_system.add(run)
        self.runs[run] = work
        return run

    async def _follow(self, run):
        """See a run through to its end, over as many streams as it takes."""
        client, last, seen, ends = self._stack.client(self._server), None, [], 0
        while True:
            try:
                async for told in client.stream(run, since_event_id=last, fields="full"):
                    if told["event"] == "end":
                        self._check(run, seen, ends)
                        return
                    row = told["data"]
                    last = told["id"] or last
                    seen.append(row.get("seq"))
                    ends += row.get("event_type") in ENDS
                    await self._answer(client, row)
            except (NoAnswer, OSError, msgspec.DecodeError):
                pass
            except Refused as refusal:
                if refusal.problem.status not in AWAY:
                    raise
            await asyncio.sleep(AGAIN_S)

    def _check(self, run, seen, ends):
        if ends != 1:
            self.wrong.append(f"the stream of {run} told {ends} ends")
        if seen != list(range(1, len(seen) + 1)):
            self.wrong.append(f"the stream of {run} told {seen}")

    async def _answer(self, client, row):
        """Answer a run that waits for it."""
        key = (row.get("context") or {}).get("callback_key")
        if row.get("event_type") == "command.parked" and key:
            body = json.dumps({"n": ANSWER}).encode()
            await self._stack.insist(lambda: client.answer(key, body))
