"""What filters accept: conversions of their input that fail with a clear message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noetl.dsl.template.access import dig
from noetl.dsl.template.errors import TemplateFailure, UndefinedName
from noetl.dsl.template.values import MISSING, kind_of

if TYPE_CHECKING:
    from noetl.dsl.template.limits import Meter


def listed(meter: Meter, value: object) -> list[object]:
    """Return what a loop over the value visits; the list is not to be changed."""
    if not isinstance(value, (list, str, tuple, Mapping)):
        raise TemplateFailure(f"a value of type {kind_of(value)} is not a list")
    meter.items(len(value))
    return value if isinstance(value, list) else list(value)


def integer(value: object, what: str) -> int:
    """Return an integer argument."""
    if not isinstance(value, int):
        raise TemplateFailure(f"{what} must be an integer, not {kind_of(value)}")
    return value


def positive(value: object, what: str) -> int:
    """Return an integer argument that is at least one."""
    number = integer(value, what)
    if number < 1:
        raise TemplateFailure(f"{what} must be at least 1")
    return number


def text(value: object, what: str) -> str:
    """Return a text argument."""
    if not isinstance(value, str):
        raise TemplateFailure(f"{what} must be text, not {kind_of(value)}")
    return value


def mapping(value: object) -> Mapping[Any, object]:
    """Return a map argument."""
    if not isinstance(value, Mapping):
        raise TemplateFailure(f"a value of type {kind_of(value)} is not a map")
    return value


def part(meter: Meter, value: object, attribute: object, default: object = MISSING) -> object:
    """Return the part of an item that an `attribute=` argument names."""
    if attribute is None:
        return value
    path = str(attribute) if isinstance(attribute, (str, int)) else text(attribute, "`attribute`")
    found = dig(value, path, meter)
    if found is not MISSING:
        return found
    if default is MISSING:
        raise UndefinedName(path)
    return default


def comparable(meter: Meter, value: object, *, case_sensitive: object) -> Any:  # noqa: ANN401 - sorting compares whatever it gets
    """Return a value as sorting sees it; containers are weighed, since comparing them recurses."""
    if isinstance(value, str):
        # Sorting compares each text several times.
        meter.spend(len(value) >> 7)
        if case_sensitive:
            return value
        meter.length(len(value))
        return value.lower()
    if isinstance(value, (list, tuple, Mapping)):
        before = meter.fuel
        meter.weigh(value)
        meter.spend((before - meter.fuel) << 2)
    return value
