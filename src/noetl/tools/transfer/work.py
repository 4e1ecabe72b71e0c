"""One transfer as its sides see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.tools.base import ToolContext
    from noetl.tools.transfer.plan import Plan
    from noetl.tools.transfer.pump import Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One transfer, and what it runs with."""

    plan: Plan
    ctx: ToolContext
    lanes: Lanes
    folder: Path
    """For files that it needs on the way."""
