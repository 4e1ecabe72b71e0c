"""Filters that make or change numbers and bools."""

# ruff: noqa: FBT002 - filters have the signatures of Jinja2
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.filters.arguments import integer
from noetl.dsl.template.limits import INTEGER_BITS, Meter
from noetl.dsl.template.operators import negate
from noetl.dsl.template.values import is_true, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DIGITS: Final = 300
# Reading a digit takes longer than other work on a character does.
_DIGIT_SHIFT: Final = 4
_READABLE_DIGITS: Final = 640  # the least at which Python may stop reading digits
_DECIMAL_UNITS: Final = ("kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")
_BINARY_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")


def _number(value: object) -> float:
    if not isinstance(value, (int, float)):
        raise TemplateFailure(f"the filter needs a number, not {kind_of(value)}")
    return value


def _abs(meter: Meter, value: object) -> object:
    number = _number(value)
    return negate(number, meter) if number < 0 else number


def _bounded(number: int) -> int:
    if number.bit_length() > INTEGER_BITS:
        raise LimitExceeded(f"a number would be larger than {INTEGER_BITS} bits")
    return number


def _int(meter: Meter, value: object, default: object = 0, base: object = 10) -> object:
    radix = integer(base, "the base")
    try:
        if isinstance(value, str):
            meter.spend(len(value) >> _DIGIT_SHIFT)
            return _bounded(int(value, radix))
        return _bounded(int(value))  # type: ignore[call-overload] # TypeError: default
    except ValueError:
        if isinstance(value, str) and _has_too_many_digits(value, radix):
            raise LimitExceeded("the text has too many digits for a number") from None
    except (TypeError, OverflowError):
        pass
    number = _to_float(value)
    return default if number is None else int(number)


def _has_too_many_digits(text: str, radix: int) -> bool:
    """Whether a text would be a number, were there no bound on the digits that are read."""
    digits = text.strip().removeprefix("-").removeprefix("+").replace("_", "").lstrip("0")
    if len(digits) <= _READABLE_DIGITS:
        return False
    try:
        for digit in set(digits):
            int(digit, radix or 10)
    except ValueError:
        return False
    return True


def _to_float(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type] # a TypeError means no number
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _float(meter: Meter, value: object, default: object = 0.0) -> object:
    if isinstance(value, str):
        meter.spend(len(value) >> _DIGIT_SHIFT)
    number = _to_float(value)
    return default if number is None else number


def _round(
    _meter: Meter, value: object, precision: object = 0, method: object = "common"
) -> object:
    number = _number(value)
    digits = integer(precision, "the precision")
    if abs(digits) > _DIGITS:
        raise LimitExceeded(f"the precision is larger than {_DIGITS}")
    if method == "common":
        return round(number, digits)
    if method not in {"ceil", "floor"}:
        raise TemplateFailure("`method` must be `common`, `ceil` or `floor`")
    scale = 10**digits
    change = math.ceil if method == "ceil" else math.floor
    rounded = change(number * scale) / scale
    if not math.isfinite(rounded):
        raise TemplateFailure("the result is not a finite number")
    return rounded


def _bool(meter: Meter, value: object) -> bool:
    if isinstance(value, str):
        meter.look(len(value))
    return is_true(value)


def _filesizeformat(meter: Meter, value: object, binary: object = False) -> str:
    if isinstance(value, str):
        meter.spend(len(value) >> _DIGIT_SHIFT)
    size = _to_float(value)
    if size is None:
        raise TemplateFailure("the filter needs the number of bytes")
    base = 1024 if binary else 1000
    if size == 1:
        return "1 Byte"
    if size < base:
        return f"{int(size)} Bytes"
    units = _BINARY_UNITS if binary else _DECIMAL_UNITS
    power = 1
    while power < len(units) and size >= base ** (power + 1):
        power += 1
    return f"{size / base**power:.1f} {units[power - 1]}"


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "abs": _abs,
    "bool": _bool,
    "filesizeformat": _filesizeformat,
    "float": _float,
    "int": _int,
    "round": _round,
}
