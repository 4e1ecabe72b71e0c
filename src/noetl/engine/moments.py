"""Arithmetic on RFC 3339 times; no clock is read here."""

from __future__ import annotations

from datetime import datetime, timedelta


def later(moment: str, delay_ms: int) -> str:
    """A time some milliseconds after another."""
    return (datetime.fromisoformat(moment) + timedelta(milliseconds=delay_ms)).isoformat()
