"""Something worked out once per object."""

from __future__ import annotations

from noetl.engine import once
from noetl.engine.once import Once


def test_equal_objects_are_still_two_and_each_is_asked_once() -> None:
    made: list[list[int]] = []
    size = Once(lambda box: made.append(box) or len(box))
    first, second = [1, 2], [1, 2]
    assert [size(first), size(first), size(second)] == [2, 2, 2]
    assert made == [first, second]


def test_the_oldest_makes_room() -> None:
    calls: list[object] = []
    keep = Once(calls.append)
    boxes = [[number] for number in range(once.MOST + 1)]
    for box in boxes:
        keep(box)
    keep(boxes[-1])
    keep(boxes[0])
    assert len(calls) == once.MOST + 2
