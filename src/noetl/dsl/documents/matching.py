"""Compares what a test expects with what came: typed, by parts, with loose matchers where asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from noetl.dsl.template import pattern_fault
from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.filters import linear
from noetl.dsl.template.limits import Meter

_SHOWN = 120


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, (list, tuple)),
    "object": lambda value: isinstance(value, Mapping),
}
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda actual, bound: actual > bound,
    "$gte": lambda actual, bound: actual >= bound,
    "$lt": lambda actual, bound: actual < bound,
    "$lte": lambda actual, bound: actual <= bound,
}
MATCHERS = ("$any", "$type", "$regex", *_ORDERS)
TYPES = tuple(_TYPES)


def wrong_pattern(pattern: str) -> str | None:
    """Why a pattern cannot be looked for in a text; None when it can."""
    return pattern_fault(pattern) or pattern_fault(_anywhere(pattern))


def _anywhere(pattern: str) -> str:
    return f"(?s:.*?)(?:{pattern})"


def matches(expected: object, actual: object, *, exact: bool = False) -> list[str]:
    """Every mismatch, each with the JSON pointer of its place; empty when the values match.

    Maps compare by the expected keys, with `exact` by all keys; lists item by item. Types must be
    equal: `"1"` is not `1` and `true` is not `1`, while `1` is `1.0`, as in JSON.
    """
    return _compare(expected, actual, "", exact=exact)


def _compare(expected: object, actual: object, at: str, *, exact: bool) -> list[str]:
    if isinstance(expected, Mapping):
        if expected and all(name in MATCHERS for name in expected):
            return [
                fault
                for name, wanted in expected.items()
                if (fault := _loose(str(name), wanted, actual, at))
            ]
        return _maps(expected, actual, at, exact=exact)
    if isinstance(expected, (list, tuple)):
        return _lists(expected, actual, at, exact=exact)
    same = _kind(expected) == _kind(actual) and expected == actual
    return [] if same else [_mismatch(at, _show(expected), actual)]


def _maps(expected: Mapping[Any, Any], actual: object, at: str, *, exact: bool) -> list[str]:
    if not isinstance(actual, Mapping):
        return [_mismatch(at, "a map", actual)]
    faults: list[str] = []
    for name, wanted in expected.items():
        where = f"{at}/{_escaped(name)}"
        if name in actual:
            faults += _compare(wanted, actual[name], where, exact=exact)
        else:
            faults.append(f"{where}: missing; expected {_show(wanted)}")
    if exact:
        extra = [name for name in actual if name not in expected]
        faults += [f"{at}/{_escaped(name)}: not expected" for name in extra]
    return faults


def _lists(
    expected: list[Any] | tuple[Any, ...], actual: object, at: str, *, exact: bool
) -> list[str]:
    if not isinstance(actual, (list, tuple)):
        return [_mismatch(at, "a list", actual)]
    faults: list[str] = []
    if len(expected) != len(actual):
        faults.append(f"{at or '(root)'}: expected {len(expected)} items, found {len(actual)}")
    for index, (wanted, item) in enumerate(zip(expected, actual, strict=False)):
        faults += _compare(wanted, item, f"{at}/{index}", exact=exact)
    return faults


def _loose(matcher: str, wanted: object, actual: object, at: str) -> str | None:
    if matcher == "$any":
        return None
    if matcher == "$type":
        known = _TYPES.get(str(wanted))
        if known is None:
            return f"{at or '(root)'}: `$type` is one of {', '.join(_TYPES)}"
        return None if known(actual) else _mismatch(at, f"a value of type {wanted}", actual)
    if matcher == "$regex":
        return _pattern(str(wanted), actual, at)
    if _kind(wanted) != _kind(actual) or _kind(wanted) not in {"number", "string"}:
        return _mismatch(at, f"{matcher} {_show(wanted)}", actual)
    right = _ORDERS[matcher](actual, wanted)
    return None if right else _mismatch(at, f"{matcher} {_show(wanted)}", actual)


def _pattern(pattern: str, actual: object, at: str) -> str | None:
    if not isinstance(actual, str):
        return _mismatch(at, f"text that matches {pattern}", actual)
    try:
        found = linear.matches(_anywhere(pattern), actual, Meter())
    except TemplateFailure as fault:
        return f"{at or '(root)'}: {fault}"
    return None if found else _mismatch(at, f"text that matches {pattern}", actual)


def _kind(value: object) -> str:
    """The JSON type of a value; whole and other numbers are one type."""
    return (
        "number"
        if _is_number(value)
        else next((name for name, is_one in _TYPES.items() if is_one(value)), "other")
    )


def _show(value: object) -> str:
    """A value as JSON, cut when it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _mismatch(at: str, expected: str, actual: object) -> str:
    return f"{at or '(root)'}: expected {expected}, found {_show(actual)}"


def _escaped(name: object) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")
