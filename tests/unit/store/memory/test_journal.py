import random

import pytest

from noetl.engine.events import CallDone, Recorded, StepEntered
from noetl.store.memory.journal import PACK_EVENTS, Journal


def _recorded(seq, event_id=None, event=None):
    return Recorded(
        execution_id="7",
        seq=seq,
        event_id=event_id or str(10**17 + seq),
        prev_event_id=None,
        created_at="2026-01-01T00:00:00.000000Z",
        event=event or StepEntered(step="a", visit=seq),
    )


def _filled(events):
    journal = Journal()
    for start in range(0, len(events), 7):
        journal.append(events[start : start + 7])
    return journal


@pytest.mark.parametrize(
    "count", [0, 1, PACK_EVENTS - 1, PACK_EVENTS, PACK_EVENTS + 1, 3 * PACK_EVENTS + 5]
)
def test_every_page_of_every_length_is_as_written(count):
    events = [_recorded(seq) for seq in range(1, count + 1)]
    journal = _filled(events)
    assert journal.last_seq == count
    for after in {0, 1, PACK_EVENTS - 1, PACK_EVENTS, count - 1, count, count + 5}:
        for limit in (0, 1, PACK_EVENTS + 1, 10_000):
            if after >= 0:
                assert journal.read(after, limit) == events[after : after + limit]
    assert journal.read(-5, -1) == []


def test_ids_out_of_order_are_all_found():
    seed = 20261115
    numbers = list(range(10**17, 10**17 + 4 * PACK_EVENTS))
    random.Random(seed).shuffle(numbers)
    numbers[0], numbers[-1] = 5, 10**18
    events = [_recorded(seq, str(number)) for seq, number in enumerate(numbers, start=1)]
    journal = _filled(events)
    for event in events[:: PACK_EVENTS // 4]:
        assert journal.find(event.event_id) == event, f"seed {seed}"
        assert journal.has(event.event_id)
    for absent in ("4", "99", str(10**17 - 1), str(10**18 + 1), "00000000000000000"):
        assert journal.find(absent) is None
        assert not journal.has(absent)


def test_a_part_of_an_id_is_not_that_id():
    journal = _filled([_recorded(seq, f"1{seq:09}") for seq in range(1, PACK_EVENTS + 1)])
    assert journal.has("1000000012")
    assert not journal.has("100000001")


def test_a_value_that_json_cannot_say_is_kept_as_it_is():
    odd = _recorded(
        1, event=CallDone(step="a", command_key="a#1", attempt=1, result={"x": "\ud800"})
    )
    events = [odd, *(_recorded(seq) for seq in range(2, PACK_EVENTS + 2))]
    journal = _filled(events)
    assert journal.read(0, 10_000) == events
    assert journal.find(odd.event_id) is odd


def test_a_long_log_is_kept_small():
    events = [
        _recorded(
            seq,
            event=CallDone(
                step="load", command_key=f"load#1/i{seq}", attempt=1, result={"n": seq, "ok": True}
            ),
        )
        for seq in range(1, PACK_EVENTS + 1)
    ]
    journal = _filled(events)
    (pack,) = journal._packs  # noqa: SLF001 - its size is what is promised
    assert len(pack._data) + len(pack.ids) < 60 * PACK_EVENTS  # noqa: SLF001 - as above
    assert not journal._fresh  # noqa: SLF001 - as above
