"""Values over the inline limit: stored once, named by reference."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

INLINE_BYTES: Final = 64 * 1024
"""A value up to this size, as compact JSON, stands in its event."""


class PutResult(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A value to keep under a name of its run."""

    name: str
    data: Any = None
    scope: Literal["step", "execution", "workflow", "permanent"] = "execution"
    source_step: str = ""
    content_type: str = "application/json"


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value lies, and what of it is known without a fetch."""

    reference: dict[str, Any]
    ref: str = ""
    store: str = ""
    scope: str = "execution"
    size: int = 0
    sha256: str = ""
    expires_at: str | None = None
