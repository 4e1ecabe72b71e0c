"""Two threads and a short queue: one reads batches while the other writes them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from noetl.tools.transfer.plan import Source, Target

T = TypeVar("T")

IN_FLIGHT: Final = 4
"""Batches in memory: one is read, one is written, the others wait between them."""
_BEAT_S: Final = 0.1
_PATIENCE_S: Final = 10.0


@dataclass(slots=True)
class Moved:
    """How much has passed."""

    rows: int = 0
    chunks: int = 0
    bytes: int = 0
    columns: tuple[str, ...] = ()


class Lanes:
    """The threads of one transfer; when its task is cancelled they are told to stop, and do."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="transfer")
        self._stops: list[Callable[[], None]] = []
        self.stopped = threading.Event()

    def on_stop(self, stop: Callable[[], None]) -> None:
        """What ends the work of a side that waits for its server."""
        self._stops.append(stop)

    async def run(self, work: Callable[..., T], *given: Any) -> T:  # noqa: ANN401 - passed on
        """Run work in a thread; a cancelled task leaves no thread behind."""
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._pool, lambda: work(*given))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.shield(self._stop(running))
            raise

    async def _stop(self, running: asyncio.Future[Any]) -> None:
        self.stopped.set()
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while not running.done() and asyncio.get_running_loop().time() < deadline:
            for stop in self._stops:  # again and again: between two statements one is lost
                stop()
            await asyncio.wait([running], timeout=_BEAT_S)
        if running.done() and not running.cancelled():
            running.exception()

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def pump(
    source: Source,
    target: Target,
    lanes: Lanes,
    on_batch: Callable[[Moved], None],
) -> Moved:
    """Move every batch from the source to the target, at most `IN_FLIGHT` of them at once."""
    queue: Queue[pa.RecordBatch | None] = Queue(maxsize=IN_FLIGHT - 2)
    moved = Moved()

    def read() -> None:
        try:
            for batch in source.batches():
                if not _put(queue, batch, lanes.stopped):
                    return
            _put(queue, None, lanes.stopped)
        except BaseException:
            lanes.stopped.set()
            raise

    def write() -> None:
        try:
            while (batch := _get(queue, lanes.stopped)) is not None:
                target.write(batch)
                moved.rows += batch.num_rows
                moved.chunks += 1
                moved.bytes += batch.nbytes
                on_batch(moved)
        except BaseException:
            lanes.stopped.set()
            raise

    ends = await asyncio.gather(lanes.run(read), lanes.run(write), return_exceptions=True)
    faults = [end for end in ends if isinstance(end, BaseException)]
    if faults:
        raise faults[0]
    return moved


def _put(queue: Queue[Any], item: object, stopped: threading.Event) -> bool:
    while not stopped.is_set():
        try:
            queue.put(item, timeout=_BEAT_S)
        except Full:
            continue
        return True
    return False


def _get(queue: Queue[Any], stopped: threading.Event) -> Any:  # noqa: ANN401 - a batch, or None at the end
    while not stopped.is_set():
        try:
            return queue.get(timeout=_BEAT_S)
        except Empty:
            continue
    return None
