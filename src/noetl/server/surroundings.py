"""What of the server's own machine may be read as a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Variables and files that credentials may be read from."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the operator allows, with their values."""
    folders: tuple[Path, ...] = ()
    """Folders whose files may be read."""
