from datetime import UTC, datetime

import pytest

from noetl.cli.failures import CommandFailed
from noetl.cli.times import ago, moment

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90s", "2026-01-10T11:58:30.000000Z"),
        ("10m", "2026-01-10T11:50:00.000000Z"),
        ("2h", "2026-01-10T10:00:00.000000Z"),
        ("7d", "2026-01-03T12:00:00.000000Z"),
        ("1w", "2026-01-03T12:00:00.000000Z"),
        ("2026-01-31", "2026-01-31T00:00:00.000000Z"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000000Z"),
    ],
)
def test_a_time_is_named_or_counted_back(text, at):
    assert moment("--since", text, NOW) == at


@pytest.mark.parametrize("text", ["", "soon", "10", "1y", "-1h", "999999999w"])
def test_anything_else_is_refused(text):
    with pytest.raises(CommandFailed) as raised:
        moment("--since", text, NOW)

    assert raised.value.code == "usage"


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-01-10T12:00:00.500000Z", "now"),
        ("2026-01-10T11:59:59Z", "1 s ago"),
        ("2026-01-10T11:56:00Z", "4 min ago"),
        ("2026-01-10T09:30:00Z", "2 h ago"),
        ("2026-01-09T12:00:00Z", "24 h ago"),
        ("2026-01-03T12:00:00Z", "7 d ago"),
    ],
)
def test_a_table_says_how_long_ago(at, words):
    assert ago(at, NOW) == words
