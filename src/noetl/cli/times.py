"""Moments as people write and read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from noetl.cli.failures import CommandFailed
from noetl.cli.text import duration
from noetl.clock import rfc3339

if TYPE_CHECKING:
    from noetl.cli.output import Time

_SPAN: Final = re.compile(r"(\d{1,9})(s|m|h|d|w)\Z")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS: Final = 48 * 3600
_MINUTE: Final = 60
_OF_DAY: Final = slice(11, 23)


@dataclass(frozen=True, slots=True)
class At:
    """A moment in a table: shown as `--time` says, else by how long ago it was."""

    text: str | None
    is_of_day: bool = False
    """Whether it is shown by the time of its day, unless `--time` says otherwise."""

    def shown(self, style: Time | None, now: datetime) -> str:
        """As a cell of a table."""
        if not self.text:
            return "-"
        if style is None and self.is_of_day:
            return self.text[_OF_DAY]
        if style == "iso":
            return self.text
        if style == "unix":
            return f"{datetime.fromisoformat(self.text).timestamp():.3f}"
        return ago(self.text, now)


def moment(option: str, text: str, now: datetime, *, is_ahead: bool = False) -> str:
    """A time that an option names: RFC 3339, or how long ago; ahead: in how long."""
    span = _SPAN.match(text)
    try:
        if span is not None:
            length = timedelta(**{_UNITS[span[2]]: int(span[1])})
            return rfc3339(now + length if is_ahead else now - length)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as fault:
        message = f"`{option} {text}` is not a time"
        span_is = "in how long" if is_ahead else "how long ago"
        hint = f"write it like 2026-01-31T12:00:00Z, or {span_is}: 90s, 10m, 2h, 7d"
        raise CommandFailed("usage", message, hint=hint) from fault
    return rfc3339(found if found.tzinfo else found.replace(tzinfo=UTC))


def ago(at: str, now: datetime) -> str:
    """`4 min ago`: one unit is enough in a table; what is to come is `in 4 min`."""
    passed = int((now - datetime.fromisoformat(at)).total_seconds())
    if passed == 0:
        return "now"
    seconds = abs(passed)
    if seconds >= _DAYS:
        span = f"{seconds // 86400} d"
    elif seconds < _MINUTE:
        span = f"{seconds} s"
    else:
        words = duration(seconds * 1000).split()
        span = f"{words[0]} {words[1]}"
    return f"{span} ago" if passed > 0 else f"in {span}"
