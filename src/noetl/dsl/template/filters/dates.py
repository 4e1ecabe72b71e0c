"""Filters over instants, which are RFC 3339 texts in UTC: templates hold no other type of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.values import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.dsl.template.limits import Meter

# Longer texts are no instants, whatever blanks they start with.
_LONGEST: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _instant(value: object) -> datetime:
    """Return the instant of a text (ISO 8601; without an offset it is UTC) or of epoch seconds."""
    try:
        if isinstance(value, str):
            # The text is cut, so that a huge one is refused without being read.
            found = datetime.fromisoformat(value[:_LONGEST].strip())
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return _EPOCH + timedelta(seconds=value)
    except (ValueError, OverflowError):
        raise TemplateFailure(f"`{str(value)[:40]}` is not a date and time") from None
    raise TemplateFailure(f"a value of type {kind_of(value)} is not a date and time")


def _shown(instant: datetime) -> str:
    return instant.isoformat().removesuffix("+00:00") + "Z"


def _todatetime(_meter: Meter, value: object) -> str:
    return _shown(_instant(value))


def _add_seconds(_meter: Meter, value: object, n: object) -> str:
    if not isinstance(n, (int, float)):
        raise TemplateFailure(f"the seconds must be a number, not {kind_of(n)}")
    try:
        return _shown(_instant(value) + timedelta(seconds=n))
    except OverflowError:
        raise TemplateFailure("the date is out of range") from None


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "add_seconds": _add_seconds,
    "isoformat": _todatetime,
    "todatetime": _todatetime,
}
