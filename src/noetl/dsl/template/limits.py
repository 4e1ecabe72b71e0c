"""How much one template may use, and the meter that counts it.

Every count is of things the template did, never of time, so the same template on the same scope
stops at the same place on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure

SOURCE_LIMIT = 64 * 1024
CODE_SOURCE_LIMIT = 1024 * 1024
TEXT_LIMIT = 8 * 1024 * 1024
ITEM_LIMIT = 1_000_000
RANGE_LIMIT = 100_000
FUEL_LIMIT = 1_000_000
INTEGER_BITS = 8_192
WIDTH_LIMIT = 10_000
PATTERN_LIMIT = 4 * 1024
REGEX_INPUT_LIMIT = 64 * 1024
# Nesting of one expression or of statements; evaluation uses one or two Python frames per level.
DEPTH_LIMIT = 64
# Nesting of a value that is compared or printed; the C code that does it recurses.
VALUE_DEPTH_LIMIT = 256

# One unit of fuel pays for so many characters, so that few calls on huge texts end as well.
_TEXT_SHIFT = 10
# What visiting one map or list costs, its items aside.
_CONTAINER_FUEL = 4
_FLAT = frozenset({int, float, bool, type(None)})


class Meter:
    """What is left of the fuel and how much text was written."""

    __slots__ = ("fuel", "written")

    def __init__(self) -> None:
        """Start with a full tank."""
        self.fuel = FUEL_LIMIT
        self.written = 0

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

    def items(self, count: int) -> None:
        """Refuse a list before it is made when it would be too long, otherwise pay for it."""
        if count > ITEM_LIMIT:
            raise LimitExceeded(f"a list would hold more than {ITEM_LIMIT} items")
        self.spend(count)

    def write(self, text: str) -> None:
        """Count text that goes to the output."""
        self.written += len(text)
        if self.written > TEXT_LIMIT:
            raise LimitExceeded(f"the output is longer than {TEXT_LIMIT} characters")

    def weigh(self, value: object) -> None:
        """Walk a value that is about to be compared or printed: pay for its items, bound its depth.

        A template can build a small graph that is an enormous tree (`[x, x]` in a loop).
        """
        level = [value]
        depth = size = 0
        while level:
            depth += 1
            if depth > VALUE_DEPTH_LIMIT:
                raise LimitExceeded(f"a value is nested deeper than {VALUE_DEPTH_LIMIT} levels")
            deeper: list[object] = []
            for container in level:
                size += self._weigh_one(container, deeper)
            check_length(size)
            level = deeper

    def _weigh_one(self, container: object, deeper: list[object]) -> int:
        entries: Iterable[object]
        if isinstance(container, (list, tuple)):
            entries = container
        elif isinstance(container, Mapping):
            entries = container.values()
        else:
            return len(container) if isinstance(container, str) else 0
        size = len(container)
        self.spend(_CONTAINER_FUEL + (size >> 2))
        for entry in entries:
            kind = type(entry)
            if kind is str:
                size += len(entry)
            elif kind is list or kind is dict or (kind not in _FLAT and _is_container(entry)):
                deeper.append(entry)
        return size


def _is_container(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple))


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
