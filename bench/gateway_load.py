"""The load of the scenario `gateway`, in a process of its own: `python -m bench.gateway_load`.

It is told on stdin where the gateway is and who its clients are, and tells on stdout what they saw.
Times are those of the one clock that all processes of a machine have.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Final

import uvloop

from bench.gateway_clients import SEEN, Caller, Client
from bench.processes import cpu_s, rss_mib
from bench.sampling import spread

AT_ONCE: Final = 40
"""Clients that connect, and requests that are made, at the same time."""
LAST_S: Final = 60.0
STALLED_BYTES: Final = 65_536
"""The results of the client that reads nothing."""
STALLED_EACH: Final = 10
"""Every so many-th result of that phase is for it."""
_CALLED: Final = frozenset({200, 202})


class Load:
    """All clients, and whoever calls back."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._at = (plan["host"], plan["port"])
        self._caller = Caller(*self._at)
        self.sessions: list[list[Client]] = [
            [Client(name, one["token"], kind) for name, kind in one["clients"]]
            for one in plan["sessions"]
        ]
        self.clients = [client for session in self.sessions for client in session]
        self.stalled = self.clients[0]
        self.requests: list[tuple[str, list[Client]]] = []
        """Each request, and whom its result is for."""
        self.count = 0
        """Requests whose results were called back."""
        self.answers: dict[str, int] = {}

    async def connect(self) -> float:
        """Connect all; how long that took."""
        began = SEEN()
        await _each(self.clients, lambda one: one.connect(*self._at))
        return SEEN() - began

    async def start(self, count: int, *, for_stalled: int = 0) -> float:
        """Make requests: every other one for a whole session, the rest for one client."""
        began = SEEN()
        wanted: list[tuple[Client, list[Client]]] = []
        for number in range(count):
            session = self.sessions[number * 7 % len(self.sessions)]
            one = session[number // 2 % len(session)]
            others = [client for client in session if client is not self.stalled]
            if for_stalled and number % for_stalled == 0:
                wanted.append((self.stalled, [self.stalled]))
            elif number % 2 or len(others) < len(session):
                wanted.append((others[0] if one is self.stalled else one, []))
            else:
                wanted.append((one, session))
        made: list[tuple[str, list[Client]] | None] = [None] * count

        async def make(number: int) -> None:
            client, for_all = wanted[number]
            made[number] = await self._started(client, for_all)

        await _each(range(count), make)
        self.requests += [one for one in made if one is not None]
        return SEEN() - began

    async def _started(self, client: Client, for_all: list[Client]) -> tuple[str, list[Client]]:
        is_for_all = len(for_all) > 1
        params: dict[str, Any] = {"name": self._plan["playbook"], "timeoutSecs": 3600}
        params |= {"delivery": "session"} if is_for_all else {"clientId": client.client_id}
        call = {"jsonrpc": "2.0", "id": 1, "method": "playbook/execute", "params": params}
        while True:
            status, body = await self._caller.post("/rpc", client.token, json.dumps(call).encode())
            told = json.loads(body)
            if "result" in told:
                return told["result"]["requestId"], for_all if is_for_all else [client]
            if status != 429:  # noqa: PLR2004 - a limit of the server, which is not measured here
                raise RuntimeError(f"a request was refused: {status} {body[:300]!r}")
            await asyncio.sleep(0.5)

    async def call_back(self, rate: float, seconds: float) -> tuple[int, int]:
        """Call back at a steady pace; which numbers that were."""
        first, count = self.count, round(rate * seconds)
        began = SEEN()
        async with asyncio.TaskGroup() as group:
            for done in range(count):
                await asyncio.sleep(max(0.0, began + done / rate - SEEN()))
                group.create_task(self._called(self.count))
                self.count += 1
        return first, self.count

    async def _called(self, number: int) -> None:
        request_id, targets = self.requests[number]
        size = STALLED_BYTES if targets == [self.stalled] and self.stalled.connection else 0
        data = f'{{"n":{number},"at":{SEEN():.6f},"text":"{"x" * size}"}}'
        body = f'{{"request_id":"{request_id}","status":"COMPLETED","data":{data}}}'
        path, token = "/api/internal/callback/async", self._plan["service"]
        status, answer = await self._caller.post(path, token, body.encode())
        if status not in _CALLED:
            raise RuntimeError(f"a callback was refused: {status} {answer[:300]!r}")
        word = json.loads(answer)["status"]
        self.answers[word] = self.answers.get(word, 0) + 1

    async def arrived(self, numbers: tuple[int, int]) -> None:
        """Wait until every result of these has come to each whom it is for, or too long."""
        wanted = sum(len(targets) for _, targets in self.requests[slice(*numbers)])
        until = SEEN() + LAST_S
        while self._arrived(numbers) < wanted and SEEN() < until:  # noqa: ASYNC110 - other processes tell
            await asyncio.sleep(0.1)

    def _arrived(self, numbers: tuple[int, int]) -> int:
        first, last = numbers
        return sum(first <= one[0] < last for client in self.clients for one in client.results)

    def delays(self, numbers: tuple[int, int]) -> list[float]:
        """Milliseconds from a callback to a client; the stalled one is not asked."""
        first, last = numbers
        return [
            (seen - called) * 1000
            for client in self.clients
            if client is not self.stalled
            for number, called, seen in client.results
            if first <= number < last
        ]

    async def reconnect(self, seconds: float) -> int:
        """Every SSE client leaves and comes back, one after the other; how many did."""
        back = [one for one in self.clients if one.kind == "sse" and one is not self.stalled]
        began = SEEN()
        async with asyncio.TaskGroup() as group:
            for number, client in enumerate(back):
                await asyncio.sleep(max(0.0, began + number * seconds / len(back) - SEEN()))
                client.leave()
                group.create_task(client.connect(*self._at))
        return len(back)

    def judged(self) -> dict[str, Any]:
        """What was missed and what was told twice."""
        told = {id(one): [number for number, *_ in one.results] for one in self.clients}
        known = {name: set(numbers) for name, numbers in told.items()}
        missed = sum(
            number not in known[id(client)]
            for number, (_, targets) in enumerate(self.requests[: self.count])
            for client in targets
        )
        wanted = sum(len(targets) for _, targets in self.requests[: self.count])
        count = sum(map(len, told.values()))
        return {
            "results": wanted,
            "missed": missed,
            "repeated": count - sum(map(len, known.values())),
            "unwanted": sum(map(len, known.values())) - (wanted - missed),
            "disordered": sum(one.disordered for one in self.clients),
            "lost_connections": sum(len(one.lost) for one in self.clients),
            "why_lost": [why for one in self.clients for why in one.lost][:3],
            "answers": self.answers,
        }

    def close(self) -> None:
        """Everybody leaves."""
        self._caller.close()
        for client in self.clients:
            client.leave()


class Watch:
    """What processes use in a phase."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._began = SEEN()
        self._before = {name: cpu_s([pid]) for name, pid in pids.items()}
        self._own = time.process_time()

    def cores(self) -> dict[str, float]:
        """Cores that each used since."""
        passed = SEEN() - self._began
        used = {name: cpu_s([pid]) - self._before[name] for name, pid in self._pids.items()}
        used["load"] = time.process_time() - self._own
        return {name: round(seconds / passed, 3) for name, seconds in used.items()}


async def played(plan: dict[str, Any]) -> dict[str, Any]:
    """All phases of the scenario."""
    load, pids = Load(plan), plan["pids"]
    gateway = pids["gateway"]
    rate, seconds = plan["rate"], plan["seconds"]
    told: dict[str, Any] = {"empty_mib": rss_mib(gateway)}
    try:
        told["connect_s"] = round(await load.connect(), 2)
        told["idle_mib"] = rss_mib(gateway)
        warm_up, counted = round(rate * plan["warm_up_s"]), round(rate * seconds)
        slow = round(plan["reconnect_rate"] * plan["reconnect_s"])
        told["start_s"] = round(await load.start(warm_up + counted), 2)
        told["start_s"] += round(await load.start(counted, for_stalled=STALLED_EACH), 2)
        told["start_s"] += round(await load.start(slow), 2)

        await load.arrived(await load.call_back(rate, plan["warm_up_s"]))
        watch = Watch(pids)
        numbers = await load.call_back(rate, seconds)
        told["cores"] = watch.cores()
        await load.arrived(numbers)
        told["delays"] = load.delays(numbers)
        told["messages_per_s"] = round(len(told["delays"]) / seconds)
        told["mib"] = rss_mib(gateway)

        load.stalled.stall()
        numbers = await load.call_back(rate, seconds)
        await asyncio.sleep(1.0)
        told["stalled_mib"] = rss_mib(gateway)
        told["with_a_stalled_reader"] = spread(load.delays(numbers))
        load.stalled.leave()
        await load.stalled.connect(plan["host"], plan["port"])
        await load.arrived(numbers)

        watch = Watch(pids)
        calling = asyncio.create_task(load.call_back(plan["reconnect_rate"], plan["reconnect_s"]))
        told["reconnected"] = await load.reconnect(plan["reconnect_s"])
        numbers = await calling
        told["reconnecting_cores"] = watch.cores()
        await load.arrived(numbers)
        told["while_reconnecting"] = spread(load.delays(numbers))
        told["most_mib"] = max(rss_mib(gateway), told["stalled_mib"], told["mib"])
        return told | load.judged()
    finally:
        load.close()


async def _each(items: Any, work: Any) -> None:  # noqa: ANN401 - what is done to what
    """Do something to all, some at the same time."""
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(played(json.loads(sys.stdin.read())))) + "\n")
