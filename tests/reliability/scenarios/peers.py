"""Peers that are slow or only half there: worker and server, client and server, tool and target.

A wire stalls, loses what is said, lets a byte a second through, resets in the middle of an answer,
or forgets the connections that there are. Every call ends by its deadline, and when all is well
again nothing is left behind: no slot, no connection, no stream.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.api.sockets import CONNECT_S, SocketTransport
from noetl.clock import SystemClock
from tests.reliability.figures import figure, sockets_of
from tests.reliability.ledger import Ledger
from tests.reliability.load import Load
from tests.reliability.scenario import Verdict
from tests.reliability.wire import Wire
from tests.reliability.work import HEAD, chain, fanout

WIRES = ("worker-server", "client-server", "tool-target")
KINDS = ("stall", "lose there", "lose back", "drip", "blow", "forsake")
SLOTS = 8
LEAST = 3
HARM_S = 1.5
CALL_S, TOOL_S, SLACK_S = 1.0, 1.0, 10.0
"""Deadlines of calls, and what a busy machine may add to them."""
SETTLED_S = 30.0
FIGURES = {
    "server": ("noetl_writes_in_flight", "noetl_sse_streams", "noetl_db_pool_in_use"),
    "worker": ("noetl_worker_concurrent_dispatches", "noetl_worker_outbox_events"),
}
CALM = "worker-ledger"
"""The way of the load to its ledger, which is left alone."""
SHORT = f"""{HEAD.replace("NAME", "short")}workflow:
  - step: start
    tool:
      kind: http
      method: POST
      url: "{{{{ workload.url }}}}"
      json: {{step: start, n: 0}}
      timeout: {TOOL_S:g}
"""


async def play(plan):
    """Harm one wire after the other, each kind of harm before any comes again."""
    verdict = Verdict(name="peers", seed=plan.seed, is_mid_tool=True)
    async with AsyncExitStack() as exits:
        ledger = await exits.enter_async_context(Ledger().open())
        stack = await exits.enter_async_context(plan.stack())
        stack.add_server()
        server = stack.parts["server"].port
        ports = dict(zip((*WIRES, CALM), (server, server, ledger.port, ledger.port), strict=True))
        wires = {
            name: await exits.enter_async_context(Wire(port).open()) for name, port in ports.items()
        }
        known = {"NOETL_SERVER_URL": f"http://127.0.0.1:{wires['worker-server'].port}"}
        stack.parts["server"].environ |= known  # hints name it, too
        stack.add_worker(slots=SLOTS, **known)
        await stack.start("server", "worker")
        url = f"http://127.0.0.1:{wires[CALM].port}/ledger"
        load, wide = Load(stack, ledger, [chain(3)], url=url), fanout(2 * SLOTS, in_flight=SLOTS)
        run = await stack.begin(wide, ledger, url=url)
        load.runs[run] = wide
        await stack.ended(run)
        ends = Ends(stack, wires, run, verdict)
        exits.push_async_callback(ends.close)
        await ends.well()  # every way was used before what is kept of them is counted
        before = await _settled(stack, wires)
        async with load.going():
            for name, kind in _drawn(plan.random):
                verdict.schedule.append(f"{name}: {kind}")
                harm(wires[name], kind)
                await ends.during(name, kind)
                if kind == "forsake":
                    await _forsaken(load, verdict)
                wires[name].heal()
                await load.recovered(verdict)
                if len(verdict.schedule) >= LEAST and plan.left_s <= 0:
                    break
        await load.judged(verdict)
        await _nothing_left(stack, wires, before, verdict)
        verdict.measured["calls"] = ends.calls
        verdict.measured["longest_s"] = ends.longest_s
    return verdict


async def _forsaken(load, verdict):
    """Go on with connections that are dead without a word, until the longest call has ended."""
    known = len(verdict.recovery_s)
    await load.recovered(verdict)
    verdict.measured.setdefault("half_open_s", []).extend(verdict.recovery_s[known:])
    del verdict.recovery_s[known:]


def _drawn(random):
    """Which wire is harmed how, without end."""
    every = [(name, kind) for name in WIRES for kind in KINDS]
    while True:
        yield from random.sample(every, len(every))


def harm(wire, kind):
    """Treat a wire so until it is healed."""
    match kind:
        case "stall":
            wire.stall()
        case "lose there":
            wire.swallow(wire.there)
        case "lose back":
            wire.swallow(wire.back)
        case "drip":
            wire.drip(rate=1.0)
        case "blow":
            wire.blow(wire.back, after=250)
        case "forsake":
            wire.forsake()


class Ends:
    """Calls over a harmed wire: each ends by its deadline, well or not."""

    def __init__(self, stack, wires, run, verdict):
        self.calls = 0
        self.longest_s = {"client": 0.0, "tool": 0.0}
        self._stack = stack
        self._run = run
        self._verdict = verdict
        self._target = f"http://127.0.0.1:{wires['tool-target'].port}/ledger"
        self._clock = SystemClock()
        self._transport = SocketTransport(
            f"http://127.0.0.1:{wires['client-server'].port}",
            token=stack.mould.admin,
            timeout_s=CALL_S,
        )

    async def close(self):
        """Let go of the connections."""
        await self._transport.close()

    async def well(self):
        """Make one call of each sort over wires that are well."""
        await self._asked("well")
        await self._ran("well")

    async def during(self, name, kind):
        """Make calls over this wire for as long as the harm lasts."""
        call = {"client-server": self._asked, "tool-target": self._ran}.get(name)
        if call is None:
            await asyncio.sleep(HARM_S)
            return
        until = self._clock.monotonic() + HARM_S
        while self._clock.monotonic() < until:
            await call(kind)

    async def _asked(self, kind):
        """A client asks, and listens to a stream."""
        client = Client(self._transport)
        await self._timed("client", kind, CALL_S + CONNECT_S, client.executions(limit=20))
        await self._timed("client", kind, CALL_S + CONNECT_S, self._listened(client))

    async def _listened(self, client):
        async with asyncio.timeout(CALL_S), aclosing(client.stream(self._run)) as told:
            await anext(told)

    async def _ran(self, kind):
        """A step calls its target, which is told nothing of what harms the wire."""
        client = self._stack.client()
        entry = await client.register(Register(content=SHORT))
        body = Execute(catalog_id=entry.catalog_id, payload={"url": self._target})
        run = (await client.execute(body)).execution_id
        await self._timed("tool", kind, TOOL_S, self._stack.ended(run))
        found = await client.execution(run)
        if found.status == "FAILED" and found.error["kind"] not in {"timeout", "connection"}:
            self._verdict.wrong.append(f"{run}: {kind}: {found.error}")

    async def _timed(self, who, kind, deadline_s, call):
        """A call that must end by its deadline."""
        self.calls += 1
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(deadline_s + SLACK_S):
                await call
        except (NoAnswer, Refused, OSError):
            pass  # it has ended, which is all that was promised
        took_s = self._clock.monotonic() - began
        self.longest_s[who] = round(max(self.longest_s[who], took_s), 3)
        if took_s >= deadline_s + SLACK_S:
            self._verdict.stuck.append(f"a call of the {who} did not end in {took_s:.1f} s: {kind}")


async def _settled(stack, wires):
    """What is open at most while nothing goes on; a beat or a request for work comes and goes."""
    await _ended(stack, wires)
    most = {}
    for _ in range(5):
        await asyncio.sleep(0.4)
        found = await _open(stack)
        most = {name: max(count, most.get(name, 0)) for name, count in found.items()}
    return most


async def _ended(stack, wires):
    """End connections that are kept for later."""
    await stack.hang_up()
    for wire in wires.values():
        wire.reset()


async def _open(stack):
    """Sockets of each process, without those of the pools to the database, and its own figures."""
    found = {f"sockets of the {name}": sockets_of(stack.pid(name)) for name in FIGURES}
    found["sockets of the server"] -= await figure(stack, "server", "noetl_db_pool_size")
    for part, names in FIGURES.items():
        found |= {name: await figure(stack, part, name) for name in names}
    return found


async def _nothing_left(stack, wires, before, verdict):
    """Wait until there was no more open than before, of each kind at some moment."""
    await _ended(stack, wires)
    clock, least = SystemClock(), {}
    until = clock.monotonic() + SETTLED_S
    while True:
        found = await _open(stack)
        least = {name: min(count, least.get(name, count)) for name, count in found.items()}
        left = [name for name, count in least.items() if count > before[name]]
        if not left or clock.monotonic() > until:
            break
        await asyncio.sleep(0.2)
    verdict.stuck += [f"{name}: {before[name]:g} before, {least[name]:g} after" for name in left]
    verdict.measured["open"] = {"before": before, "after": least}
