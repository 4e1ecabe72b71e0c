import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from noetl.clock import LoopClock, SystemClock, rfc3339
from noetl.local.virtual import VirtualLoop

START = datetime(2026, 11, 15, 7, 0, 0, tzinfo=UTC)


def test_the_machines_clock_tells_utc_and_grows():
    clock = SystemClock()
    first, second = clock.now(), clock.now()
    assert first.tzinfo is UTC
    assert first <= second
    assert clock.monotonic() <= clock.monotonic()


def test_a_loops_clock_moves_with_its_loop_only():
    async def main():
        clock = LoopClock(asyncio.get_running_loop(), START)
        before = (clock.now(), clock.monotonic())
        await asyncio.sleep(3600)
        return before, (clock.now(), clock.monotonic())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        before, after = runner.run(main())
    assert before == (START, 0.0)
    assert after == (START + timedelta(hours=1), 3600.0)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (START, "2026-11-15T07:00:00.000000Z"),
        (START.replace(microsecond=120), "2026-11-15T07:00:00.000120Z"),
        (
            datetime(2026, 11, 15, 9, 0, tzinfo=timezone(timedelta(hours=2))),
            "2026-11-15T07:00:00.000000Z",
        ),
    ],
)
def test_a_time_has_one_form(moment, text):
    assert rfc3339(moment) == text


def test_times_as_text_are_ordered_like_times():
    moments = [START + timedelta(microseconds=step) for step in (0, 1, 999_999, 10**6, 10**12)]
    texts = [rfc3339(moment) for moment in moments]
    assert texts == sorted(texts)
