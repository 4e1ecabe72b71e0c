"""Values over the inline limit: stored once, named by reference."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

INLINE_BYTES: Final = 64 * 1024
"""A value up to this size, as compact JSON, stands in its event."""
MANIFEST: Final = "application/vnd.noetl.manifest+json"
"""The media type of a list of stored values that are read as one."""

Scope = Literal["step", "execution", "workflow", "permanent"]
Strategy = Literal["append", "replace", "merge", "concat"]


class PutResult(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A value to keep under a name of its run."""

    name: str
    data: Any = None
    scope: Scope = "execution"
    source_step: str = ""
    ttl: int | None = None
    """Seconds after which it is expired; none: it stays as long as its scope says."""
    content_type: str = "application/json"
    """`application/vnd.noetl.manifest+json`: the data is a `Manifest`."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value lies, and what of it is known without a fetch."""

    reference: dict[str, Any]
    ref: str = ""
    store: str = ""
    scope: str = "execution"
    size: int = 0
    sha256: str = ""
    expires_at: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stored values that are read as one.

    `concat`: the bytes of all parts. `append`: one list of the items of all parts, a part that is
    no list being one item. `merge`: one object with the keys of all parts, the last one's value.
    `replace`: the last part.
    """

    strategy: Strategy
    parts: tuple[str, ...]


class ResultItem(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a stored value."""

    ref: str
    name: str
    scope: str
    source_step: str | None
    store: str
    size: int
    sha256: str
    content_type: str
    created_at: str | None
    expires_at: str | None


class ResultPage(msgspec.Struct, frozen=True, kw_only=True):
    """Stored values of a run, by reference."""

    items: tuple[ResultItem, ...]
    next_cursor: str | None = None


class ResultsDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """How many there were."""

    execution_id: str
    results_deleted: int
    status: str = "deleted"
