"""When a time table fires: pure arithmetic over its row, the same on every server.

A tick is the time that the author wrote. It fires at that time plus a jitter which follows from the
schedule and the tick alone and never reaches the next tick, so that ticks keep their order and
every server computes the same moments.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.dsl.cron import cron_fault, next_fires

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.store.base import ScheduleRow

MOST_CATCHUP: Final = 100
LATE: Final = timedelta(seconds=60)
"""A tick without catch-up that is later than this was missed."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT: Final = timedelta(microseconds=1)
_PAGE: Final = 16
_WINDOWS: Final = (timedelta(hours=1), timedelta(days=1), timedelta(days=30))


def moment_of(text: str) -> datetime:
    """A time as text; without a zone it is UTC."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def ticks(row: ScheduleRow, after: datetime, *, is_included: bool = False) -> Iterator[datetime]:
    """The ticks of a time table after, or from, a moment, within its own beginning and end."""
    start, end = _bound(row, "start_at"), _bound(row, "end_at")
    if is_included:
        after -= _INSTANT
    if start is not None:
        after = max(after, start - _INSTANT)
    found = _of_interval(row, after, start) if row.cron is None else _of_cron(row, row.cron, after)
    return found if end is None else takewhile(lambda tick: tick <= end, found)


def fires_at(row: ScheduleRow, tick: datetime) -> datetime:
    """When a tick fires."""
    jitter_s = float(row.policy.get("jitter_s") or 0)
    if jitter_s <= 0:
        return tick
    following = next(ticks(row, tick), None)
    if following is not None:
        jitter_s = min(jitter_s, (following - tick).total_seconds())
    drawn = sha256(f"{row.schedule_id}:{rfc3339(tick)}".encode()).digest()
    part = int.from_bytes(drawn[:6], "big") / 2**48
    return tick + timedelta(milliseconds=int(part * jitter_s * 1000))


def next_run_at(row: ScheduleRow, after: datetime) -> str | None:
    """When the first tick after a moment fires; none when there is none left."""
    tick = next(ticks(row, after), None)
    return None if tick is None else rfc3339(fires_at(row, tick))


def due(row: ScheduleRow, now: datetime) -> tuple[list[datetime], str | None]:
    """The ticks to run now, by the rule of what was missed; and when the next one fires."""
    if row.next_run_at is None:
        return [], None
    if row.cron is not None and (fault := cron_fault(row.cron)) is not None:
        raise ValueError(fault)
    catchup = row.policy.get("catchup", "latest")
    bound = int(row.policy.get("max_catchup") or MOST_CATCHUP)
    most = min(bound, MOST_CATCHUP) if catchup == "all" else 1
    passed = _passed(row, _tick_of(row), now, most)
    following = next(ticks(row, now), None)
    if passed and fires_at(row, passed[-1]) > now:
        following = passed.pop()
    next_at = None if following is None else rfc3339(fires_at(row, following))
    chosen = passed[-most:]
    if catchup == "none" and chosen and now - fires_at(row, chosen[-1]) > LATE:
        chosen = []
    return chosen, next_at


def _tick_of(row: ScheduleRow) -> datetime:
    """The tick that a row waits for: the last one before it fires."""
    fires = moment_of(row.next_run_at or "")
    jitter = timedelta(seconds=float(row.policy.get("jitter_s") or 0))
    found = fires
    if jitter:
        for tick in takewhile(lambda tick: tick <= fires, ticks(row, fires - jitter - _INSTANT)):
            found = tick
    return found


def _passed(row: ScheduleRow, first: datetime, now: datetime, most: int) -> list[datetime]:
    """The ticks from the awaited one until now; of a long gap at least the newest ones.

    One more than asked for is found, as the newest may still have to wait for its jitter.
    """
    for window in _WINDOWS:
        if now - window <= first:
            break
        recent = list(takewhile(lambda tick: tick <= now, ticks(row, now - window)))
        if len(recent) > most:
            return recent
    later = takewhile(lambda tick: tick <= now, ticks(row, first))
    return [first, *later] if first <= now else []


def _bound(row: ScheduleRow, name: str) -> datetime | None:
    text = row.policy.get(name)
    return None if not text else moment_of(str(text))


def _of_cron(row: ScheduleRow, cron: str, after: datetime) -> Iterator[datetime]:
    while page := next_fires(cron, row.timezone, after, _PAGE):
        yield from page
        after = page[-1]


def _of_interval(row: ScheduleRow, after: datetime, start: datetime | None) -> Iterator[datetime]:
    """Multiples of the interval since the start, else since 1970: no server needs to remember."""
    step, anchor = timedelta(seconds=row.interval_s or 0), start or _EPOCH
    if not step:
        raise ValueError(f"schedule {row.name} has neither `cron` nor an interval")
    tick = anchor + step * ((after - anchor) // step + 1)
    while True:
        yield tick
        tick += step
