"""Requests at a rate that does not wait for answers, over as many connections as that takes.

A client that waits slows down with its server, and so never overloads it. This one sends when it
is time to, and notes of every request what became of it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

TICK_S = 0.005
ANSWER_S = 15.0
"""How long a request may be without an answer before that is one."""
MOST_LINES = 4_000
OK, BUSY = 200, (429, 503)
_END = b"\r\n\r\n"


@dataclass
class Answers:
    """What became of requests."""

    sent: int = 0
    accepted: list = field(default_factory=list)
    """Ids of the runs that were begun."""
    refused: Counter = field(default_factory=Counter)
    """By status and code."""
    faults: Counter = field(default_factory=Counter)
    """What no server may answer: in words."""
    took_s: list = field(default_factory=list)
    refused_s: list = field(default_factory=list)

    def note(self, status, head, body, took_s):
        told = json.loads(body)
        if status == OK:
            self.accepted.append(told["execution_id"])
            self.took_s.append(took_s)
            return
        self.refused[f"{status} {told.get('code')}"] += 1
        self.refused_s.append(took_s)
        if status not in BUSY:
            self.faults[f"answered {status} {told.get('code')}"] += 1
        elif b"\r\nretry-after: " not in head.lower():
            self.faults[f"{status} without Retry-After"] += 1


class Line(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self, flood):
        self._flood = flood
        self._loop = asyncio.get_running_loop()
        self._transport = None
        self._data = b""
        self.since = None

    def connection_made(self, transport):
        self._transport = transport
        self.send()

    def send(self):
        self._data = b""
        self.since = self._loop.time()
        self._transport.write(self._flood.request)

    def close(self):
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data):
        self._data += data
        head, end, body = self._data.partition(_END)
        if not end or len(body) < _length(head):
            return
        began, self.since = self.since, None
        took_s = self._loop.time() - began
        self._flood.answers.note(int(head[9:12]), head, body, took_s)
        self._flood.free.append(self)

    def connection_lost(self, exc):
        flood = self._flood
        flood.lines.discard(self)
        if self.since is not None and not flood.is_over:
            flood.answers.faults[f"connection lost: {exc!r}"] += 1
        self.since = None


def _length(head):
    lowered = head.lower()
    at = lowered.index(b"\r\ncontent-length: ") + len(b"\r\ncontent-length: ")
    return int(lowered[at:].split(b"\r\n", 1)[0])


class Flood:
    """Sends one request again and again."""

    def __init__(self, url, token, path, body):
        parts = urlsplit(url)
        self._address = (parts.hostname, parts.port)
        data = json.dumps(body).encode()
        self.request = (
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        ).encode() + data
        self.answers = Answers()
        self.lines = set()
        self.free = deque()
        self.is_over = False
        self._opening = set()

    async def at(self, rate, seconds):
        """Send at a rate for a while."""
        loop = asyncio.get_running_loop()
        begin, done = loop.time(), 0
        while (passed := loop.time() - begin) < seconds:
            due = int(rate * passed) - done
            for _ in range(due):
                self._one()
            done += due
            await asyncio.sleep(TICK_S)

    def _one(self):
        self.answers.sent += 1
        while self.free:
            line = self.free.pop()
            if line in self.lines:
                line.send()
                return
        if len(self.lines) + len(self._opening) >= MOST_LINES:
            self.answers.faults["no connection left to send on"] += 1
            return
        task = asyncio.create_task(self._open())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self):
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                _, line = await loop.create_connection(lambda: Line(self), *self._address)
        except (OSError, TimeoutError) as fault:
            self.answers.faults[f"not connected: {type(fault).__name__}"] += 1
            return
        self.lines.add(line)

    async def answered(self):
        """Wait for the answers that are still to come; those that do not are faults."""
        loop = asyncio.get_running_loop()
        until = loop.time() + ANSWER_S
        while self._opening or any(line.since is not None for line in self.lines):
            if loop.time() >= until:
                late = len(self._opening) + sum(line.since is not None for line in self.lines)
                self.answers.faults[f"no answer within {ANSWER_S:g} s"] += late
                return
            await asyncio.sleep(TICK_S)

    def close(self):
        self.is_over = True
        for task in list(self._opening):
            task.cancel()
        for line in list(self.lines):
            line.close()


@asynccontextmanager
async def flooding(stack, body, server="server"):
    """A flood of `POST /api/execute`; its connections are closed at the end."""
    flood = Flood(stack.parts[server].url, stack.mould.admin, "/api/execute", body)
    try:
        yield flood
    finally:
        flood.close()
        await asyncio.sleep(0)
