"""Values over the inline limit: stored once, named by reference."""

from __future__ import annotations

from typing import Any

import msgspec


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value lies, and what of it is known without a fetch."""

    reference: dict[str, Any]
