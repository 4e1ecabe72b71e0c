"""Large messages on a real server: each has its run, however many share a request."""

from __future__ import annotations

import base64

import pytest

from noetl.api.executions import Execute
from noetl.intake.dispatch import MOST_BYTES_AT_ONCE, ServerStarter
from tests.unit.intake.bench import bench, polled
from tests.unit.server.rig import rig, virtually
from tests.unit.server.subscriptions.stage import TARGET, registered

KIB = 1024
MIB = 1024 * KIB


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
