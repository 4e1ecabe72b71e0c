"""The memory of a process that serves: what is there when it begins stays there."""

from __future__ import annotations

import gc
from typing import Final

GENERATIONS: Final = (20_000, 20, 50)
"""How many new objects there are before the youngest are looked through; then older ones."""


def settle() -> None:
    """What is there by now need not be looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GENERATIONS)
