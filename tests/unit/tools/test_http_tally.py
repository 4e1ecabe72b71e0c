"""What became of the requests of steps."""

from __future__ import annotations

from noetl.tools.base import ToolError
from noetl.tools.http.egress import _REFUSED, denied
from noetl.tools.http.tally import REASONS, Tally


def test_answers_are_counted_by_class() -> None:
    tally = Tally()
    for status in (200, 204, 302, 404, 503, 999):
        tally.answered(status)
    assert tally.answers == {"1xx": 0, "2xx": 2, "3xx": 1, "4xx": 1, "5xx": 2}


def test_only_what_the_guard_refused_is_counted_as_blocked() -> None:
    tally = Tally()
    tally.failed(denied("private", "10.0.0.1"))
    tally.failed(ToolError("connection", "DNS_ERROR", "no such host"))
    assert {reason: count for reason, count in tally.blocked.items() if count} == {"private": 1}


def test_every_reason_of_the_guard_has_its_place() -> None:
    assert {reason for _, reason in _REFUSED} <= set(REASONS)
