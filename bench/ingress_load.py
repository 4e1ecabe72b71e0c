"""The senders of the scenario `ingress`, in a process of their own: `python -m bench.ingress_load`.

It is told on stdin where the gateway is and what to send, and tells on stdout what was answered.
Every connection has an address of its own (of 127.0.0.0/8), as senders have: a gateway counts
what comes from one address.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import time
from collections import Counter, deque
from typing import Any, Final

import uvloop

from bench.processes import rss_mib

NOW: Final = time.perf_counter
TICK_S: Final = 0.002
LAST_S: Final = 15.0
"""How long answers are waited for when everything is sent."""
MOST_UNANSWERED: Final = 64
"""Of one connection; whoever waits for so many sends no more."""
FLOOD_UNANSWERED: Final = 8
CHUNK: Final = b"10000\r\n" + bytes(65_536) + b"\r\n"
ENDLESS_CHUNKS: Final = 16_384
"""A gibibyte."""
SLOW_S: Final = 0.5
LOOK_S: Final = 0.1
FLOOD_TICK_S: Final = 0.02
_STATUS_BYTES: Final = 10
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"


class Sender(asyncio.Protocol):
    """One connection; requests go out as they are given, answers come in the same order."""

    def __init__(self, seen: Answers) -> None:
        self._seen = seen
        self._data = b""
        self._waiting: deque[float] = deque()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = transport  # type: ignore[assignment]  # of a TCP connection

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever was not answered never will be."""
        del exc
        self._seen.counts["lost"] += len(self._waiting)
        self._waiting.clear()
        self._transport = None
        self._seen.came.set()

    @property
    def is_open(self) -> bool:
        """Whether somebody is there."""
        return self._transport is not None

    @property
    def under_way(self) -> int:
        """Requests without an answer."""
        return len(self._waiting)

    def send(self, request: bytes, due: float) -> None:
        """Send one; its time counts from when it was due."""
        if self._transport is not None:
            self._waiting.append(due)
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Answers, or parts of them."""
        self._data += data
        while (end := self._data.find(_HEAD_END)) >= 0:
            head = self._data[:end].lower()
            place = head.find(_LENGTH)
            size = int(head[place + len(_LENGTH) :].split(b"\r\n")[0]) if place >= 0 else 0
            whole = end + len(_HEAD_END) + size
            if len(self._data) < whole:
                return
            body, self._data = self._data[whole - size : whole], self._data[whole:]
            self._seen.note(head[9:12].decode(), body, self._waiting.popleft())

    def close(self) -> None:
        """Go."""
        if self._transport is not None:
            self._transport.abort()


class Answers:
    """What was answered, and how long that took."""

    def __init__(self, *, reads: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.taken_ms: list[float] = []
        self.at: list[float] = []
        self.came = asyncio.Event()
        self._reads = reads

    def note(self, status: str, body: bytes, due: float) -> None:
        """One answer; bodies are read only where they matter."""
        now = NOW()
        word = json.loads(body).get("status", "") if self._reads and status == "202" else ""
        self.counts[f"{status} {word}".strip()] += 1
        if self._reads:
            self.taken_ms.append((now - due) * 1000)
            self.at.append(now)
        self.came.set()


class Load:
    """Senders of one kind at one listener."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._is_signed = bool(plan["secret"])
        self._head = (
            f"POST {plan['path']} HTTP/1.1\r\nHost: gate\r\nContent-Type: application/json\r\n"
        ).encode()
        self._number = 0
        self.answers = Answers(reads=self._is_signed)
        self.senders: list[Sender] = []

    async def open(self) -> None:
        """Connect all, each from an address of its own."""
        loop = asyncio.get_running_loop()
        plan = self._plan
        for number in range(plan["connections"]):
            where = f"127.0.{plan['network']}.{1 + number % plan['addresses']}"
            _, sender = await loop.create_connection(
                lambda: Sender(self.answers), plan["host"], plan["port"], local_addr=(where, 0)
            )
            self.senders.append(sender)

    def request(self) -> bytes:
        """The next delivery: signed, or by somebody who cannot sign."""
        self._number += 1
        body = json.dumps({"n": self._number, "of": self._plan["name"], "x": "y" * 200}).encode()
        mark = (
            hmac.digest(self._plan["secret"].encode(), body, "sha256") if self._is_signed else b""
        )
        return b"%bX-Signature: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            self._head, mark.hex().encode() or b"0" * 64, len(body), body,
        )  # fmt: skip

    async def paced(self, rate: float, seconds: float) -> None:
        """An open loop: so many a second, whether or not they are answered."""
        began = NOW()
        done, count = 0, int(rate * seconds)
        while done < count:
            late = min(count, int((NOW() - began) * rate) + 1)
            for number in range(done, late):
                sender = self._free()
                if sender.under_way < MOST_UNANSWERED:
                    sender.send(self.request(), began + number / rate)
                else:
                    self.answers.counts["unsent"] += 1
            done = late
            await asyncio.sleep(TICK_S)
        await self._ended()

    async def pressed(self, seconds: float) -> None:
        """Every sender sends its next one when it has been answered."""
        end = NOW() + seconds

        async def go_on(sender: Sender) -> None:
            while NOW() < end and sender.is_open:
                sender.send(self.request(), NOW())
                while sender.under_way:
                    self.answers.came.clear()
                    await self.answers.came.wait()

        await asyncio.gather(*map(go_on, self.senders))

    def _free(self) -> Sender:
        """The sender that waits for the fewest answers."""
        return min(self.senders, key=lambda one: (not one.is_open, one.under_way))

    async def _ended(self) -> None:
        try:
            async with asyncio.timeout(LAST_S):
                while any(one.under_way for one in self.senders):
                    self.answers.came.clear()
                    await self.answers.came.wait()
        except TimeoutError:
            self.answers.counts["unanswered"] += sum(one.under_way for one in self.senders)


class Flooding(asyncio.Protocol):
    """One connection of somebody who cannot sign: the same forged delivery again and again."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._last = b""
        self.under_way = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = transport  # type: ignore[assignment]  # of a TCP connection

    def connection_lost(self, exc: Exception | None) -> None:
        """It was thrown out."""
        del exc
        self._counts["lost"] += self.under_way
        self.transport = None

    def data_received(self, data: bytes) -> None:
        """Count answers by their first lines, and look no further."""
        text = self._last + data
        self._last = text[-_STATUS_BYTES + 1 :]
        found = text.count(b"HTTP/1.1 4") + text.count(b"HTTP/1.1 5")
        limited = text.count(b"HTTP/1.1 429")
        self._counts["429"] += limited
        self._counts["others"] += found - limited
        self.under_way -= found


async def _flood(plan: dict[str, Any]) -> dict[str, Any]:
    """An open loop that costs its own process next to nothing."""
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()
    request = Load(plan).request()
    opened = [
        (
            await loop.create_connection(
                lambda: Flooding(counts), plan["host"], plan["port"],
                local_addr=(f"127.0.{plan['network']}.{1 + number % plan['addresses']}", 0),
            )
        )[1]
        for number in range(plan["connections"])
    ]  # fmt: skip
    began, done, rate = NOW(), 0, plan["rate"]
    while (passed_s := NOW() - began) < plan["seconds"]:
        share = (int(passed_s * rate) - done) // len(opened)
        for one in opened:
            room = min(share, FLOOD_UNANSWERED - one.under_way)
            if one.transport is not None and room > 0:
                one.transport.write(request * room)
                one.under_way += room
            counts["sent"] += max(0, room)
            counts["unsent"] += share - max(0, room)
        done += share * len(opened)
        await asyncio.sleep(FLOOD_TICK_S)
    return {"counts": counts, "taken_ms": [], "seconds": NOW() - began, "cpu_s": _cpu_s()}


async def _deliveries(plan: dict[str, Any]) -> dict[str, Any]:
    load = Load(plan)
    await load.open()
    began = NOW()
    if plan["rate"]:
        await load.paced(plan["rate"], plan["seconds"])
    else:
        await load.pressed(plan["seconds"])
    answers = load.answers
    passed_s = (max(answers.at) if answers.at else NOW()) - began
    for sender in load.senders:
        sender.close()
    told = {"counts": answers.counts, "taken_ms": answers.taken_ms, "seconds": passed_s}
    return told | {"cpu_s": _cpu_s()}


# ---------------------------------------------------------------------------- bodies without end


async def _bodies(plan: dict[str, Any]) -> dict[str, Any]:
    """The memory of the gateway under bodies that never end, and others that hardly begin."""
    pid = plan["pid"]
    before = rss_mib(pid)
    peak = before
    sent = [_sent(plan, number, is_slow=number % 2 == 0) for number in range(plan["connections"])]
    task = asyncio.gather(*sent)
    while not task.done():
        peak = max(peak, rss_mib(pid))
        await asyncio.wait((task,), timeout=LOOK_S)
    statuses = Counter(await task)
    return {
        "counts": statuses,
        "before_mib": round(before, 1),
        "peak_grew_mib": round(peak - before, 1),
        "grew_mib": round(rss_mib(pid) - before, 1),
    }


async def _sent(plan: dict[str, Any], number: int, *, is_slow: bool) -> str:
    where = f"127.0.{plan['network']}.{1 + number % 250}"
    reader, writer = await asyncio.open_connection(
        plan["host"], plan["port"], local_addr=(where, 0)
    )
    head = f"POST {plan['path']} HTTP/1.1\r\nHost: gate\r\nX-Signature: {'0' * 64}\r\n"
    size = "Content-Length: 1000000" if is_slow else "Transfer-Encoding: chunked"
    answer = asyncio.ensure_future(reader.read(12))
    try:
        writer.write(f"{head}{size}\r\n\r\n".encode())
        for _ in range(ENDLESS_CHUNKS):
            writer.write(b"x" if is_slow else CHUNK)
            await writer.drain()
            await asyncio.wait((answer,), timeout=SLOW_S if is_slow else 0)
            if answer.done():
                break
        return (await answer)[9:12].decode() or "closed"
    except ConnectionError:
        return answer.result()[9:12].decode() if _has_answer(answer) else "reset"
    finally:
        answer.cancel()
        writer.close()


def _has_answer(answer: asyncio.Future[bytes]) -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None


def _cpu_s() -> float:
    """What the senders themselves have cost."""
    return round(time.process_time(), 2)


async def _played(plan: dict[str, Any]) -> dict[str, Any]:
    kinds = {"bodies": _bodies, "flood": _flood, "deliveries": _deliveries}
    return await kinds[plan["kind"]](plan)


if __name__ == "__main__":
    json.dump(uvloop.run(_played(json.load(sys.stdin))), sys.stdout)
