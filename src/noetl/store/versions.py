"""What became of the versions of a document: which one its path means, and which were put away.

A path means the version that was last made its meaning and is not put away. So a version that is
archived hands its path back to the one before, and one that is restored takes it again.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from noetl.store.errors import NotNewest


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document, without its content."""

    catalog_id: str
    version: int
    kind: str
    digest: str
    created_at: str
    created_by: str = ""
    message: str = ""
    archived_at: str | None = None
    active: bool = False
    execution_count: int = 0


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of versions that were to go: those that have runs were only archived."""

    deleted: tuple[int, ...] = ()
    archived: tuple[int, ...] = ()


class Versions(Protocol):
    """The versions of one path of one tenant; without a number, every one of them is meant."""

    async def page(
        self, tenant_id: str, path: str, limit: int = 50, before: int | None = None
    ) -> list[VersionRow]:
        """Versions below a number, newest first, with the number of their runs."""

    async def promote(self, tenant_id: str, path: str, version: int) -> bool:
        """Make a version what its path means; false when it is not there or archived."""

    async def archive(
        self, tenant_id: str, path: str, version: int | None, now: str
    ) -> tuple[int, ...]:
        """Put versions away; those that were not so before."""

    async def restore(self, tenant_id: str, path: str, version: int | None) -> tuple[int, ...]:
        """Bring versions back; those that were archived."""

    async def remove(self, tenant_id: str, path: str, version: int | None, now: str) -> Removed:
        """Remove versions that no run was made with, and archive the others."""


def must_be_newest(path: str, newest: int, if_version: int | None) -> None:
    """Refuse to write on top of a version that is not the newest one (0: there is none)."""
    if if_version is not None and if_version != newest:
        raise NotNewest(
            f"the newest version of {path} is {newest}, not {if_version}",
            hint="read it, and write on top of it",
        )
