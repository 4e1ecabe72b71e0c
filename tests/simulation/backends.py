"""Store, bus and blobs as one server process sees them: slow, failing, and gone with the process.

The memory behind them is shared by all processes of a world and never fails itself.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from noetl.bus.base import BusGone
from noetl.store.base import Store
from tests.simulation.faults import Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from noetl.bus.base import Letter
    from noetl.bus.memory import MemoryBus
    from noetl.store.memory.store import MemoryStore
    from tests.simulation.faults import Faults

PARTS = tuple(name for name in Store.__annotations__ if name != "roles")


class Process:
    """Whether a process lives; a dead one reaches nothing and changes nothing."""

    def __init__(self, name: str, faults: Faults) -> None:
        self.name = name
        self.faults = faults
        self.is_dead = False
        self.is_cut = False
        self.on_crash: Callable[[], None] = lambda: None

    def alive(self) -> None:
        """Never return to a process that has died."""
        if self.is_dead:
            raise asyncio.CancelledError

    def crash(self) -> None:
        """Die here."""
        self.on_crash()


class FlakyStore:
    """All parts of a store behind one unreliable line."""

    def __init__(self, store: MemoryStore, process: Process) -> None:
        for part in PARTS:
            setattr(self, part, _Part(getattr(store, part), process))
        self.roles = _Roles(store.roles, process)


class _Part:
    def __init__(self, inner: Any, process: Process) -> None:
        self._inner = inner
        self._process = process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        process = self._process
        faults = process.faults

        async def call(*args: Any, **more: Any) -> Any:
            process.alive()
            await faults.dawdle("store_slow")
            if faults.hits("crash_in_store"):
                process.crash()
            process.alive()
            if faults.hits("store_fails"):
                raise Unreachable(f"{name} failed")
            done = await method(*args, **more)
            if faults.hits("crash_in_store"):
                process.crash()
            process.alive()
            await faults.dawdle("store_slow")
            process.alive()
            if faults.hits("store_answer_lost"):
                raise Unreachable(f"the answer of {name} was lost")
            return done

        self.__dict__[name] = call
        return call


class _Roles:
    """Roles that are lost now and then; whoever had one learns of it after somebody else has it."""

    def __init__(self, inner: Any, process: Process) -> None:
        self._inner = inner
        self._process = process

    @asynccontextmanager
    async def lead(self, role: str) -> AsyncIterator[asyncio.Event]:
        process = self._process
        faults = process.faults
        process.alive()
        if faults.hits("store_fails"):
            raise Unreachable(f"{role} cannot be asked for")
        lost = asyncio.Event()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._inner.lead(role))
            process.alive()
            losing = asyncio.create_task(self._lose(stack, lost))
            try:
                yield lost
            finally:
                losing.cancel()

    async def _lose(self, stack: AsyncExitStack, lost: asyncio.Event) -> None:
        faults = self._process.faults
        rate = faults.rates.role_lost
        if not rate:
            return
        await asyncio.sleep(faults.chance.expovariate(rate))
        if not faults.rates.role_lost:  # the troubles are over
            return
        faults.note("role_lost")
        await stack.aclose()
        await asyncio.sleep(faults.chance.random() ** 3 * 10)
        lost.set()

    @asynccontextmanager
    async def exclusive(self, key: str) -> AsyncIterator[None]:
        process = self._process
        process.alive()
        await process.faults.dawdle("store_slow")
        if process.faults.hits("store_fails"):
            raise Unreachable(f"{key} cannot be asked for")
        async with self._inner.exclusive(key):
            process.alive()
            yield


class FlakyBlobs:
    """Large values behind the same line."""

    def __init__(self, blobs: Any, process: Process) -> None:
        self._inner = blobs
        self._process = process

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in {"put", "get", "head"}:
            return found
        process = self._process

        async def call(*args: Any, **more: Any) -> Any:
            process.alive()
            if process.faults.hits("blobs_fail"):
                raise Unreachable(f"{name} of a blob failed")
            return await found(*args, **more)

        return call


class FlakyBus:
    """A bus that loses, repeats, delays and reorders; it is never the truth."""

    def __init__(self, bus: MemoryBus, process: Process) -> None:
        self._inner = bus
        self.process = process
        self._later: set[asyncio.Task[None]] = set()

    async def publish(self, subject: str, payload: bytes, msg_id: str) -> bool:
        await self.reach()
        faults = self.process.faults
        if faults.hits("bus_drops"):
            return True
        if faults.hits("bus_twice"):
            self._soon(self._inner.publish(subject, payload, f"{msg_id}/again"))
        return await self._inner.publish(subject, payload, msg_id)

    async def publish_many(self, letters: Sequence[Letter]) -> int:
        return sum([await self.publish(one.subject, one.payload, one.msg_id) for one in letters])

    async def tell(self, subject: str, payload: bytes) -> None:
        await self.reach()
        faults = self.process.faults
        if faults.hits("bus_drops"):
            return
        if faults.hits("bus_twice"):
            self._soon(self._inner.tell(subject, payload))
        await self._inner.tell(subject, payload)

    async def lag(self, pool: str) -> int:
        await self.reach()
        return await self._inner.lag(pool)

    def hints(self, pool: str) -> Any:
        return _FlakyHints(self._inner.hints(pool), self)

    def listen(self, subject: str) -> Any:
        return self._inner.listen(subject)

    async def close(self) -> None:
        """The bus outlives the process."""

    async def reach(self) -> None:
        """Fail when the bus is away."""
        self.process.alive()
        if self.process.is_cut or self.process.faults.hits("bus_gone"):
            raise BusGone("the bus is away")

    def _soon(self, coro: Any) -> None:
        async def later() -> None:
            await asyncio.sleep(self.process.faults.chance.random() * 5)
            await coro

        task = asyncio.get_running_loop().create_task(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)


class _FlakyHints:
    def __init__(self, inner: Any, bus: FlakyBus) -> None:
        self._inner = inner
        self._bus = bus

    async def fetch(self, limit: int, timeout_s: float) -> list[Any]:
        await self._bus.reach()
        found = await self._inner.fetch(limit, timeout_s)
        faults = self._bus.process.faults
        faults.chance.shuffle(found)
        return [message for message in found if not faults.hits("bus_drops")]
