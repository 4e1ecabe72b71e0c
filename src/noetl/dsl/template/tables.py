"""Every filter, test and function of templates by name."""

# ruff: noqa: FBT002 - filters have the signatures of Jinja2
from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final

from noetl.dsl.template import predicates
from noetl.dsl.template.errors import LimitExceeded, TemplateFailure, TemplateSyntax
from noetl.dsl.template.filters import (
    dates,
    encoding,
    markup,
    numbers,
    selection,
    sequences,
    sql,
    text,
)
from noetl.dsl.template.filters.arguments import integer, mapping
from noetl.dsl.template.limits import RANGE_LIMIT, Meter
from noetl.dsl.template.operators import is_truthy
from noetl.dsl.template.values import MISSING, View

Function = Callable[..., object]


def _default(
    _meter: Meter,
    value: object,
    default_value: object = "",
    boolean: object = False,
) -> object:
    """Serve `map('default', x)`; a filter written as such is compiled, its input may be missing."""
    return default_value if value is MISSING or (boolean and not is_truthy(value)) else value


_FILTERS: Final[dict[str, Function]] = {
    **sequences.FILTERS,
    **numbers.FILTERS,
    **text.FILTERS,
    **encoding.FILTERS,
    **markup.FILTERS,
    **dates.FILTERS,
    **sql.FILTERS,
    "d": _default,
    "default": _default,
}
_TESTS: Final[dict[str, Function]] = {
    **predicates.PREDICATES,
    "filter": lambda _meter, value: value in FILTERS,
    "test": lambda _meter, value: value in PREDICATES,
}
PREDICATES: Final[Mapping[str, Function]] = _TESTS
# `map` and its like look other filters up, themselves included.
_FILTERS.update(selection.selections(_FILTERS, _TESTS))
FILTERS: Final[Mapping[str, Function]] = _FILTERS

REFUSED_FILTERS: Final = {
    "attr": "read a key with `x[name]`",
    "random": "a template gives the same value each time; choose in a tool",
}


def find(table: Mapping[str, Function], name: str, what: str, offset: int) -> Function:
    """Return the filter or test of a name, or fail with the nearest name as a hint."""
    function = table.get(name)
    if function is not None:
        return function
    hint = REFUSED_FILTERS.get(name, "") if what == "filter" else ""
    if not hint:
        near = get_close_matches(name, table, n=1)
        hint = f"did you mean `{near[0]}`?" if near else ""
    raise TemplateSyntax(f"unknown {what} `{name}`", offset, hint=hint, code="DSL040")


class Namespace(View):
    """A map whose fields `{% set ns.field = ... %}` changes, also from inside loops."""

    __slots__ = ("fields", "is_shared")

    def __init__(self, fields: dict[str, object]) -> None:
        """Start with these fields."""
        self.fields = fields
        self.is_shared = False

    def lookup(self, key: str) -> object:
        """Return a field."""
        return self.fields.get(key, MISSING)

    def plain(self) -> object:
        """Return the fields as they are now; the next change is made to a copy."""
        self.is_shared = True
        return self.fields

    def is_truthy(self) -> bool:
        """Return whether there are fields."""
        return bool(self.fields)

    def change(self, field: str, value: object, meter: Meter) -> None:
        """Set a field."""
        if self.is_shared:
            meter.items(len(self.fields))
            self.fields = dict(self.fields)
            self.is_shared = False
        meter.hold(1)
        self.fields[field] = value


def _range(meter: Meter, *args: object) -> list[int]:
    bounds = [integer(argument, "a bound of `range`") for argument in args]
    try:
        found = range(*bounds)
    except (TypeError, ValueError) as error:
        raise TemplateFailure(f"`range`: {error}") from None
    if found[RANGE_LIMIT:]:
        raise LimitExceeded(f"`range` is longer than {RANGE_LIMIT}")
    meter.spend(len(found) >> 4)
    meter.hold(len(found))
    return list(found)


def _dict(meter: Meter, values: object = None, /, **named: object) -> dict[str, object]:
    base = {} if values is None else mapping(values)
    meter.items(len(base) + len(named))
    return {**base, **named}


def _namespace(meter: Meter, values: object = None, /, **named: object) -> Namespace:
    return Namespace(_dict(meter, values, **named))


FUNCTIONS: Final[Mapping[str, Function]] = {
    "dict": _dict,
    "namespace": _namespace,
    "range": _range,
}
