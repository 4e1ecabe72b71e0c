"""A spool on the disk: messages in, each synced, and out again in order, key by key.

In come batches as a listener hands them over; out go lanes at once, as a drain has them. A second
process then finds a large backlog and is asked for its memory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.limits import at_least, at_most
from bench.processes import peak_mib, rss_mib
from bench.sampling import record
from noetl.blobs.spool.disk import DiskStore
from noetl.blobs.spool.item import Item, sha256_of
from noetl.blobs.spool.rules import Place, Rules
from noetl.blobs.spool.spool import Spool
from noetl.clock import SystemClock
from noetl.ids import Ids

if TYPE_CHECKING:
    from collections.abc import Iterator

ITEMS: Final = 20_000
MANY: Final = 200_000
KEYS: Final = 100
BATCH: Final = 200
"""Messages that a listener hands over at once."""
LANES: Final = 16
BODY: Final = "x" * 700
"""Makes an item of 1 KiB."""
MOST_MIB: Final = 60.0
PLACE: Final = Place("default", "bench/spool")
DOWNSTREAM: Final = "tsdb"


def records(repeat: int) -> list[dict[str, Any]]:
    """Messages a second in and out, and what a backlog costs in memory."""
    came, went, correct, size = [], [], True, 0
    for _ in range(min(repeat, 3)):
        with tempfile.TemporaryDirectory(prefix="noetl-bench-") as folder:
            rate_in, rate_out, is_right, size = asyncio.run(_rates(Path(folder)))
        came.append(rate_in)
        went.append(rate_out)
        correct = correct and is_right
    params = {"items": ITEMS, "keys": KEYS, "item_bytes": size, "lanes": LANES, "batch": BATCH}
    return [
        record(
            "spool-in", came, unit="items/s", better="higher", correct=correct, params=params,
            limits=[at_least("p50", 1500.0)],
        ),
        record(
            "spool-out", went, unit="items/s", better="higher", correct=correct, params=params,
            limits=[at_least("p50", 700.0, 300.0)],
        ),
        _memory(MANY),
    ]  # fmt: skip


def _items(count: int) -> Iterator[Item]:
    """Messages with keys in turn."""
    ids = Ids(SystemClock(), 1)
    plan = {"playbook": "plant/store_reading", "execution_pool": "meters", "trace": None}
    for number in range(count):
        name = f"plant.meters:3:{number}"
        message = {"id": name, "data": {"n": number, "body": BODY}, "headers": {}}
        yield Item(
            subscription=PLACE.path,
            source="kafka",
            message_id=name,
            recv_seq=ids.new(),
            ordering_key=f"m-{number % KEYS}",
            downstream=DOWNSTREAM,
            dispatch_key=f"m:{name}",
            sha256=sha256_of(message, plan),
            spooled_at="2026-05-01T10:00:00.000Z",
            reason="circuit_open",
            plan=plan,
            message=message,
        )


def _spool(folder: Path) -> Spool:
    return Spool(DiskStore(folder), PLACE, Rules(), SystemClock(), lambda *_: None)


async def _rates(folder: Path) -> tuple[float, float, bool, int]:
    spool, items = _spool(folder), list(_items(ITEMS))
    before = time.perf_counter()
    for start in range(0, ITEMS, BATCH):
        await asyncio.gather(*map(spool.put, items[start : start + BATCH]))
    came = time.perf_counter() - before
    size = spool.size_bytes // ITEMS
    before = time.perf_counter()
    went = await _drained(spool)
    taken = time.perf_counter() - before
    is_right = spool.pending() == 0 and went == {
        f"m-{key}": list(range(key, ITEMS, KEYS)) for key in range(KEYS)
    }
    return ITEMS / came, ITEMS / taken, is_right, size


async def _drained(spool: Spool) -> dict[str, list[int]]:
    """Everything out, several lanes at once; what came of each key."""
    found: dict[str, list[int]] = {}

    async def lane() -> None:
        while (entry := spool.take((DOWNSTREAM,))) is not None:
            item = await spool.get(entry)
            if item is not None:
                found.setdefault(item.ordering_key or "", []).append(item.message["data"]["n"])
            await spool.done(entry)

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return found


def _memory(count: int) -> dict[str, Any]:
    """How much a process grows that finds many messages, and when it lets them out."""
    folder = Path(tempfile.mkdtemp(prefix="noetl-bench-"))
    try:
        waiting = folder / PLACE.waiting
        waiting.mkdir(parents=True)
        for item in _items(count):
            (waiting / item.name).write_bytes(item.encode())
        words = [sys.executable, "-m", "bench.spool", str(folder)]
        told = subprocess.run(words, check=True, capture_output=True)
    finally:
        shutil.rmtree(folder)
    made = msgspec.json.decode(told.stdout)
    return record(
        "spool-memory", [made["peak_grew_mib"]], unit="MiB",
        correct=made["pending"] == made["went"] == count,
        params={"items": count}, limits=[at_most("p50", MOST_MIB, MOST_MIB)], **made,
    )  # fmt: skip


async def _grown(folder: Path) -> dict[str, Any]:
    pid = os.getpid()
    spool = _spool(folder)
    for item in _items(1):
        item.encode()
    before, began = rss_mib(pid), time.perf_counter()
    pending = await spool.recover()
    grew, recovered = rss_mib(pid) - before, time.perf_counter() - began
    went = sum(await asyncio.gather(*(_emptied(spool) for _ in range(LANES))))
    return {
        "pending": pending,
        "went": went,
        "grew_mib": round(grew, 1),
        "peak_grew_mib": round(peak_mib(pid) - before, 1),
        "recovered_s": round(recovered, 1),
    }


async def _emptied(spool: Spool) -> int:
    """What one lane lets out, until nothing is left; how many."""
    count = 0
    while (entry := spool.take((DOWNSTREAM,))) is not None:
        await spool.get(entry)
        await spool.done(entry)
        count += 1
    return count


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_grown(Path(sys.argv[1])))))
