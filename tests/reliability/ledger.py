"""What steps really did, kept outside of the product.

Ledger A (`rows`) honours the idempotency key: a call that comes again has no effect and gets the
first answer. Ledger B (`calls`) counts every call. A row with `fails` is refused once, which is in
neither of them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager

from tests.reliability.listening import cancelled, listening


class Ledger:
    """A tiny HTTP server that notes `{step, n}` and answers with `n + 1`."""

    def __init__(self):
        self.rows = {}
        self.calls = Counter()
        self.refused = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.on_call = None
        self.port = 0
        self._changed = asyncio.Condition()
        self._tasks = set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/ledger"

    @property
    def repeats(self):
        """Calls beyond the first of their keys."""
        return self.calls.total() - len(self.calls)

    def of(self, run):
        """What ledger A holds of a run: (step, n), sorted."""
        return sorted(
            (row["step"], row["n"]) for key, row in self.rows.items() if key.startswith(f"{run}/")
        )

    async def reaches(self, count):
        """Wait until so many effects are there."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.rows) >= count)

    async def anew(self, count=1, is_meant=lambda _key: True):
        """Wait until so many keys are called that nobody has called before."""
        known = set(self.calls)
        async with self._changed:
            await self._changed.wait_for(
                lambda: sum(map(is_meant, self.calls.keys() - known)) >= count
            )

    async def called(self, count):
        """Wait until there were so many calls, answered or not."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.calls.total() >= count)

    @asynccontextmanager
    async def open(self):
        async with listening(self._accepted, lambda: cancelled(self._tasks)) as self.port:
            yield self

    def _accepted(self, reader, writer):
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                key, row = headers["idempotency-key"], json.loads(body)
                status = b"503 Service Unavailable" if self._refuses(key, row) else b"200 OK"
                answer = {} if status[:1] == b"5" else await self._note(key, row)
                text = json.dumps(answer).encode()
                writer.write(
                    b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n%s" % (status, len(text), text)
                )
                await writer.drain()
        except (OSError, EOFError):
            return  # whoever called was killed
        finally:
            writer.close()

    def _refuses(self, key, row):
        """Whether a call is the first of a step that has to try again."""
        if not row.get("fails") or key in self.refused:
            return False
        self.refused.add(key)
        return True

    async def _note(self, key, row):
        async with self._changed:
            self.calls[key] += 1
            self._changed.notify_all()
        if self.on_call is not None:
            await self.on_call(key, row)
        await self.gate.wait()
        async with self._changed:
            kept = self.rows.setdefault(key, row)
            self._changed.notify_all()
        return {"value": kept["n"] + 1}
