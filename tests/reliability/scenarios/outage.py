"""R10: a downstream is away for an hour while 200 messages come in a second, in virtual time.

Whoever listens dies again and again, while messages are stored and while they are sent on; a bit
of one stored message is flipped. The source delivers again what nobody has settled. Each message
has one run, those of a key in order; the flipped one is a dead letter; what waited comes back at
the rate that was asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque

from noetl.local.virtual import run_virtually
from tests.reliability.scenario import Verdict
from tests.unit.intake.world import PATH, Server, World, message

HOUR_S = 3600.0
LEAST_S = 20.0
SPEED = 10
"""Virtual seconds in a real one, on a machine that is not fast."""
RATE = 200
"""Messages a second."""
EVERY_S = 0.1
KEYS = 50
DRAINED = 2000
"""Messages a second that come back."""
WITHIN = 0.1
DEATHS = 8
TSDB = {"name": "tsdb", "probe": "tcp", "target": "tsdb:5432"}
CIRCUIT = {"downstream": [TSDB], "probe_after_ms": 1000, "probe_interval_ms": 1000, "trip_after": 1}
SPOOL = {"circuit": CIRCUIT, "drain": {"rate_per_sec": DRAINED}}


async def play(plan):
    """An hour when there is time for it, else as much of one as there is."""
    lasts_s = min(max(LEAST_S, plan.seconds * SPEED), HOUR_S)
    verdict = Verdict(name="outage", seed=plan.seed)
    deaths = sorted(plan.random.uniform(0.0, 1.0) for _ in range(DEATHS))
    verdict.schedule = [{"away_s": lasts_s, "per_s": RATE}, *({"dies_at": one} for one in deaths)]
    await asyncio.to_thread(run_virtually, _away(verdict, plan.random, lasts_s, deaths))
    return verdict


async def _away(verdict, random, lasts_s, deaths):
    world = World(spool=SPOOL)
    world.server = server = Counting(world.clock)
    world.up["tsdb:5432"] = False
    source = Source(world)
    flipped = None
    loop = asyncio.get_running_loop()
    until = loop.time() + lasts_s
    sending = asyncio.create_task(source.send(until))
    for death in deaths:  # while messages come and are stored
        async with world.running() as engine:
            listening = asyncio.create_task(source.listened(engine))
            await asyncio.sleep(lasts_s / DEATHS * death)
            listening.cancel()
            await asyncio.wait((listening,))
        if flipped is None and (waiting := await world.objects()):
            flipped = await _flip(world, random, random.choice(waiting))
    async with world.running() as engine:
        listening = asyncio.create_task(source.listened(engine))
        await sending
        while source.open:  # noqa: ASYNC110 - waiting is free here
            await asyncio.sleep(EVERY_S)
        listening.cancel()
        waited, began = engine.spool.pending(), loop.time()
        world.up["tsdb:5432"] = True
        while engine.spool.pending() > waited // 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(EVERY_S)
    async with world.running() as engine:  # one more has died, half way
        while engine.spool.pending():  # noqa: ASYNC110 - as above
            await asyncio.sleep(EVERY_S)
    await asyncio.wait((listening,))
    _judge(verdict, server, source.sent, flipped, waited / (loop.time() - began))
    dead = await world.objects("dlq")
    if len(dead) != 1:
        verdict.wrong.append(f"{len(dead)} dead letters, and one message was flipped")


async def _flip(world, random, name):
    """Turn one bit of a stored message; its number."""
    key = f"default/{PATH}/spool/{name}"
    data = bytearray(await world.store.get(key))
    at = data.index(b'"n":') + 4
    number = int(bytes(data[at:]).split(b"}")[0])
    data[at] ^= 1 << random.randrange(3)
    await world.store.put(key, bytes(data))
    return number


def _judge(verdict, server, sent, flipped, per_s):
    verdict.accepted, verdict.calls = sent, len(server.numbers)
    missing = set(range(sent)) - set(server.numbers)
    verdict.lost += [f"message {n} has no run" for n in sorted(missing - {flipped})[:20]]
    if flipped not in missing:
        verdict.wrong.append(f"message {flipped} was flipped and has a run")
    verdict.repeats = len(server.numbers) - len(set(server.numbers))
    last = {}
    for number in server.numbers:
        if number < last.get(number % KEYS, -1):
            verdict.wrong.append(f"message {number} ran after {last[number % KEYS]}")
        last[number % KEYS] = number
    verdict.measured |= {"messages": sent, "drained_per_s": round(per_s)}
    if not (1 - WITHIN) * DRAINED <= per_s <= (1 + WITHIN) * DRAINED:
        verdict.wrong.append(f"{per_s:.0f} messages a second came back, not {DRAINED}")


class Counting(Server):
    """A server that remembers of its runs no more than their messages, in order."""

    def __init__(self, clock):
        super().__init__(clock)
        self.started = self.at = self.starts = self.requests = deque(maxlen=1)
        self.numbers = []

    async def _one(self, start, *, is_entry):
        found = await super()._one(start, is_entry=is_entry)
        if found.kind == "accepted":
            self.numbers.append(int(start.ingress.message_id[2:]))
        return found

    async def post(self, _events):
        return 0


class Source:
    """Numbered messages; what nobody has settled is delivered to whoever listens next."""

    def __init__(self, world):
        self.sent = 0
        self.open = {}
        self._clock = world.clock

    async def send(self, until):
        while self._clock.monotonic() < until:
            for _ in range(int(RATE * EVERY_S)):
                self.open[f"S:{self.sent}"] = message(self.sent, f"k{self.sent % KEYS}")
                self.sent += 1
            await asyncio.sleep(EVERY_S)

    async def listened(self, engine):
        """Hand over what comes, until cancelled."""
        while True:
            if given := list(self.open.values()):
                await engine.intake.handle(given, settle=self._settled)
            await asyncio.sleep(EVERY_S)

    def _settled(self, found):
        if found.settle != "nack":
            self.open.pop(found.message_id, None)
