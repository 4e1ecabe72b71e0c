from datetime import timedelta

import pytest

from noetl.ids import EPOCH, Ids, InvalidId, parse, random_key


class Clock:
    """A clock that stands where it was put."""

    def __init__(self, ms=1_000):
        self.ms = ms

    def now(self):
        return EPOCH + timedelta(milliseconds=self.ms)

    def monotonic(self):
        return self.ms / 1000


def _numbers(ids, count):
    return [int(ids.new()) for _ in range(count)]


def test_an_id_is_time_machine_and_sequence():
    number = int(Ids(Clock(ms=123_456), machine=77).new())
    assert (number >> 22, number >> 12 & 1023, number & 4095) == (123_456, 77, 0)


def test_ids_of_one_moment_are_unique_and_grow():
    made = _numbers(Ids(Clock(), machine=1), 10_000)
    assert made == sorted(set(made))
    assert {number >> 12 & 1023 for number in made} == {1}


def test_a_moment_with_too_many_ids_borrows_from_the_next():
    made = _numbers(Ids(Clock(ms=50), machine=0), 4097)
    assert [made[0] >> 22, made[4095] >> 22, made[4096] >> 22] == [50, 50, 51]
    assert made[4096] & 4095 == 0


def test_borrowed_time_is_not_used_again_when_the_clock_gets_there():
    clock = Clock(ms=50)
    ids = Ids(clock, machine=0)
    made = _numbers(ids, 5000)
    clock.ms = 51
    made += _numbers(ids, 5000)
    assert made == sorted(set(made))


def test_ids_grow_when_the_clock_steps_back():
    clock = Clock(ms=90_000)
    ids = Ids(clock, machine=3)
    made = _numbers(ids, 3)
    clock.ms = 10
    made += _numbers(ids, 3)
    clock.ms = 90_001
    made += _numbers(ids, 3)
    assert made == sorted(set(made))
    assert made[-1] >> 22 == 90_001


def test_two_machines_make_different_ids_at_one_moment():
    first, second = (_numbers(Ids(Clock(), machine=n), 5000) for n in (1, 2))
    assert not set(first) & set(second)


def test_a_machine_number_is_taken_modulo_and_drawn_when_none_is_given():
    assert int(Ids(Clock(), machine=1025).new()) >> 12 & 1023 == 1
    drawn = {int(Ids(Clock()).new()) >> 12 & 1023 for _ in range(50)}
    assert len(drawn) > 1


def test_the_largest_time_still_fits_63_bits():
    assert parse(Ids(Clock(ms=(1 << 41) - 1), machine=1023).new())


@pytest.mark.parametrize(
    ("value", "text"),
    [("7", "7"), (7, "7"), ("007", "7"), ((1 << 63) - 1, "9223372036854775807")],
)
def test_digits_and_whole_numbers_are_ids(value, text):
    assert parse(value) == text


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        1.0,
        1 << 63,
        "",
        "0",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1_0",
        "0x1",
        "1e3",
        "9223372036854775808",
        "\u0661",
        "\u00b2",
        "1\n",
        [],
        {},
        b"1",
    ],
)
def test_anything_else_is_no_id(value):
    with pytest.raises(InvalidId) as caught:
        parse(value)
    assert (caught.value.code, caught.value.status) == ("invalid_id", 422)


def test_a_random_key_has_128_bits_and_is_never_the_same():
    keys = {random_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert {len(bytes.fromhex(key)) for key in keys} == {16}
