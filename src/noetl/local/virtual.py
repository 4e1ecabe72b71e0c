"""An event loop whose time jumps to the next timer instead of waiting for it.

Everything above it stays as it is: `asyncio.sleep` of an hour costs nothing and keeps its order.
Work outside the loop (a child interpreter, a thread) takes real time and must be marked as such,
or its deadline would come before its answer could.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
LOOK_EVERY: Final = 64


class Stalled(RuntimeError):
    """Nothing is ready, no timer is set and no work is outside: nothing can ever happen."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that waits only for work that was marked as real."""

    def __init__(self) -> None:
        self._now = 0.0
        self._real = 0
        self._since = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Virtual seconds; they pass by themselves only while real work is under way."""
        return self._now + (super().time() - self._since if self._real else 0.0)

    @contextmanager
    def real(self) -> Iterator[None]:
        """While this lasts the loop waits at the pace of the machine."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    @property
    def is_real(self) -> bool:
        """Whether real work is under way."""
        return self._real > 0

    def jump(self, seconds: float | None) -> None:
        """Let time pass at once, to the very moment of the next timer.

        Adding the wait could fall short of it by a rounding; asyncio would still run the timer, and
        whoever then waits for the rest would wait for ever on a clock that stands still.
        """
        if seconds is None:
            raise Stalled("no timer is set and nothing outside is under way")
        moments: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's own heap
        after = moments[0].when() if moments else self._now + seconds
        self._now = max(after, math.nextafter(self._now, math.inf))

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Work in a thread is real work."""
        self._begin()
        try:
            future = super().run_in_executor(executor, func, *args)
        except BaseException:
            self._end()
            raise
        future.add_done_callback(lambda _: self._end())
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncio declares it
        """Waiting for threads is real."""
        del timeout  # known from Python 3.12 on; the threads of a test end by themselves
        with self.real():
            await super().shutdown_default_executor()

    def _begin(self) -> None:
        if not self._real:
            self._since = super().time()
        self._real += 1

    def _end(self) -> None:
        now = self.time()
        self._real -= 1
        if not self._real:
            self._now = now


class _Jumping(selectors.BaseSelector):
    """The real selector, but for the wait."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._inner = selectors.DefaultSelector()
        self._unseen = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; while no work is real, time jumps instead of being waited for.

        Then only what nobody waits for can happen outside (an idle child ends), so it is enough to
        look now and then: every look hands the interpreter to another thread, and getting it back
        may take longer than all the rest.
        """
        if self._loop.is_real:
            return self._inner.select(timeout)
        ready: list[tuple[selectors.SelectorKey, int]] = []
        self._unseen += 1
        if timeout is None or self._unseen == LOOK_EVERY:
            self._unseen = 0
            ready = self._inner.select(0)
        if not ready and timeout != 0:
            self._loop.jump(timeout)
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # noqa: ANN401 - as selectors declares it
        """Watch a file."""
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:  # noqa: ANN401 - as above
        """Watch a file no more."""
        return self._inner.unregister(fileobj)

    def close(self) -> None:
        """Release the real selector."""
        self._inner.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """The watched files."""
        return self._inner.get_map()


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def real() -> AbstractContextManager[None]:
    """Mark work outside the loop, on a loop of either kind."""
    loop = asyncio.get_running_loop()
    return loop.real() if isinstance(loop, VirtualLoop) else nullcontext()
