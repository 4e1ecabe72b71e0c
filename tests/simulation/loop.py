"""An event loop with virtual time that runs what is ready in an order which the seed decides."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeVar

from noetl.local.virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class ShuffledLoop(VirtualLoop):
    """Whatever could run now may run first: tasks get no order that asyncio happens to give."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self.turns = 0

    def _run_once(self) -> None:
        ready = self._ready
        self.turns += 1
        if len(ready) > 1:
            mixed = list(ready)
            self._chance.shuffle(mixed)
            ready.clear()
            ready.extend(mixed)
        super()._run_once()


def run_shuffled(main: Coroutine[Any, Any, T], seed: str) -> T:
    """Run a coroutine to its end; the worker's own random delays follow the seed too."""
    before = random.getstate()
    random.seed(seed)
    try:
        with asyncio.Runner(loop_factory=lambda: ShuffledLoop(seed)) as runner:
            return runner.run(main)
    finally:
        random.setstate(before)
