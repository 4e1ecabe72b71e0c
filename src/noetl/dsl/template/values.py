"""The values of templates: what is missing, what is read lazily, what prints and what is true."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from io import StringIO
from typing import TYPE_CHECKING, Final, Literal

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.limits import check_length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.template.limits import Meter

FALSE_TEXTS: Final = frozenset({"", "false", "no", "off", "none", "null", "0"})


class Missing(Enum):
    """The type of MISSING, which a lookup returns for what does not exist."""

    MISSING = "missing"


MISSING: Final[Literal[Missing.MISSING]] = Missing.MISSING


class View(ABC):
    """A read-only value whose parts are computed when they are read.

    Attribute and subscript access by text use `lookup`; every other use sees `plain()`.
    Maps and lists hold no views: a view is made plain when it is put into one.
    """

    __slots__ = ()

    @abstractmethod
    def lookup(self, key: str) -> object:
        """Return the part of that name, or MISSING."""

    @abstractmethod
    def plain(self) -> object:
        """Return the whole as null, bool, int, float, str, list or map."""

    def is_truthy(self) -> bool:
        """Return the truth of the whole."""
        return bool(self.plain())


class Group(dict[str, object]):
    """One group of `groupby`: a map `{grouper, list}` that also unpacks as a pair."""

    __slots__ = ()


# Asking an abstract class about an instance is slow; these types need no question.
PLAIN_TYPES: Final = frozenset({str, int, float, bool, type(None), list, dict})


def plain(value: object) -> object:
    """Return a value as data: a view becomes what it stands for."""
    if type(value) in PLAIN_TYPES or not isinstance(value, View):
        return value
    return value.plain()


def kind_of(value: object) -> str:
    """Return the name that an author knows for the type of a value."""
    if value is None:
        return "null"
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return type(value).__name__


_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (str, "text"),
    ((list, tuple), "list"),
    (Mapping, "map"),
)


def to_text(value: object, meter: Meter) -> str:
    """Return a value as it prints: null is empty, bools are lower case, maps and lists are JSON."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[return-value] # the exact type was compared
    if value is None:
        return ""
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is float:
        return number_text(value)
    return _other_text(plain(value), meter)


def _other_text(value: object, meter: Meter) -> str:
    """Return the text of what is not exactly one of the scalar types."""
    if isinstance(value, (Mapping, list, tuple)):
        return to_json(value, meter)
    if type(value) in PLAIN_TYPES:
        return to_text(value, meter)
    if isinstance(value, str):
        return str.__str__(value)
    raise TemplateFailure(f"a value of type {kind_of(value)} cannot be printed")


def number_text(value: object) -> str:
    """Return an int or float as Python prints it; NaN and the infinities have no text."""
    text = str(value)
    if text in {"nan", "inf", "-inf"}:
        raise TemplateFailure(f"`{text}` is not a finite number")
    return text


def to_json(value: object, meter: Meter, indent: int | None = None) -> str:
    """Return compact JSON, or indented JSON with one item per line."""
    weight = meter.weigh(value)
    try:
        if indent is None:
            return meter.text(_COMPACT.encode(plain(value)))
        # Indented output is made by Python code, whose time grows with the nesting as well.
        meter.spend(weight)
        return meter.text(_joined(_indented(indent).iterencode(plain(value))))
    except (TypeError, ValueError) as error:
        raise TemplateFailure(f"the value is not JSON: {error}") from None


def _joined(chunks: Iterator[str]) -> str:
    """Return the text of some chunks, and stop as soon as it is too long."""
    text = StringIO()
    for chunk in chunks:
        check_length(text.tell() + len(chunk))
        text.write(chunk)
    return text.getvalue()


def _json_default(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of type {kind_of(value)} has no JSON form")


_COMPACT: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_default
)


def _indented(indent: int) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, indent=indent, default=_json_default
    )


def is_true(value: object) -> bool:
    """Return the truth of a condition: also texts such as `false`, `no` and `0` are false."""
    value = plain(value)
    if isinstance(value, str):
        return value.strip().lower() not in FALSE_TEXTS
    return bool(value)
