from __future__ import annotations

from datetime import UTC, datetime

import pytest

from noetl.dsl.cron import cron_fault, next_fires, timezone_fault


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "*/15 6-20 * * 1-5",
        "0 0 * JAN MON-FRI",
        "0 0 * jan mon",
        "0 9 * * MON#2",
        "0 0 L * *",
        "@hourly",
        "@Daily",
        " @weekly ",
    ],
)
def test_five_fields_names_and_short_forms_are_right(text):
    assert cron_fault(text) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("* * * * * *", "a schedule has five fields, not 6"),
        ("* * * *", "a schedule has five fields, not 4"),
        ("", "a schedule has five fields, not 0"),
        ("60 * * * *", "`60 * * * *`: bad minute"),
        ("* * * * NEVER", "`* * * * NEVER`: bad day-of-week"),
        ("0 0 31 2 *", "`0 0 31 2 *`: bad day-of-month"),
        ("0 0 */31 * MON#5", "`0 0 */31 * MON#5` never fires"),
        (
            "@reboot",
            (
                "`@reboot` is not one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, "
                "@hourly"
            ),
        ),
        ("1," * 200 + "1 * * * *", "a schedule has 256 characters at most"),
    ],
)
def test_a_schedule_that_is_not_one_is_told_why(text, fault):
    assert cron_fault(text) == fault


@pytest.mark.parametrize("name", ["UTC", "Europe/Zurich", "America/Argentina/Ushuaia", "Etc/GMT+5"])
def test_iana_names_are_zones(name):
    assert timezone_fault(name) is None


@pytest.mark.parametrize(
    "name",
    ["", "Europe", "Europe/Atlantis", "../etc/passwd", "/etc/localtime", "localtime", "posix/UTC",
     "right/UTC", "a\0b", "z" * 5000],
)  # fmt: skip
def test_anything_else_is_not_a_zone(name):
    assert timezone_fault(name) == f"`{name[:80]}` is not an IANA time zone"


def test_a_schedule_fires_in_local_time():
    assert next_fires("30 6 * * *", "Europe/Zurich", at(2026, 1, 5, 12), 2) == [
        at(2026, 1, 6, 5, 30),
        at(2026, 1, 7, 5, 30),
    ]


def test_the_instant_itself_is_not_the_next_one():
    assert next_fires("@hourly", "UTC", at(2026, 1, 5, 12), 1) == [at(2026, 1, 5, 13)]


def test_a_local_time_that_does_not_exist_fires_at_the_next_existing_instant():
    assert next_fires("30 2 * * *", "Europe/Zurich", at(2026, 3, 28, 12), 2) == [
        at(2026, 3, 29, 1),
        at(2026, 3, 30, 0, 30),
    ]


def test_several_times_of_one_gap_fire_once():
    assert next_fires("*/15 * * * *", "Europe/Zurich", at(2026, 3, 29, 0, 40), 3) == [
        at(2026, 3, 29, 0, 45),
        at(2026, 3, 29, 1),
        at(2026, 3, 29, 1, 15),
    ]


def test_a_gap_of_half_an_hour_ends_at_its_own_instant():
    assert next_fires("15 2 * * *", "Australia/Lord_Howe", at(2026, 10, 3, 0, 40), 1) == [
        at(2026, 10, 3, 15, 30)
    ]


def test_a_local_time_that_exists_twice_fires_once():
    assert next_fires("30 2 * * *", "Europe/Zurich", at(2026, 10, 24, 12), 2) == [
        at(2026, 10, 25, 0, 30),
        at(2026, 10, 26, 1, 30),
    ]


def test_the_second_pass_of_a_repeated_hour_fires_nothing():
    assert next_fires("*/30 * * * *", "Europe/Zurich", at(2026, 10, 25, 0, 10), 3) == [
        at(2026, 10, 25, 0, 30),
        at(2026, 10, 25, 2),
        at(2026, 10, 25, 2, 30),
    ]
    assert next_fires("*/30 * * * *", "Europe/Zurich", at(2026, 10, 25, 1, 10), 1) == [
        at(2026, 10, 25, 2)
    ]


def test_a_schedule_that_ends_gives_fewer_fires():
    assert next_fires("0 0 */31 * MON#5", "UTC", at(2026, 1, 1), 3) == []
