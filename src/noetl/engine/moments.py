"""Arithmetic on RFC 3339 times; no clock is read here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def later(moment: str, delay_ms: int) -> str:
    """A time some milliseconds after another, in the one form that compares as text."""
    shifted = datetime.fromisoformat(moment) + timedelta(milliseconds=delay_ms)
    return _text(shifted)


def between_ms(start: str, end: str) -> int:
    """The milliseconds from one time to another."""
    passed = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return round(passed.total_seconds() * 1000)


def utc(moment: str) -> str:
    """A time with any offset, in the one form; without an offset it is UTC."""
    read = datetime.fromisoformat(moment)
    return _text(read if read.tzinfo else read.replace(tzinfo=UTC))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
