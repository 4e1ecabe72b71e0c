"""Large messages on a real server: each has its run, however many share a request."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager

import pytest

from noetl.api.executions import Execute
from noetl.bus.memory_keys import MemoryKeys
from noetl.ids import Ids
from noetl.intake.assembly import Assembly, Wiring
from noetl.intake.audit import ServerPoster
from noetl.intake.circuit_stores import KeysStore
from noetl.intake.deliveries import Listener
from noetl.intake.dispatch import MOST_BYTES_AT_ONCE, ServerStarter
from noetl.intake.keeping import ServerLetters
from noetl.intake.metrics import IntakeMetrics
from noetl.sources.base import body_of
from tests.unit.intake.world import spec_of
from tests.unit.server.rig import rig, virtually
from tests.unit.server.subscriptions.stage import PATH, TARGET, registered

KIB = 1024
MIB = 1024 * KIB


def polled(number, raw, headers=None):
    """A message as a source gives it."""
    return {
        "id": f"PLANT:{number}",
        **body_of(raw),
        "headers": headers or {},
        "attributes": {},
        "metadata": {"source": "nats", "size_bytes": len(raw)},
        "ordering_key": f"k{number % 7}",
        "ack_id": f"ack-{number}",
    }


class Counted(ServerStarter):
    """Notes how many starts each request has."""

    def __init__(self, client):
        super().__init__(client)
        self.asked = []

    async def start(self, starts):
        self.asked.append(len(starts))
        return await super().start(starts)


class Bench:
    """An engine on a server of memory parts."""

    def __init__(self, r, sub, **dispatch):
        clock = r.plane.parts.clock
        self._r = r
        self._sub = sub
        self.starter = Counted(r.client)
        spec = spec_of(dispatch={"playbook": TARGET, **dispatch}, runtime={"batch": 500})
        self.engine = Assembly(
            Wiring(
                listener=Listener(subscription_id=sub, path=PATH, spec=spec, version=1),
                tenant="default",
                holder="one",
                ids=Ids(clock, 9),
                clock=clock,
                starter=self.starter,
                poster=ServerPoster(r.client, "one", "subscription"),
                circuits=KeysStore(MemoryKeys(clock)),
                letters=ServerLetters(r.client, sub),
                metrics=IntakeMetrics([PATH], ["default"]),
            )
        )

    async def handle(self, *messages):
        """What each came to."""
        found = await self.engine.intake.handle(messages)
        return [(one.settle, one.outcome, one.reason) for one in found]

    async def runs(self):
        """The messages that have a run."""
        rows = await self._r.store.executions.children(self._sub)
        events = [(await self._r.client.events(row.execution_id, limit=1)).items[0] for row in rows]
        return sorted(event["meta"]["subscription"]["message_id"] for event in events)

    async def letters(self):
        """The messages that are dead, and why."""
        page = await self._r.client.dead_letters(self._sub)
        return [(one.message_id, one.reason) for one in page.items]


@asynccontextmanager
async def bench(**dispatch):
    async with rig() as r:
        yield Bench(r, await registered(r), **dispatch)


STARTED = ("ack", "started", "")


@virtually
async def test_five_hundred_of_40_kib_in_batches_are_five_hundred_runs() -> None:
    async with bench(batch_dispatch=True) as b:
        raw = b'{"text": "' + b"x" * 40 * KIB + b'"}'
        assert await b.handle(*(polled(n, raw) for n in range(500))) == [STARTED] * 500
        assert await b.runs() == sorted(f"PLANT:{n}" for n in range(500))
        most = MOST_BYTES_AT_ONCE // (2 * len(raw))
        assert (sum(b.starter.asked), max(b.starter.asked) <= most) == (500, True)
        assert len(b.starter.asked) <= 12
        assert await b.letters() == []


@pytest.mark.parametrize("is_batch", [False, True], ids=["alone", "in batches"])
@pytest.mark.parametrize(
    "raw",
    [
        b'{"text": "' + b"x" * (8 * MIB - 12) + b'"}',
        b"one line of text\n" * (7 * MIB // 17),
        b"\xff" * (8 * MIB),
    ],
    ids=["JSON", "text", "bytes"],
)
def test_a_message_of_up_to_8_mib_has_its_run(raw, is_batch):
    async def main():
        async with bench(batch_dispatch=is_batch, payload_from="message.body") as b:
            small = polled(1, b"{}"), polled(3, b"{}")
            found = await b.handle(small[0], polled(2, raw), small[1])
            assert found == [STARTED] * 3
            assert await b.runs() == ["PLANT:1", "PLANT:2", "PLANT:3"]

    virtually(main)()


@virtually
async def test_a_message_over_8_mib_is_a_dead_letter_for_its_size() -> None:
    async with bench(batch_dispatch=True) as b:
        large = polled(2, b"\xff" * 10_000_000)
        assert base64.b64decode(large["raw"]) == b"\xff" * 10_000_000
        found = await b.handle(polled(1, b"{}"), large, polled(3, b"{}"))
        assert found == [STARTED, ("term", "dead_lettered", "message_too_large"), STARTED]
        assert await b.runs() == ["PLANT:1", "PLANT:3"]
        assert await b.letters() == [("PLANT:2", "message_too_large")]


@virtually
async def test_a_message_with_a_thousand_headers_has_its_run_with_all_of_them() -> None:
    async with bench(batch_dispatch=True) as b:
        headers = {f"x-{n}": "v" * 100 for n in range(1_000)}
        found = await b.handle(polled(1, b"{}", headers), polled(2, b"{}"))
        assert found == [STARTED] * 2
        assert await b.runs() == ["PLANT:1", "PLANT:2"]


@pytest.mark.parametrize(
    "raw",
    [b'{"a":' * 70 + b"1" + b"}" * 70, b'{"a": "\\u0000"}'],
    ids=["too deep", "with NUL"],
)
def test_one_that_no_server_takes_is_a_dead_letter_alone(raw):
    async def main():
        async with bench(batch_dispatch=True) as b:
            found = await b.handle(*(polled(n, raw if n == 13 else b"{}") for n in range(40)))
            refused = ("term", "dead_lettered", "dispatch_rejected")
            assert found == [STARTED] * 13 + [refused] + [STARTED] * 26
            assert len(await b.runs()) == 39
            assert await b.letters() == [("PLANT:13", "dispatch_rejected")]

    virtually(main)()


@virtually
async def test_a_start_that_is_large_goes_by_the_route_for_many() -> None:
    async with rig() as r:
        sub = await registered(r)
        starter = ServerStarter(r.client)
        [small] = await starter.start([Execute(path=TARGET, parent_execution_id=sub)])
        payload = {"text": "x" * 3 * MIB}
        [large] = await starter.start([Execute(path=TARGET, payload=payload)])
        assert (small.kind, large.kind) == ("accepted", "accepted")
        [unknown] = await starter.start([Execute(path="plant/unknown", payload=payload)])
        assert (unknown.kind, unknown.code) == ("refused", "unknown_path")
