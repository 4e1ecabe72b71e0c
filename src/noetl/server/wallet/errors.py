"""Refusals that are the wallet's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Sequence


class WorkerKeyMissing(NoetlError):
    """A worker to which nothing can be sealed."""

    code = "worker_key_missing"
    status: ClassVar[int] = 400


class ResidencyDenied(NoetlError):
    """A value that may not be read in this region."""

    code = "residency_denied"
    status: ClassVar[int] = 403


def must_reside(what: str, residency: str, allowed: Sequence[str], region: str) -> None:
    """Refuse a secret that must not be used in a region."""
    if residency == "strict" and region not in allowed:
        raise ResidencyDenied(
            f"{what} may be used in {', '.join(filter(None, allowed)) or 'no region'} only",
            hint=f"this server is in {region!r} (NOETL_SERVER_REGION)",
        )
