"""Values over the inline limit: stored once, named by reference."""

from __future__ import annotations

from typing import Any, Final

import msgspec

INLINE_BYTES: Final = 64 * 1024
"""A value up to this size, as compact JSON, stands in its event."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value lies, and what of it is known without a fetch."""

    reference: dict[str, Any]
