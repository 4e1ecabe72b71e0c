"""Times as texts: some seconds from now, and as callers write them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable

if TYPE_CHECKING:
    from noetl.clock import Clock

_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)([Zz]|[+ -]\d\d:?\d\d)?\Z", re.ASCII
)


def from_now(clock: Clock, seconds: float) -> str:
    """The time so many seconds from now; before now when they are negative."""
    return rfc3339(clock.now() + timedelta(seconds=seconds))


def seconds_until(clock: Clock, moment: str) -> float:
    """How long it is until a time; negative when it has passed."""
    return (datetime.fromisoformat(moment) - clock.now()).total_seconds()


def seconds_between(first: str, second: str) -> float:
    """How long it is from one time to another."""
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


def moment_of(text: str, name: str) -> str:
    """A time in the one form of answers; without a zone it is UTC."""
    found = _TIME.match(text)
    try:
        if found is None:
            raise ValueError(text)  # noqa: TRY301 - a time of no other form
        zone = (found[3] or "+00:00").upper().replace(" ", "+")  # a query turns `+` into a space
        return rfc3339(datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}"))
    except (ValueError, OverflowError):
        raise Unacceptable(
            f"`{name}` is not a time: {text[:60]!r}",
            code="bad_time",
            hint="RFC 3339, such as 2026-01-31T12:00:00Z",
            errors=({"pointer": f"/{name}", "code": "bad_time"},),
        ) from None
