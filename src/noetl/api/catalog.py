"""Documents under a path, each version for ever as it was registered."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Register(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A document to keep; `if_version` is the newest version that the caller knows of."""

    content: str
    message: str = ""
    resource_type: str = "Playbook"
    encoding: Literal["text", "base64"] = "text"
    if_version: int | None = None


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Where the document lies now."""

    path: str
    version: int
    catalog_id: str
    kind: str
    digest: str
    changed: bool
    status: str = "success"
    message: str = ""
    warnings: tuple[dict[str, Any], ...] = ()


class Resource(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which document is meant; `catalog_id` wins."""

    catalog_id: str | int | None = None
    path: str | None = None
    version: str | int | None = None


class CatalogQuery(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which documents a list shows."""

    resource_type: str | None = None
    path_prefix: str | None = None
    q: str | None = None
    include_archived: bool = False
    versions: Literal["latest", "all"] = "latest"
    content: bool = False
    limit: int = 50
    cursor: str | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document."""

    catalog_id: str
    path: str
    kind: str
    version: int
    content: str
    digest: str
    created_at: str
    layout: dict[str, Any] | None = None
    payload: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    archived_at: str | None = None
    created_by: str = ""
    message: str = ""


class CatalogItem(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document in a list, its content only when it was asked for."""

    catalog_id: str
    path: str
    kind: str
    version: int
    digest: str
    created_at: str
    content: str | None = None
    layout: dict[str, Any] | None = None
    payload: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    archived_at: str | None = None
    created_by: str = ""
    message: str = ""


class CatalogPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of documents."""

    entries: tuple[CatalogItem, ...]
    next_cursor: str | None = None
