"""The mixed work of a soak: runs at a steady rate, judged while it goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import asyncpg

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from tests.reliability.bulk import unfinished, verdicts
from tests.reliability.work import HEAD, Work, chain, fanout

MOST_OPEN = 200
"""Requests that wait for an answer; beyond, the rate is not kept, which is told."""
MOST_BEHIND_S = 5.0
"""How far the stack may be behind, in seconds of the rate; beyond, it is not kept either."""
JUDGED_EVERY_S = 30.0
ENDS_S = 90.0
"""How long a run may take, a kill of anything in between included."""


def python():
    """One step of Python, in a child of the worker."""
    text = (
        f"{HEAD.replace('NAME', 'python')}workflow:\n  - step: start\n"
        "    tool: {kind: python, code: \"result = {'value': 41 + 1}\"}\n"
        'result: "{{ start.value }}"\n'
    )
    return Work("python", text, 42, [])


def branch():
    """A choice, and a value that is not small."""
    text = (
        f"{HEAD.replace('NAME', 'branch')}workflow:\n  - step: start\n"
        "    tool: {kind: noop}\n"
        "    next:\n      spec: {mode: exclusive}\n"
        "      arcs: [{step: large, when: '{{ workload.url | length > 3 }}'}, {step: none}]\n"
        "  - step: large\n"
        "    tool: {kind: python, code: \"result = {'text': 'x' * 20000}\"}\n"
        "  - step: none\n    tool: {kind: noop}\n"
        'result: "{{ large.text | length }}"\n'
    )
    return Work("branch", text, 20_000, [])


WORKS = (chain(3), fanout(6, in_flight=3), python(), branch(), chain(2))


class Mixed:
    """Begins runs, and judges them when they have had time to end."""

    def __init__(self, stack, ledger, verdict, rate, drawn):
        self.begun = 0
        self.skipped = 0
        """Runs that were not begun in their turn: the machine is too slow for the rate."""
        self.refused = Counter()
        self._stack = stack
        self._ledger = ledger
        self._verdict = verdict
        self._rate = rate
        self._random = drawn
        self._entries = []
        self._open = set()
        self._unfinished = 0
        self._runs = {}
        """Not judged yet: work, and when it was accepted."""

    async def prepare(self):
        client = self._stack.client()
        for work in WORKS:
            entry = await client.register(Register(content=work.text))
            self._entries.append((entry.catalog_id, work))

    async def run(self, seconds):
        """Begin runs for a while."""
        loop = asyncio.get_running_loop()
        began, judged, counted, due = loop.time(), loop.time(), 0.0, 0
        while (passed := loop.time() - began) < seconds:
            while due < passed * self._rate:
                due += 1
                self._one()
            if loop.time() - judged >= JUDGED_EVERY_S:
                judged = loop.time()
                with suppress(OSError, asyncpg.PostgresError):  # it was killed; the next time does
                    await self.judge(judged - ENDS_S)
            if loop.time() - counted >= 1.0:
                counted = loop.time()
                with suppress(OSError, asyncpg.PostgresError):
                    await self._count()
            await asyncio.sleep(0.01)
        if self._open:
            await asyncio.wait(self._open)

    def _one(self):
        catalog_id, work = self._random.choice(self._entries)
        if len(self._open) >= MOST_OPEN or self._unfinished > MOST_BEHIND_S * self._rate:
            self.skipped += 1
            return
        task = asyncio.create_task(self._start(catalog_id, work))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _count(self):
        connection = await asyncpg.connect(self._stack.postgres.url)
        try:
            self._unfinished = await unfinished(connection, self._runs)
        finally:
            await connection.close()

    async def _start(self, catalog_id, work):
        body = Execute(catalog_id=catalog_id, payload={"url": self._ledger.url})
        try:
            started = await self._stack.client().execute(body)
        except Refused as refusal:
            self.refused[refusal.code] += 1
        except (NoAnswer, OSError):
            self.refused["no answer"] += 1  # a part is away
        else:
            self.begun += 1
            self._runs[started.execution_id] = (work, asyncio.get_running_loop().time())

    async def judge(self, before):
        """Judge runs that were accepted before a moment, and forget them."""
        old = {run: work for run, (work, at) in self._runs.items() if at < before}
        if not old:
            return
        await verdicts(self._stack, self._ledger, old, self._verdict)
        for run in old:
            del self._runs[run]
        for key in [key for key in self._ledger.rows if key.partition("/")[0] in old]:
            del self._ledger.rows[key]
            self._verdict.calls += self._ledger.calls[key]
            self._verdict.repeats += self._ledger.calls.pop(key) - 1

    async def judge_all(self):
        """Judge what is left, once it has ended or had its time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + ENDS_S
        await self._count()
        while self._unfinished and loop.time() < until:
            await asyncio.sleep(0.5)
            await self._count()
        await self.judge(float("inf"))
