"""The `loop` variable of `{% for %}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.operators import equal
from noetl.dsl.template.values import MISSING, View

if TYPE_CHECKING:
    from noetl.dsl.template.limits import Meter


class LoopState(View):
    """Where a loop is: `loop.index`, `loop.last`, `loop.cycle(...)`."""

    __slots__ = ("changes", "index0", "values")

    def __init__(self, values: list[object]) -> None:
        """Start before the first item."""
        self.values = values
        self.index0 = 0
        self.changes: object = MISSING

    def lookup(self, key: str) -> object:
        """Return one of the loop's fields."""
        index, length = self.index0, len(self.values)
        match key:
            case "previtem":
                return self.values[index - 1] if index else MISSING
            case "nextitem":
                return self.values[index + 1] if index + 1 < length else MISSING
        return {
            "index": index + 1,
            "index0": index,
            "revindex": length - index,
            "revindex0": length - index - 1,
            "first": index == 0,
            "last": index + 1 == length,
            "length": length,
            "depth": 1,
            "depth0": 0,
        }.get(key, MISSING)

    def plain(self) -> object:
        """Fail: the loop itself is not data."""
        raise TemplateFailure("`loop` is not a value, read one of its fields")

    def call(self, name: str, args: tuple[object, ...], meter: Meter) -> object:
        """Call one of the loop's two methods."""
        if name == "cycle":
            if not args:
                raise TemplateFailure("`loop.cycle` needs values")
            return args[self.index0 % len(args)]
        if name == "changed":
            before, self.changes = self.changes, args
            return before is MISSING or not equal(before, args, meter)
        raise TemplateFailure(f"`loop` has no method `{name}`")
