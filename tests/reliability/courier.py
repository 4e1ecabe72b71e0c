"""A way between workers and servers that repeats, delays and reorders whole requests.

The worker gets the answer of the first of its posts; what comes of the copies nobody hears. A copy
may go to another server than the first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

from tests.reliability.listening import cancelled, listening

REPORTS = b"POST /api/events/batch "
GIVE_UP_S = 30.0


class Mischief:
    """Carries requests; `what` says of each report, by its number, what is done to it."""

    def __init__(self, port, copies, what):
        self._to = port
        self._copies = copies
        self._what = what
        self._tasks = set()
        self._held = []
        self._more = asyncio.Event()
        self.port = 0
        self.reports = 0
        self.done = Counter()
        self.answers = Counter()
        """The statuses that copies were answered with."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def open(self):
        async with listening(self._accepted, lambda: cancelled(self._tasks)) as self.port:
            yield self

    async def carried(self, count):
        """Wait until there were so many reports."""
        while self.reports < count:
            self._more.clear()
            await self._more.wait()

    async def settled(self):
        """Wait until every copy has arrived."""
        self._let_go()
        while copies := [task for task in self._tasks if task.get_name() == "copy"]:
            await asyncio.wait(copies)

    def _spawn(self, work, name):
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accepted(self, reader, writer):
        self._spawn(self._serve(reader, writer), "line")

    async def _serve(self, reader, writer):
        line = Line(self._to)
        try:
            while True:
                request = await read(reader)
                what = await self._before(request) if request.startswith(REPORTS) else None
                writer.write(await line.ask(request))
                await writer.drain()
                if what is not None:
                    self._after(request, *what)
        except (OSError, EOFError):
            return  # one of the two is gone: the worker tries again
        finally:
            line.close()
            writer.close()

    async def _before(self, request):
        """What was drawn for a report; one that is slow is overtaken by what others post."""
        name, delay_s = what = self._what(self.reports)
        self.reports += 1
        self._more.set()
        self.done[name] += 1
        if name == "slow":
            await asyncio.sleep(delay_s)
        elif name == "beside":  # both are under way at the same time: which is first?
            self._spawn(self._copy(request, 0.0), "copy")
        return what

    def _after(self, request, name, delay_s):
        """Send copies of what was answered: at once, late, or behind the next report."""
        self._let_go()
        if name in {"twice", "late"}:
            self._spawn(self._copy(request, 0.0 if name == "twice" else delay_s), "copy")
        elif name == "behind":
            self._held.append(request)

    def _let_go(self):
        while self._held:
            self._spawn(self._copy(self._held.pop(), 0.0), "copy")

    async def _copy(self, request, delay_s):
        await asyncio.sleep(delay_s)
        line = Line(self._copies)
        try:
            async with asyncio.timeout(GIVE_UP_S):
                answer = await line.ask(request)
        finally:
            line.close()
        self.answers[int(answer.split(b" ", 2)[1])] += 1


class Line:
    """A connection to a server, made when it is needed."""

    def __init__(self, port):
        self._port = port
        self._streams = None

    async def ask(self, request):
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        await writer.drain()
        return await read(reader)

    def close(self):
        if self._streams is not None:
            self._streams[1].close()


async def read(reader):
    """A whole message, head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)
