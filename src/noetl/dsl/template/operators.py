"""Arithmetic, comparison and containment, each bounded before it is computed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.limits import INTEGER_BITS, Meter
from noetl.dsl.template.printf import printf
from noetl.dsl.template.values import View, kind_of

# Operators work on numbers, texts and lists that were checked just before; no narrower type fits.
_Binary = Callable[[Any, Any], Any]
Operation = Callable[[object, object, Meter], object]

# Python takes numbers modulo 2**61 - 1 as their hashes.
_HASHED_APART: Final = 2**60
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _number(result: object) -> object:
    if isinstance(result, int):
        if result.bit_length() > INTEGER_BITS:
            raise LimitExceeded(f"a number would be larger than {INTEGER_BITS} bits")
    elif isinstance(result, complex) or result - result != 0:  # type: ignore[operator] # a float
        raise TemplateFailure("the result is not a finite number")
    return result


def _unsupported(sign: str, left: object, right: object) -> TemplateFailure:
    kinds = {kind_of(left), kind_of(right)}
    hint = "join texts with `~`" if sign == "+" and "text" in kinds else ""
    return TemplateFailure(
        f"`{sign}` does not work on {kind_of(left)} and {kind_of(right)}", hint=hint
    )


def _arithmetic(sign: str, compute: _Binary) -> Operation:
    def run(left: object, right: object, meter: Meter) -> object:  # noqa: ARG001 - one signature
        if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
            raise _unsupported(sign, left, right)
        try:
            return _number(compute(left, right))
        except ZeroDivisionError:
            raise TemplateFailure("division by zero") from None
        except OverflowError:
            raise TemplateFailure("the result is not a finite number") from None

    return run


_sum: Final = _arithmetic("+", operator.add)
_product: Final = _arithmetic("*", operator.mul)
_remainder: Final = _arithmetic("%", operator.mod)
_raise: Final = _arithmetic("**", operator.pow)


def add(left: object, right: object, meter: Meter) -> object:
    """Return `left + right` of two numbers, texts or lists."""
    if isinstance(left, str) and isinstance(right, str):
        meter.length(len(left) + len(right))
        return left + right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        meter.items(len(left) + len(right))
        return [*left, *right]
    return _sum(left, right, meter)


def multiply(left: object, right: object, meter: Meter) -> object:
    """Return `left * right` of two numbers, or a text or list repeated."""
    if isinstance(left, int) and isinstance(right, (str, list, tuple)):
        left, right = right, left
    if isinstance(right, int):
        # Nothing stays nothing however often; Python would refuse a huge number of times.
        times = max(right, 0) if left else 0
        if isinstance(left, str):
            meter.length(len(left) * times)
            return left * times
        if isinstance(left, (list, tuple)):
            meter.items(len(left) * times)
            return list(left) * times
    return _product(left, right, meter)


def remainder(left: object, right: object, meter: Meter) -> object:
    """Return `left % right` of two numbers, or a text with its `%` directives filled in."""
    if isinstance(left, str):
        return printf(left, right, meter)
    return _remainder(left, right, meter)


def power(left: object, right: object, meter: Meter) -> object:
    """Return `left ** right` when the result is a number of bounded size."""
    if (
        isinstance(left, int)
        and isinstance(right, int)
        and abs(left) > 1
        and abs(right) * (abs(left).bit_length() - 1) > INTEGER_BITS
    ):
        raise LimitExceeded(f"a number would be larger than {INTEGER_BITS} bits")
    return _raise(left, right, meter)


ARITHMETIC: Final[Mapping[str, Operation]] = {
    "+": add,
    "-": _arithmetic("-", operator.sub),
    "*": multiply,
    "/": _arithmetic("/", operator.truediv),
    "//": _arithmetic("//", operator.floordiv),
    "%": remainder,
    "**": power,
}


def negate(value: object, meter: Meter) -> object:
    """Return `-value`."""
    return _product(value, -1, meter)


def keep_sign(value: object, meter: Meter) -> object:
    """Return `+value`."""
    return _product(value, 1, meter)


def equal(left: object, right: object, meter: Meter) -> bool:
    """Return `left == right`; two containers are weighed first, since both may be huge trees."""
    _pay_comparison(left, right, meter)
    return bool(left == right)


def _pay_comparison(left: object, right: object, meter: Meter) -> None:
    kind = type(left)
    if kind is str:
        meter.spend(len(left) >> 10)  # type: ignore[arg-type] # the exact type was compared
    elif kind not in _SCALARS and type(right) not in _SCALARS:
        meter.weigh(left)
        meter.weigh(right)


def _ordered(sign: str, compute: _Binary) -> Operation:
    def run(left: object, right: object, meter: Meter) -> bool:
        _pay_comparison(left, right, meter)
        try:
            return bool(compute(left, right))
        except TypeError:
            raise _unsupported(sign, left, right) from None

    return run


def contains(container: object, value: object, meter: Meter) -> bool:
    """Return `value in container`."""
    if isinstance(container, str):
        if not isinstance(value, str):
            raise _unsupported("in", value, container)
        meter.search(container, value)
        return value in container
    if isinstance(container, (list, tuple)):
        meter.spend(len(container) >> 4)
        if isinstance(value, str):
            # Texts of one length are compared to their first difference.
            meter.spend(len(container) * (len(value) >> 10))
        elif type(value) not in _SCALARS:
            meter.weigh(container)
            meter.weigh(value)
        return value in container
    if isinstance(container, Mapping):
        if isinstance(value, str):
            meter.read(len(value))
        return type(value) in _SCALARS and value in container
    raise _unsupported("in", value, container)


COMPARISONS: Final[Mapping[str, Operation]] = {
    "==": equal,
    "!=": lambda left, right, meter: not equal(left, right, meter),
    "<": _ordered("<", operator.lt),
    "<=": _ordered("<=", operator.le),
    ">": _ordered(">", operator.gt),
    ">=": _ordered(">=", operator.ge),
    "in": lambda left, right, meter: contains(right, left, meter),
    "not in": lambda left, right, meter: not contains(right, left, meter),
}


def is_large(number: float) -> bool:
    """Return whether a number is so large that Python gives many others the same hash."""
    return not -_HASHED_APART < number < _HASHED_APART


def is_truthy(value: object) -> bool:
    """Return the truth of a value inside a template: empty, zero and null are false."""
    return value.is_truthy() if isinstance(value, View) else bool(value)
