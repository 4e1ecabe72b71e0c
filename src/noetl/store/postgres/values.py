"""Ids and times between rows and columns, the same both ways."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from noetl.clock import rfc3339

_LARGEST: Final = (1 << 63) - 1
_LONGEST: Final = len(str(_LARGEST))


def id_of(text: str | None) -> int | None:
    """An id as its column holds it; nothing for a text that is no id, which no row has."""
    if text is None or len(text) > _LONGEST or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= _LARGEST else None


def text_of(number: int | None) -> str | None:
    """An id as rows show it."""
    return None if number is None else str(number)


def moment(text: str | None) -> datetime | None:
    """A time as its column holds it; an empty text is none."""
    return datetime.fromisoformat(text) if text else None


def told(time: datetime | None) -> str | None:
    """A time as rows show it."""
    return None if time is None else rfc3339(time)
