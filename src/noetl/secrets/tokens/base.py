"""A token that was made, and how long it holds."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Fields as a task reads them; they are secret and never shown."""

    fields: Mapping[str, Any] = field(repr=False)
    expires_in: float | None = None
    """Seconds that the issuer gives it; None when the issuer does not say."""


def seconds(value: object) -> float | None:
    """A number of seconds that an issuer told, as number or as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if 0 < found < float("inf") else None


def left_of(jwt: str, now: datetime) -> float | None:
    """Seconds until a JWT of an issuer that we asked ourselves ends; it is not verified here."""
    parts = jwt.split(".")
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="))
        return seconds(claims["exp"] - now.timestamp())
    except (IndexError, KeyError, TypeError, ValueError, msgspec.MsgspecError):
        return None
