"""Commands that one more loss would end do not run beside each other.

A command that kills its worker takes those beside it along, each time they run together. Where none
of them has a try left, a worker gets them one by one, so that only the killer comes to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.store.base import CommandRow, Commands


def is_last_chance(losses: int, most: int) -> bool:
    """Whether a command that was lost before ends when it is lost again."""
    return 0 < losses >= most - 1


async def is_wary(
    commands: Commands, worker_id: str, is_over: Callable[[CommandRow], bool]
) -> bool:
    """Whether a worker holds a command that one more loss would end.

    `is_over` knows of commands that end with what is about to be committed.
    """
    rows = await commands.of_worker(worker_id)
    return any(is_last_chance(row.losses, row.max_attempts) and not is_over(row) for row in rows)
