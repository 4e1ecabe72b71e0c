"""Moments as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from noetl.cli.failures import CommandFailed
from noetl.cli.tree import duration
from noetl.clock import rfc3339

_SPAN: Final = re.compile(r"(\d{1,9})(s|m|h|d|w)\Z")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS: Final = 48 * 3600
_MINUTE: Final = 60


def moment(option: str, text: str, now: datetime) -> str:
    """A time that an option names: RFC 3339, or how long ago."""
    span = _SPAN.match(text)
    try:
        if span is not None:
            return rfc3339(now - timedelta(**{_UNITS[span[2]]: int(span[1])}))
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as fault:
        message = f"`{option} {text}` is not a time"
        hint = "write it like 2026-01-31T12:00:00Z, or how long ago: 90s, 10m, 2h, 7d"
        raise CommandFailed("usage", message, hint=hint) from fault
    return rfc3339(found if found.tzinfo else found.replace(tzinfo=UTC))


def ago(at: str, now: datetime) -> str:
    """`4 min ago`: one unit is enough in a table."""
    seconds = int((now - datetime.fromisoformat(at)).total_seconds())
    if seconds < 1:
        return "now"
    if seconds >= _DAYS:
        return f"{seconds // 86400} d ago"
    if seconds < _MINUTE:
        return f"{seconds} s ago"
    words = duration(seconds * 1000).split()
    return f"{words[0]} {words[1]} ago"
