"""Ten times what the stack can do: refused in good manners, done as much as before, soon over."""

from __future__ import annotations

from tests.reliability.scenario import play


async def test_ten_times_the_peak_is_refused_and_what_was_accepted_ends(plan):
    verdict = await play("overload", plan(8.0))
    assert verdict.faults == []
    assert verdict.schedule[-2:] == [
        "10 times the peak, limits raised",
        "10 times the peak, limits tight",
    ]
    raised, tight = verdict.measured["raised"], verdict.measured["tight"]
    assert set(raised["refused"]) == {"503 pool_saturated"}
    assert "429 rate_limited" in tight["refused"]
