"""Time tables: ticks, daylight saving, what was missed, and jitter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from noetl.clock import rfc3339
from noetl.server.ticks import due, fires_at, next_run_at, ticks
from noetl.store.base import ScheduleRow

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def table(next_at: datetime | None = None, **more) -> ScheduleRow:
    """A time table of every ten minutes, unless told otherwise."""
    policy = {
        key: more.pop(key)
        for key in ("catchup", "jitter_s", "start_at", "end_at", "max_catchup")
        if key in more
    }
    if "cron" not in more:
        more.setdefault("interval_s", 600)
    return ScheduleRow(
        schedule_id="7", name="t", path="p", policy=policy,
        next_run_at=None if next_at is None else rfc3339(next_at), **more,
    )  # fmt: skip


def clocks(row: ScheduleRow, after: datetime, count: int = 3) -> list[str]:
    return [f"{tick:%d %H:%M}" for tick in islice(ticks(row, after), count)]


def test_an_interval_counts_from_its_start_else_from_the_hour() -> None:
    assert clocks(table(), NOON) == ["01 12:10", "01 12:20", "01 12:30"]
    assert clocks(table(start_at="2026-01-01T12:03:00Z"), NOON) == [
        "01 12:03", "01 12:13", "01 12:23",
    ]  # fmt: skip


def test_a_table_ends() -> None:
    row = table(cron="0 * * * *", end_at="2026-01-01T14:00:00")
    assert clocks(row, NOON) == ["01 13:00", "01 14:00"]
    assert next_run_at(row, NOON + timedelta(hours=2)) is None
    assert due(table(NOON, end_at=rfc3339(NOON)), NOON) == ([NOON], None)


def test_a_cron_counts_in_its_zone() -> None:
    row = table(cron="30 7 * * 1-5", timezone="Europe/Zurich")
    assert clocks(row, NOON, 2) == ["02 06:30", "05 06:30"]


@pytest.mark.parametrize(
    ("day", "fires"),
    [
        # 02:30 does not exist on March 29 and exists twice on October 25.
        ("2026-03-28T12:00:00+00:00", ["29 01:00", "30 00:30"]),
        ("2026-10-24T12:00:00+00:00", ["25 00:30", "26 01:30"]),
    ],
)
def test_a_cron_fires_once_on_the_days_of_the_change(day: str, fires: list[str]) -> None:
    row = table(cron="30 2 * * *", timezone="Europe/Zurich")
    assert clocks(row, datetime.fromisoformat(day), 2) == fires
    # Also when every fire is computed from the one before, as the loop does.
    first = datetime.fromisoformat(next_run_at(row, datetime.fromisoformat(day)) or "")
    chosen, following = due(table(first, cron=row.cron, timezone=row.timezone), first)
    assert (chosen, f"{datetime.fromisoformat(following or ''):%d %H:%M}") == ([first], fires[1])


def test_what_was_missed_follows_the_rule() -> None:
    late = NOON + timedelta(minutes=35)
    newest = NOON + timedelta(minutes=30)
    after = rfc3339(NOON + timedelta(minutes=40))
    assert due(table(NOON), late) == ([newest], after)
    assert due(table(NOON, catchup="none"), late) == ([], after)
    assert due(table(NOON, catchup="none"), newest) == ([newest], after)
    every = [NOON + timedelta(minutes=10 * number) for number in range(4)]
    assert due(table(NOON, catchup="all"), late) == (every, after)
    assert due(table(NOON, catchup="all", max_catchup=2), late) == (every[-2:], after)


def test_nothing_is_due_early() -> None:
    assert due(table(NOON), NOON - timedelta(seconds=1)) == ([], rfc3339(NOON))


@pytest.mark.parametrize("cron", ["* * * * *", "0 0 1 1 *"])
def test_a_gap_of_years_is_caught_up_at_once(cron: str) -> None:
    row = table(NOON, cron=cron, catchup="all")
    now = NOON + timedelta(days=4000)
    chosen, _ = due(row, now)
    assert chosen[-1] <= now
    assert len(chosen) == (100 if cron.startswith("*") else 11)


def test_a_jitter_is_the_same_everywhere_and_never_reaches_the_next_tick() -> None:
    row = table(jitter_s=5000)
    found = list(islice(ticks(row, NOON), 200))
    fires = [fires_at(row, tick) for tick in found]
    assert fires == [fires_at(row, tick) for tick in found]
    assert all(
        0 <= (at - tick).total_seconds() < 600 for at, tick in zip(fires, found, strict=True)
    )
    assert len({at - tick for at, tick in zip(fires, found, strict=True)}) > 150


def test_ticks_with_jitter_follow_one_another_and_none_is_left_out() -> None:
    row = table(jitter_s=400)
    now, seen = NOON, []
    row = table(datetime.fromisoformat(next_run_at(row, now) or ""), jitter_s=400)
    for _ in range(50):
        now = datetime.fromisoformat(row.next_run_at or "")
        chosen, following = due(row, now)
        seen += chosen
        row = table(datetime.fromisoformat(following or ""), jitter_s=400)
    assert seen == list(islice(ticks(row, NOON), 50))


def test_a_table_that_cannot_be_read_says_so() -> None:
    with pytest.raises(ValueError, match="five fields"):
        due(table(NOON, cron="1 2 3"), NOON)
    with pytest.raises(ValueError, match="neither"):
        due(table(NOON, interval_s=0), NOON)
