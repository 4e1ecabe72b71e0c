"""Workers make themselves known."""

from __future__ import annotations

from typing import Any

import msgspec


class WorkerEntry(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A worker joins its pool."""

    name: str
    labels: dict[str, str]
    capacity: int
    component_type: str = "worker_pool"
    status: str = "ready"
    hostname: str = ""
    capabilities: dict[str, Any] = {}
    runtime: dict[str, Any] = {}


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The worker is known."""

    name: str
    lease_seconds: float
    status: str = "ok"


class Left(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker leaves."""

    name: str
