"""People at gateways: they start runs, and hear of their ends on streams that may break.

A visitor insists as the client library does: a start or a callback that got no answer is sent again
under the same key, to whichever gateway answers; a stream that broke is taken up behind the last
event that was seen. What was accepted must be told: each result once, each event id once.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager, suppress

from bench.gateway_clients import Caller, Client
from noetl.api.catalog import Register
from noetl.api.client import Client as Api
from noetl.api.identity import Login, NewAccount
from noetl.api.sockets import SocketTransport
from noetl.clock import SystemClock

WORKED, CALLED = "faults/worked", "faults/called"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: it, path: {path}}}\n"
STEP = """executor: {{spec: {{pool: {pool}}}}}
workload: {{n: 0, url: ''}}
workflow:
  - step: start
    tool: {tool}
output:
  value: {{n: "{{{{ workload.n | int }}}}", at: 0}}
"""
POST = """{kind: http, method: POST, url: "{{ workload.url }}",
           json: {step: start, n: "{{ workload.n | int }}"}}"""
AGAIN_S = 0.1
ENOUGH_S = 90.0
OF_ONE = 16
"""Clients of a session."""
AWAY = {429, 502, 503, 504}
OK = {200, 202}
UNSURE = {-32005, -32007}
"""Too often, or not now."""


class Visitors:
    """Whoever is at the gateways, and all that was promised to them."""

    def __init__(self, stack, ledger, gateways, count):
        self._stack = stack
        self._ledger = ledger
        self._gateways = gateways
        self._count = count
        self._clock = SystemClock()
        self._number = 0
        self._pause_s = 0.0
        self._leaving = asyncio.Event()
        self._told = asyncio.Condition()
        self.clients = []
        self.promised = {}
        """The numbers of requests that were accepted, and for whom."""
        self.runs = {}
        """The run of each."""
        self.called = set()
        """Numbers whose results were called back, and so were answered."""
        self.answers = Counter()

    @asynccontextmanager
    async def here(self, workers=4, pause_s=0.0):
        """They stay inside of the block; at its end all that was promised is waited for."""
        self._pause_s = pause_s
        await self._prepare()
        tasks = [asyncio.create_task(self._listen(one, n)) for n, one in enumerate(self.clients)]
        try:
            async with asyncio.timeout(ENOUGH_S):
                while not all(one.is_connected for one in self.clients):  # noqa: ASYNC110 - other processes tell
                    await asyncio.sleep(0.05)
            wishing = [asyncio.create_task(self._wish(n)) for n in range(workers)]
            tasks += wishing
            yield self
            self._leaving.set()
            await asyncio.wait(wishing, timeout=ENOUGH_S)
            await self._all_told()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in self.clients:
                one.leave()
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception()

    async def recovered(self, verdict, since):
        """Wait for the end of a request that was not begun yet; how long that took."""
        first = self._number
        try:
            async with asyncio.timeout(60.0):
                while not self._is_told(first):  # noqa: ASYNC110 - other processes tell
                    await asyncio.sleep(0.02)
        except TimeoutError:
            verdict.stuck.append("nothing is told any more")
        verdict.recovery_s.append(self._clock.monotonic() - since)

    def _is_told(self, first):
        """Whether a request of this number or a later one has ended for its client."""
        return any(n >= first for one in self.clients for n, *_ in one.results[-5:])

    def judge(self, verdict):
        """What was promised, against what was told."""
        verdict.accepted += len(self.promised)
        for number, client in self.promised.items():
            told = [n for n, *_ in client.results].count(number)
            if told != 1:
                words = f"request {number} ({self.runs[number]}) was told {told} times"
                (verdict.lost if not told else verdict.wrong).append(words)
        for client in self.clients:
            if client.disordered:
                verdict.wrong.append(f"{client.client_id} was told {client.disordered} ids again")
            known = {number for number, owner in self.promised.items() if owner is client}
            strange = {number for number, *_ in client.results} - known
            if strange:
                verdict.wrong.append(f"{client.client_id} was told {sorted(strange)[:5]}")
        verdict.measured |= {
            "promised": len(self.promised),
            "called": len(self.called),
            "answers": dict(self.answers),
            "events": sum(one.count for one in self.clients),
            "connections_lost": sum(len(one.lost) for one in self.clients),
        }

    # ------------------------------------------------------------------ inside

    async def _prepare(self):
        client = self._stack.client()
        for path, pool, tool in (
            (WORKED, "shared", POST),
            (CALLED, "nobody", "{kind: python, code: 'return 1'}"),
        ):
            text = HEAD.format(path=path) + STEP.format(pool=pool, tool=tool)
            await client.register(Register(content=text))
        transport = SocketTransport(
            self._stack.parts["server"].url, token=self._stack.mould.internal
        )
        try:
            for n in range(-(-self._count // OF_ONE)):
                body = NewAccount(subject=f"visitor-{n}", roles=("developer",))
                account = await client.add_user(body)
                signed = await Api(transport).login(Login(account_id=account.account_id))
                self.clients += [
                    Client(
                        f"visitor-{n:03}-{k:02}",
                        signed.session_token,
                        "ws" if k % 4 == 3 else "sse",
                    )
                    for k in range(OF_ONE)
                ]
        finally:
            await transport.close()

    def _at(self, turn):
        name = self._gateways[turn % len(self._gateways)]
        return "127.0.0.1", self._stack.parts[name].port

    async def _listen(self, client, turn):
        """Hold a stream for ever, wherever somebody answers."""
        while True:
            with suppress(OSError, TimeoutError):
                await client.connect(*self._at(turn))
                await client.gone()
            turn += 1
            client.connection = None
            await asyncio.sleep(AGAIN_S)

    async def _wish(self, turn):
        """Start one run after the other, and call back for those whom nobody works for."""
        while not self._leaving.is_set():
            number, self._number = self._number, self._number + 1
            client = self.clients[(number * 7 + turn) % len(self.clients)]
            path = WORKED if number % 2 else CALLED
            variables = {"n": number, "url": self._ledger.url}
            params = {"name": path, "clientId": client.client_id, "variables": variables,
                      "idempotencyKey": f"wish-{number}"}  # fmt: skip
            call = {"jsonrpc": "2.0", "id": 1, "method": "playbook/execute", "params": params}
            told = await self._insist("/rpc", client.token, call, turn)
            self.promised[number], self.runs[number] = client, told["result"]["executionId"]
            if path == CALLED:
                body = {"request_id": told["result"]["requestId"], "status": "COMPLETED",
                        "data": {"n": number, "at": 0}}  # fmt: skip
                token = self._stack.mould.internal
                answer = await self._insist("/api/internal/callback/async", token, body, turn)
                self.answers[answer["status"]] += 1
                self.called.add(number)
            await asyncio.sleep(self._pause_s)

    async def _insist(self, path, token, body, turn):
        """Ask until somebody answers."""
        data = json.dumps(body, separators=(",", ":")).encode()
        while True:
            caller = Caller(*self._at(turn))
            try:
                status, answer = await caller.post(path, token, data)
                told = json.loads(answer)
                if status in OK and "error" not in told:
                    return told
                code = told.get("error", {}).get("code") if "jsonrpc" in told else None
                if status not in AWAY and code not in UNSURE:
                    raise AssertionError(f"{path} was refused: {status} {answer[:300]!r}")
            except (OSError, TimeoutError, ValueError):
                pass
            finally:
                caller.close()
            turn += 1
            await asyncio.sleep(AGAIN_S)

    async def _all_told(self):
        """Wait until all that was promised has come, a while."""
        until = self._clock.monotonic() + ENOUGH_S
        while self._clock.monotonic() < until:
            told = {(one.client_id, n) for one in self.clients for n, *_ in one.results}
            if all((one.client_id, n) in told for n, one in self.promised.items()):
                return
            await asyncio.sleep(0.05)
