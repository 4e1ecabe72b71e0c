"""What a gateway is told of a listener, and what it is asked to do with a delivery once more."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.api.credentials import SealedAnswer  # noqa: TC001 - msgspec reads the types of the fields


class IngressListener(msgspec.Struct, frozen=True, kw_only=True):
    """A push subscription as a gateway needs it, in every state of its life."""

    listener: str
    catalog_path: str
    tenant_id: str
    subscription_id: str
    version: int
    source: str
    state: str
    """`REGISTERED`, `ACTIVE`, `PAUSED`, `DRAINING` or `DEACTIVATED`."""
    document: str
    """The document, as it was registered: the gateway reads it as the server does."""
    etag: str
    """Another one whenever something that is told here has changed, a secret among it."""
    secrets: dict[str, SealedAnswer] = {}
    """By alias, each sealed to the key that the calling gateway has registered."""
    verify: dict[str, Any] = {}
    dispatch: dict[str, Any] = {}
    directives: tuple[dict[str, Any], ...] = ()
    spool: dict[str, Any] | None = None
    dedup: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class IngressListeners(msgspec.Struct, frozen=True, kw_only=True):
    """The names of all listeners, for a gateway that starts and looks for what waits."""

    listeners: tuple[str, ...]


class SendAgain(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A rejected delivery that is to be judged once more, without regard to its time."""

    replay_of: str
    headers: tuple[tuple[str, str], ...]
    body: str
    """Base64 of the bytes as they came."""
    query: str = ""


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a gateway answered a delivery."""

    status: int
    delivery_id: str | None = None
    execution_id: str | None = None
    outcome: str | None = None
    code: str | None = None


class ReplayDelivery(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Why a delivery is replayed."""

    reason: str = ""


class DeliveryFilter(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which deliveries are meant; those without a value are not looked at."""

    outcome: str | None = None
    reason: str | None = None
    message_id: str | None = None
    since: str | None = None
    until: str | None = None


class ReplayDeliveries(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Deliveries that are to be replayed, oldest first."""

    filter: DeliveryFilter
    limit: int = 100
    """1..1000"""
    reason: str = ""


class Replayed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one delivery that was replayed."""

    delivery_id: str
    status: str
    """`started`, `refused` (with the code), or `not_replayable`."""
    execution_id: str | None = None
    code: str | None = None


class DeliveriesReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of deliveries that were replayed."""

    items: tuple[Replayed, ...]


class TestDelivery(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A delivery that is signed with the secret of its listener and sent to a gateway."""

    __test__ = False

    body: str = ""
    """A text, or Base64 with `is_base64`."""
    is_base64: bool = False
    headers: dict[str, str] = {}
    query: str = ""


class KeepRejected(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The request of a rejected delivery, as far as its listener keeps such."""

    headers: tuple[tuple[str, str], ...] = ()
    """Without those that are credentials as a whole (tokens, keys, passwords)."""
    body: str = ""
    """Base64, at most 64 KiB of bytes."""
    query: str = ""
