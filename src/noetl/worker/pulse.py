"""The heart with a thread, an event loop and a connection of its own.

Whatever keeps the worker's loop busy, the leases are extended; what the answers say is done on the
worker's loop as soon as it can.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.telemetry.failpoint import armed, failpoint
from noetl.worker.heartbeat import Look, is_unknown, note

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from noetl.api.client import Client
    from noetl.api.commands import Beat
    from noetl.worker.heartbeat import Chart

LOOK_S: Final = 0.2
"""How long the worker's loop has to tell its checkpoints; then a beat goes without them."""
AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """A client with a connection of its own."""

    client: Client
    close: Callable[[], Awaitable[None]]


class Pulse:
    """Beats from a thread while the worker lives."""

    def __init__(self, connect: Callable[[], Line], chart: Chart) -> None:
        self._connect = connect
        self._chart = chart
        self._registering: set[asyncio.Task[None]] = set()

    async def run(
        self,
        register: Callable[[], Coroutine[Any, Any, None]],
        on_beat: Callable[[Beat], None],
    ) -> None:
        """Beat three times a lease, until cancelled."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        beating = _Beating(self._connect, self._chart, _Worker(loop, self, register, on_beat))
        thread = threading.Thread(
            target=beating.main, args=(ended,), name="noetl-heartbeat", daemon=True
        )
        thread.start()
        try:
            await asyncio.shield(ended)
        finally:
            beating.stop()
            await asyncio.wait([ended])
            thread.join()
            for task in self._registering:
                task.cancel()
            await asyncio.gather(*self._registering, return_exceptions=True)

    def again(self, register: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Make the worker known once more, one request at a time."""
        if not self._registering:
            task = asyncio.get_running_loop().create_task(register())
            self._registering.add(task)
            task.add_done_callback(self._registered)

    def _registered(self, task: asyncio.Task[None]) -> None:
        self._registering.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            note(fault if isinstance(fault, Exception) else RuntimeError(str(fault)))


@dataclass(frozen=True, slots=True)
class _Worker:
    """The worker's loop, and what the thread has it do."""

    loop: asyncio.AbstractEventLoop
    pulse: Pulse
    register: Callable[[], Coroutine[Any, Any, None]]
    on_beat: Callable[[Beat], None]


class _Beating:
    """What runs in the thread."""

    def __init__(self, connect: Callable[[], Line], chart: Chart, worker: _Worker) -> None:
        self._connect = connect
        self._chart = chart
        self._worker = worker
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = threading.Event()

    def main(self, ended: asyncio.Future[None]) -> None:
        """Beat until stopped; then tell the worker's loop how it ended."""
        fault: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._beats())
        except asyncio.CancelledError:
            pass
        except BaseException as defect:  # noqa: BLE001 - the border: the worker's loop raises it
            fault = defect
        self._worker.loop.call_soon_threadsafe(_finish, ended, fault)

    def stop(self) -> None:
        """End the beats; from the worker's thread."""
        self._is_stopped.set()
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            return  # the loop is closed: it has ended already

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _beats(self) -> None:
        self._task = asyncio.current_task()
        if self._is_stopped.is_set():
            return
        chart, worker = self._chart, self._worker
        line = self._connect()
        last = self._loop.time()
        delay_s = chart.interval_s
        try:
            while True:
                await asyncio.sleep(delay_s)
                look = await self._looked()
                if armed:
                    await failpoint("worker.heartbeat")
                try:
                    async with asyncio.timeout(chart.interval_s):
                        beat = await line.client.pool_heartbeat(chart.body(look))
                except Exception as fault:  # noqa: BLE001 - the border: a worker outlives its server
                    is_doubtful = chart.is_in_doubt(self._loop.time() - last)
                    worker.loop.call_soon_threadsafe(self._missed, look, is_doubtful, fault)
                    delay_s = min(AGAIN_S, chart.interval_s)
                    continue
                last = self._loop.time()
                delay_s = chart.interval_s
                worker.loop.call_soon_threadsafe(self._beaten, look, beat)
        finally:
            await line.close()

    async def _looked(self) -> Look:
        """What the worker's loop tells, or what can be seen without it."""
        told: asyncio.Future[Look] = self._loop.create_future()
        self._worker.loop.call_soon_threadsafe(self._look, told)
        try:
            async with asyncio.timeout(LOOK_S):
                return await asyncio.shield(told)
        except TimeoutError:
            # Whatever it tells later was not sent with this beat.
            told.add_done_callback(self._wasted)
            return self._chart.glance()

    def _wasted(self, told: asyncio.Future[Look]) -> None:
        if not told.cancelled():
            self._worker.loop.call_soon_threadsafe(self._chart.unsent, told.result())

    # ------------------------------------------------------------------ on the worker's loop

    def _look(self, told: asyncio.Future[Look]) -> None:
        look = self._chart.look()
        try:
            self._loop.call_soon_threadsafe(_tell, told, look)
        except RuntimeError:  # the thread has ended
            self._chart.unsent(look)

    def _beaten(self, look: Look, beat: Beat) -> None:
        self._chart.beaten(look, beat)
        self._worker.on_beat(beat)

    def _missed(self, look: Look, is_doubtful: bool, fault: Exception) -> None:  # noqa: FBT001 - passed by position to the loop
        self._chart.missed(look, is_doubtful=is_doubtful)
        if is_unknown(fault):
            self._worker.pulse.again(self._worker.register)
        else:
            note(fault)


def _tell(told: asyncio.Future[Look], look: Look) -> None:
    if not told.done():
        told.set_result(look)


def _finish(ended: asyncio.Future[None], fault: BaseException | None) -> None:
    if ended.done():
        return
    if fault is None:
        ended.set_result(None)
    else:
        ended.set_exception(fault)
