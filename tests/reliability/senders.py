"""Messages that are sent to a stream while parts are harmed, and the runs that must come of them.

A sender insists: a message is sent again under the same id until the broker has said that it is
stored. What is judged at the end: each message has one run, the runs of a key began in order.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import asyncpg
import nats
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from noetl.api.subscriptions import LettersWanted
from noetl.bus.address import Address
from noetl.ids import made_at
from tests.reliability.rig import free_ports
from tests.reliability.work import leaf

STREAM, NAME = "FAULTS", "faults_nats"
READINGS, LOOSE = "readings", "loose"
"""Subscriptions: one with a spool, one whose dead letters the server keeps."""
PATHS = (f"faults/{READINGS}", f"faults/{LOOSE}")
ABSENT = {"x-route": "faults/absent"}
"""The header of a message whose playbook is not there."""
KEYS = 4
PAUSE_S = 0.05
POLL_MS = 300
AGAIN_S = 0.1
ACK_WAIT_S = 2.0
LATE_S = 90.0
RUNS = """
select execution_id::text, (workload ->> 'n')::int from noetl.execution
where path in ('faults/leaf', 'faults/absent')
order by execution_id"""
DOCUMENT = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: {{name: {name}, path: faults/{name}}}
spec:
  source: nats
  mode: pull
  auth: {alias}
  stream: {stream}
  consumer: {name}
  runtime: {{pool: shared, timeout_ms: {poll_ms}, batch: 20}}
  dispatch: {{playbook: faults/leaf}}
  headers:
    directives:
      - {{header: x-route, controls: dispatch.playbook, allowed: [faults/absent]}}
  dedup: {{enabled: true, window_secs: 3600}}
"""
# One failed probe opens the circuit: the runs here need no downstream, and each that completes
# says that it is there.
SPOOL = """\
  spool:
    mode: buffer_and_ack
    backend: local_disk
    path: {folder}
    ordering_key: message.data.key
    circuit:
      trip_after: 1
      probe_after_ms: 300
      probe_interval_ms: 100
      downstream: [{{name: store, probe: tcp, target: "127.0.0.1:{port}"}}]
"""


class Downstream:
    """Something that runs depend on, as a listener asks for it: there, or away."""

    def __init__(self):
        (self.port,) = free_ports(1)
        self._server = None

    @asynccontextmanager
    async def open(self):
        """There, unless the block lets it go away."""
        await self.up()
        try:
            yield self
        finally:
            await self.down()

    async def up(self):
        if self._server is None:
            self._server = await asyncio.start_server(
                lambda _, writer: writer.close(), "127.0.0.1", self.port
            )

    async def down(self):
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None


class Senders:
    """One sender of numbered messages, with keys in turn."""

    def __init__(self, stack, ledger, folder):
        self.sent = 0
        """How many the broker has, of the subscription with a spool."""
        self.letters = 0
        """How many it has that become dead letters first."""
        self.downstream = Downstream()
        self.spool = folder
        self.pause_s = PAUSE_S
        """Between two messages."""
        self.poll_ms = POLL_MS
        """How long the listener waits for messages that do not come."""
        self._stack = stack
        self._ledger = ledger
        self._js = None

    @asynccontextmanager
    async def here(self):
        """Messages are sent inside of the block, and what listens to them is known."""
        address = Address.of(self._stack.nats.url)
        broker = await nats.connect(
            address.servers[0], user=address.user, password=address.password,
            max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_ignored,
        )  # fmt: skip
        self._js = broker.jetstream(timeout=2)
        await self._js.add_stream(name=STREAM, subjects=["faults.>"])
        for name in (READINGS, LOOSE):
            config = ConsumerConfig(
                durable_name=name, filter_subject=f"faults.{name}", ack_wait=ACK_WAIT_S,
                ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1000,
            )  # fmt: skip
            await self._js.add_consumer(STREAM, config)
        await self._known()
        sending = asyncio.create_task(self._send())
        try:
            yield self
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending
            await broker.close()

    async def _known(self):
        client, insist = self._stack.client(), self._stack.insist
        fields = {"url": self._stack.nats.url}
        await insist(
            lambda: client.put_credential(CredentialPut(name=NAME, type="nats", data=fields))
        )
        texts = {
            name: DOCUMENT.format(name=name, alias=NAME, stream=STREAM, poll_ms=self.poll_ms)
            for name in (READINGS, LOOSE)
        }
        texts[READINGS] += SPOOL.format(folder=self.spool, port=self.downstream.port)
        for content in (leaf().text, *texts.values()):
            body = Register(content=content)
            await insist(lambda body=body: client.register(body))

    async def _send(self):
        while True:
            await self._put(READINGS, self.sent)
            self.sent += 1
            await asyncio.sleep(self.pause_s)

    async def send_letter(self):
        """A message whose playbook is not there."""
        self.letters += 1
        await self._put(LOOSE, -self.letters, **ABSENT)

    async def send_junk(self, body, name):
        """A message without sense, whose playbook is not there either."""
        await self._sent(LOOSE, body, {"Nats-Msg-Id": name} | ABSENT)

    async def _put(self, name, number, **headers):
        """Send a message until the broker has it."""
        row = {"n": number, "key": f"k-{number % KEYS}", "url": self._ledger.url}
        told = {"Nats-Msg-Id": f"faults-{number}"} | headers
        await self._sent(name, json.dumps(row).encode(), told)

    async def _sent(self, name, body, headers):
        while True:
            try:
                await self._js.publish(f"faults.{name}", body, headers=headers)
            except (NatsError, OSError, TimeoutError):
                await asyncio.sleep(AGAIN_S)
            else:
                return

    def waiting(self):
        """How many messages lie in the spool."""
        return sum(1 for _ in self.spool.rglob("spool/*.json"))

    async def dead(self, count):
        """The dead letters that the server keeps, as soon as there are so many."""
        stack, known = self._stack, await self._loose_id()
        while True:
            page = await stack.insist(lambda: stack.client().dead_letters(known))
            if len(page.items) == count:
                return page.items
            await asyncio.sleep(PAUSE_S)

    async def redrive(self, content):
        """The playbook that was not there is now, and all that is dead is sent again."""
        stack, known = self._stack, await self._loose_id()
        await stack.insist(lambda: stack.client().register(Register(content=content)))
        await stack.insist(lambda: stack.client().redrive(known, LettersWanted(all=True)))

    async def _loose_id(self):
        """The subscription whose dead letters the server keeps."""
        client = self._stack.client()
        known = await self._stack.insist(lambda: client.register_subscription(f"faults/{LOOSE}"))
        return known.subscription_id

    # ------------------------------------------------------------------ what came of them

    async def judged(self, verdict):
        """The runs with what must come of each; lost, doubled and disordered ones are told."""
        wanted = set(range(-self.letters, self.sent))
        with suppress(TimeoutError):
            async with asyncio.timeout(LATE_S):
                while len(await self._numbers()) < len(wanted) or self.waiting():  # noqa: ASYNC110 - as other processes work
                    await asyncio.sleep(AGAIN_S)
        found = await self._numbers()
        verdict.lost += [f"message {n} has no run" for n in sorted(wanted - set(found))]
        verdict.wrong += [
            f"message {n} has the runs {ids}" for n, ids in sorted(found.items()) if len(ids) > 1
        ]
        for key in range(KEYS):
            mine = sorted(
                (int(ids[0]), n) for n, ids in found.items() if n >= 0 and n % KEYS == key
            )
            verdict.wrong += [
                f"message {n} ran after {before}, at {made_at(run):%H:%M:%S.%f}"
                for (_, before), (run, n) in pairwise(mine)
                if n < before
            ]
        if self.waiting():
            verdict.stuck.append(f"{self.waiting()} messages wait in the spool")
        return {run: leaf(n) for n, ids in found.items() for run in ids}

    async def _numbers(self):
        """The runs of each message, in the order in which they began."""
        connection = await asyncpg.connect(self._stack.postgres.url)
        found = {}
        try:
            for run, number in await connection.fetch(RUNS):
                found.setdefault(number, []).append(run)
        finally:
            await connection.close()
        return found


async def _ignored(_fault):
    """Connections break here by our hand."""
