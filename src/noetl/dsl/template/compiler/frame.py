"""What compiled templates work on, and what the parts of the compiler ask of each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from noetl.dsl.template.limits import FUEL_LIMIT, ITEM_TOTAL, TEXT_TOTAL, Meter

if TYPE_CHECKING:
    from noetl.dsl.template.syntax import nodes


class Frame(Meter):
    """The scope, the template's own variables and the meter of one rendering."""

    __slots__ = ("scope", "slots")

    def __init__(self, scope: Mapping[str, object], slots: list[object]) -> None:
        """Start with a full tank and nothing written."""
        self.fuel = FUEL_LIMIT
        self.text_left = TEXT_TOTAL
        self.items_left = ITEM_TOTAL
        self.written = 0
        self.patterns = None
        self.scope = scope
        self.slots = slots


Evaluate = Callable[[Frame], object]
Run = Callable[[Frame, list[str]], None]


class Read(NamedTuple):
    """A place where a template reads a name of the scope.

    `path` goes as far as it is written out; `is_exact` says that nothing is read below it by an
    index or a computed key. A read that `is_lenient` may be missing: it stands under `default`
    or `is defined`.
    """

    path: tuple[str, ...]
    offset: int
    is_lenient: bool
    is_exact: bool


class Names:
    """The locals known at this point of the text, and what was read so far."""

    def __init__(self) -> None:
        """Start without locals."""
        self.reads: list[Read] = []
        self.functions: list[tuple[str, int]] = []
        self.blocks: list[dict[str, int]] = [{}]
        self.definite: set[int] = set()
        self.used: set[int] = set()
        self.slot_count = 0
        self.is_lenient = False

    def new_slot(self) -> int:
        """Reserve a place in the frame."""
        self.slot_count += 1
        return self.slot_count - 1

    def assign(self, name: str) -> int:
        """Return the slot of a local that is written from here on in the current block."""
        slot = self.blocks[-1].get(name)
        if slot is None:
            slot = self.blocks[-1][name] = self.new_slot()
        self.definite.add(slot)
        return slot

    def resolve(self, name: str) -> tuple[list[int], bool]:
        """Return the slots that may hold a name, innermost first, and if the scope may too."""
        slots: list[int] = []
        for block in reversed(self.blocks):
            slot = block.get(name)
            if slot is not None:
                slots.append(slot)
                self.used.add(slot)
                if slot in self.definite:
                    return slots, False
        return slots, True

    def note(self, path: tuple[str, ...], offset: int, *, is_exact: bool) -> None:
        """Note that the scope is read."""
        self.reads.append(Read(path, offset, self.is_lenient, is_exact))


class Compiling(Protocol):
    """The compiler as its parts see it."""

    names: Names
    # How many nodes and steps of paths were compiled so far.
    size: int

    def expression(self, node: nodes.Expression) -> Evaluate:
        """Return a closure that gives the value of an expression or fails."""

    def value(self, node: nodes.Expression) -> Evaluate:
        """Return a closure that gives the value as data, never as a view."""

    def optional(self, node: nodes.Expression) -> Evaluate:
        """Return a closure that gives MISSING when something in the expression is undefined."""
