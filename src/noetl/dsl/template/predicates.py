"""The tests of templates: `x is number`, `n is divisibleby 3`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.operators import COMPARISONS, contains, equal
from noetl.dsl.template.values import kind_of, to_text

if TYPE_CHECKING:
    from noetl.dsl.template.limits import Meter

Predicate = Callable[..., bool]


def _same(meter: Meter, value: object, other: object) -> bool:
    """Values have no identity in templates, so two scalars are the same when type and value are."""
    if isinstance(value, (Mapping, list, tuple)):
        return value is other
    return type(value) is type(other) and equal(value, other, meter)


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise TemplateFailure(f"the test needs an integer, not {kind_of(value)}")
    return value


def _is_divisible(_meter: Meter, value: object, num: object) -> bool:
    if _integer(num) == 0:
        raise TemplateFailure("division by zero")
    return _integer(value) % _integer(num) == 0


def _is_integer(_meter: Meter, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_iterable(_meter: Meter, value: object) -> bool:
    return isinstance(value, (str, list, tuple, Mapping))


def _comparison(sign: str) -> Predicate:
    compare = COMPARISONS[sign]

    def run(meter: Meter, value: object, other: object) -> bool:
        return bool(compare(value, other, meter))

    return run


def _read(value: object, meter: Meter) -> str:
    text = to_text(value, meter)
    meter.look(len(text))
    return text


def _is_lower(meter: Meter, value: object) -> bool:
    return _read(value, meter).islower()


def _is_upper(meter: Meter, value: object) -> bool:
    return _read(value, meter).isupper()


def _is_in(meter: Meter, value: object, seq: object) -> bool:
    return contains(seq, value, meter)


_SIGNS: Final = {
    "==": ("eq", "equalto"),
    "!=": ("ne",),
    "<": ("lt", "lessthan"),
    "<=": ("le",),
    ">": ("gt", "greaterthan"),
    ">=": ("ge",),
}

# `defined` and `undefined` are compiled, since their operand may be missing; these two entries
# serve `select('defined')`, where an item always exists.
PREDICATES: Final[Mapping[str, Predicate]] = {
    "defined": lambda _meter, _value: True,
    "undefined": lambda _meter, _value: False,
    "none": lambda _meter, value: value is None,
    "boolean": lambda _meter, value: isinstance(value, bool),
    "true": lambda _meter, value: value is True,
    "false": lambda _meter, value: value is False,
    "integer": _is_integer,
    "float": lambda _meter, value: isinstance(value, float),
    "number": lambda _meter, value: isinstance(value, (int, float)),
    "string": lambda _meter, value: isinstance(value, str),
    "mapping": lambda _meter, value: isinstance(value, Mapping),
    "iterable": _is_iterable,
    "sequence": _is_iterable,
    "callable": lambda _meter, _value: False,
    "escaped": lambda _meter, _value: False,
    "even": lambda _meter, value: _integer(value) % 2 == 0,
    "odd": lambda _meter, value: _integer(value) % 2 == 1,
    "divisibleby": _is_divisible,
    "in": _is_in,
    "lower": _is_lower,
    "upper": _is_upper,
    "sameas": _same,
    **{name: _comparison(sign) for sign, names in _SIGNS.items() for name in (sign, *names)},
}
