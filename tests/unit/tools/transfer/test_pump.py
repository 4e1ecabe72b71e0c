"""Two threads and a short queue."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

from noetl.tools.transfer.pump import IN_FLIGHT, Lanes, pump


class Numbers:
    """A source of batches, which counts those that nobody has written yet."""

    def __init__(self, count, fails_at=None):
        self.count, self.fails_at = count, fails_at
        self.made = self.written = self.most = 0

    def schema(self):
        return pa.schema([("n", pa.int64())])

    def batches(self):
        for n in range(self.count):
            if n == self.fails_at:
                raise ValueError("the source broke")
            self.made += 1
            self.most = max(self.most, self.made - self.written)
            yield pa.record_batch({"n": [n]})

    def stop(self):
        """Nothing waits."""


class Sink:
    def __init__(self, source, fails_at=None, gate=None):
        self.source, self.fails_at, self.gate = source, fails_at, gate
        self.seen = []

    def write(self, batch):
        if self.gate is not None:
            self.gate.wait(10)
        [n] = batch.column("n").to_pylist()
        if n == self.fails_at:
            raise ValueError("the target broke")
        self.seen.append(n)
        self.source.written += 1


@pytest.fixture
def lanes():
    made = Lanes()
    yield made
    made.close()


async def test_batches_arrive_in_order_and_few_are_in_memory(lanes):
    source = Numbers(200)
    sink = Sink(source)
    told = []
    moved = await pump(source, sink, lanes, lambda now: told.append(now.rows))
    assert (sink.seen, moved.rows, moved.chunks) == (list(range(200)), 200, 200)
    assert told == list(range(1, 201))
    assert source.most <= IN_FLIGHT


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_side_that_fails_ends_the_other(lanes, side):
    source = Numbers(100_000, fails_at=7 if side == "source" else None)
    sink = Sink(source, fails_at=7 if side == "target" else None)
    async with asyncio.timeout(20):
        with pytest.raises(ValueError, match=f"the {side} broke"):
            await pump(source, sink, lanes, lambda _: None)
    assert source.made < 100


async def test_cancelling_stops_both_threads(lanes):
    gate = threading.Event()
    source = Numbers(100_000)
    sink = Sink(source, gate=gate)
    lanes.on_stop(gate.set)
    task = asyncio.ensure_future(pump(source, sink, lanes, lambda _: None))
    async with asyncio.timeout(20):
        while not source.made:  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert lanes.stopped.is_set()
    assert source.made < 100
