"""Documents under a path, each version for ever as it was registered."""

from __future__ import annotations

from typing import Any

import msgspec


class Register(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A document to keep."""

    content: str
    message: str = ""


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Where the document lies now."""

    path: str
    version: int
    catalog_id: str
    kind: str
    digest: str
    changed: bool
    status: str = "success"
    warnings: tuple[dict[str, Any], ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document."""

    catalog_id: str
    path: str
    kind: str
    version: int
    content: str
    digest: str
    created_at: str
