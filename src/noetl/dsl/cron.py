"""Five-field schedules and time zones: whether they are right, and when they fire.

A zone is looked up in the tz database of the interpreter. That reads a constant table, as an import
does; nothing here asks what time it is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_FIELDS = 5
_MOST = 256
_FORMS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a local time on purpose; the zone comes later
_NOT_ZONES = frozenset({"localtime", "posix", "posixrules", "right"})


def cron_fault(text: str) -> str | None:
    """What is wrong with a schedule; None when it is right."""
    expression = _plain(text)
    if len(expression) > _MOST:
        return f"a schedule has {_MOST} characters at most"
    if expression.startswith("@"):
        return f"`{text[:40]}` is not one of {', '.join(_FORMS)}"
    count = len(expression.split())
    if count != _FIELDS:
        return f"a schedule has five fields, not {count}"
    try:
        fires = CronSim(expression, _ANY_DAY)
    except CronSimError as fault:
        return f"`{text[:40]}`: {str(fault).lower()}"
    return None if next(fires, None) else f"`{text[:40]}` never fires"


def timezone_fault(name: str) -> str | None:
    """What is wrong with the name of a time zone; None when it is an IANA name."""
    if name.partition("/")[0] not in _NOT_ZONES:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):  # unknown; not a key; a folder of the database
            pass
        else:
            return None
    return f"`{name[:80]}` is not an IANA time zone"


def next_fires(cron: str, timezone: str, after: datetime, count: int) -> list[datetime]:
    """The next instants, in UTC, at which a schedule fires.

    A local time that does not exist fires at the next existing instant; one that exists twice fires
    once, the first time.
    """
    zone = ZoneInfo(timezone)
    local = after.astimezone(zone).replace(tzinfo=None)
    fires: list[datetime] = []
    last = after.astimezone(UTC)
    for tick in CronSim(_plain(cron), local):
        if len(fires) == count:
            break
        instant = _instant(tick, zone)
        if instant > last:
            fires.append(instant)
            last = instant
    return fires


def _plain(text: str) -> str:
    """The five fields of a schedule, `@hourly` forms written out."""
    expression = text.strip()
    return _FORMS.get(expression.lower(), expression)


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    """The instant of a local time: the first of two, or the end of the gap it falls into."""
    instant = local.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == local:
        return instant
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    old = before.astimezone(zone).utcoffset()
    while instant - before > timedelta(seconds=1):
        middle = before + (instant - before) // 2
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            instant = middle
    return instant.replace(microsecond=0)


def is_moment(text: str) -> bool:
    """Whether a text is an RFC 3339 date and time."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text or " " in text
