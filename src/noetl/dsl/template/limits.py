"""How much one template may use, and the meter that counts it.

Every count is of things the template did, never of time, so the same template on the same scope
stops at the same place on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure

SOURCE_LIMIT = 64 * 1024
CODE_SOURCE_LIMIT = 1024 * 1024
TEXT_LIMIT = 8 * 1024 * 1024
ITEM_LIMIT = 1_000_000
# What one rendering may make in all, since it may keep everything that it made.
TEXT_TOTAL = 64 * 1024 * 1024
ITEM_TOTAL = 2_000_000
RANGE_LIMIT = 100_000
FUEL_LIMIT = 1_000_000
INTEGER_BITS = 8_192
WIDTH_LIMIT = 10_000
INDENT_LIMIT = 16
PATH_LIMIT = 256
PATTERN_LIMIT = 4 * 1024
REGEX_INPUT_LIMIT = 64 * 1024
# Nesting of one expression or of statements; evaluation uses one or two Python frames per level.
DEPTH_LIMIT = 64
# Nesting of a value that is compared or printed; the C code that does it recurses.
VALUE_DEPTH_LIMIT = 256

# One unit of fuel pays for so many characters, so that few calls on huge texts end as well.
_TEXT_SHIFT = 10
# Looking at single characters takes longer than comparing or copying them.
_LOOK_SHIFT = 6
# What visiting one map or list costs, its items aside.
_CONTAINER_FUEL = 4
# From this length on, the search for a text inside of another is linear; a shorter one may be
# compared at every place.
_LINEAR_SEARCH = 128
_FLAT = frozenset({int, float, bool, type(None)})


class Meter:
    """What is left of the fuel, of the text and of the items, and how much text was written."""

    __slots__ = ("fuel", "items_left", "patterns", "text_left", "written")

    def __init__(self) -> None:
        """Start with a full tank."""
        self.fuel = FUEL_LIMIT
        self.text_left = TEXT_TOTAL
        self.items_left = ITEM_TOTAL
        self.written = 0
        self.patterns: set[str] | None = None

    def spend(self, units: int) -> None:
        """Take fuel for turns, calls and visited items."""
        self.fuel -= units
        if self.fuel < 0:
            raise LimitExceeded(f"the template used more than {FUEL_LIMIT} turns and calls")

    def text(self, value: str) -> str:
        """Pay for a text that an operation made and check its size."""
        self.length(len(value))
        return value

    def length(self, characters: int) -> None:
        """Refuse a text before it is made when it would be too long, otherwise pay for it."""
        check_length(characters)
        self.spend(characters >> _TEXT_SHIFT)
        self.text_left -= characters
        if self.text_left < 0:
            raise LimitExceeded(f"the template made more than {TEXT_TOTAL} characters")

    def read(self, characters: int) -> None:
        """Pay for work on a text that makes no other one."""
        self.spend(characters >> _TEXT_SHIFT)

    def look(self, characters: int) -> None:
        """Pay for looking at each character of a text: its case, its class, its digit."""
        self.spend(characters >> _LOOK_SHIFT)

    def search(self, text: str, part: str, *, is_linear: bool = True) -> None:
        """Pay for the search of a text in another one."""
        size = min(len(part), _LINEAR_SEARCH) if is_linear else len(part)
        self.spend(len(text) * max(size, 1) >> _TEXT_SHIFT)

    def items(self, count: int) -> None:
        """Refuse a list before it is made when it would be too long, otherwise pay for it."""
        if count > ITEM_LIMIT:
            raise LimitExceeded(f"a list would hold more than {ITEM_LIMIT} items")
        self.spend(count)
        self.hold(count)

    def hold(self, count: int) -> None:
        """Count items that are made, when the work of making them is paid for otherwise."""
        self.items_left -= count
        if self.items_left < 0:
            raise LimitExceeded(f"the template made more than {ITEM_TOTAL} items")

    def write(self, text: str) -> None:
        """Count text that goes to the output."""
        self.written += len(text)
        if self.written > TEXT_LIMIT:
            raise LimitExceeded(f"the output is longer than {TEXT_LIMIT} characters")

    def weigh(self, value: object) -> int:
        """Walk a value that is about to be compared or printed: pay for its items, bound its depth.

        A template can build a small graph that is an enormous tree (`[x, x]` in a loop). The
        result is the size of the value with every item counted once per level above it.
        """
        total = weight = 0
        for depth, size in _levels(value, self._pay_container):
            total += size
            check_length(total)
            self.read(size)
            weight += depth * size
        return weight

    def _pay_container(self, size: int) -> None:
        self.spend(_CONTAINER_FUEL + (size >> 2))

    def settle(self, value: object) -> None:
        """Refuse a result that is an enormous tree; whoever stores it walks all of it."""
        if self.items_left == ITEM_TOTAL:
            return  # nothing was built, so it is a part of the scope
        seen = Meter()
        for _, size in _levels(value, lambda count: seen.hold(_CONTAINER_FUEL + count)):
            seen.text_left -= size
            if seen.text_left < 0:
                raise LimitExceeded(f"the value is larger than {TEXT_TOTAL} characters")


def _levels(value: object, pay: Callable[[int], None]) -> Iterator[tuple[int, int]]:
    """Walk a value level by level; give the depth of each and the characters and items in it."""
    level = [value]
    depth = 0
    while level:
        depth += 1
        if depth > VALUE_DEPTH_LIMIT:
            raise LimitExceeded(f"a value is nested deeper than {VALUE_DEPTH_LIMIT} levels")
        deeper: list[object] = []
        size = sum(_size(container, deeper, pay) for container in level)
        yield depth, size
        level = deeper


def _size(container: object, deeper: list[object], pay: Callable[[int], None]) -> int:
    entries: Iterable[object]
    # Asking an abstract class about an instance is slow, so exact types are asked first.
    if isinstance(container, (list, tuple)):
        entries = container
    elif isinstance(container, dict) or isinstance(container, Mapping):  # noqa: SIM101 - as above
        entries = itertools.chain(container, container.values())
    else:
        return len(container) if isinstance(container, str) else 0
    size = len(container)
    pay(size)
    for entry in entries:
        kind = type(entry)
        if kind is str:
            size += len(entry)  # type: ignore[arg-type] # the exact type was compared
        elif kind is list or kind is dict or (kind not in _FLAT and _is_container(entry)):
            deeper.append(entry)
    return size


def _is_container(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple))


# Whatever ends a line for Python.
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def count_lines(text: str) -> int:
    """Return how many lines `splitlines` would make at most."""
    return sum(text.count(end) for end in _LINE_ENDS) - text.count("\r\n") + 1


def check_length(characters: int) -> None:
    """Refuse a text that would be too long."""
    if characters > TEXT_LIMIT:
        raise LimitExceeded(f"a text would be longer than {TEXT_LIMIT} characters")


def check_width(width: object) -> int:
    """Return a width, precision or tab size of formatting when it is sensible."""
    if not isinstance(width, int):
        raise TemplateFailure("a width must be an integer")
    if abs(width) > WIDTH_LIMIT:
        raise LimitExceeded(f"a width is larger than {WIDTH_LIMIT}")
    return width
