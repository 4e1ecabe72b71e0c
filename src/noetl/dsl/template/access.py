"""Reading into values: attributes, subscripts and slices, over data only and never over objects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.limits import PATH_LIMIT, Meter
from noetl.dsl.template.values import MISSING, Group, View, kind_of


def is_forbidden(name: str) -> bool:
    """Return whether a name is one of Python's own (`__class__`), refused wherever it stands."""
    return name.startswith("__") and name.endswith("__")


def refuse(name: str) -> TemplateFailure:
    """Return the error about a name that templates may not read."""
    return TemplateFailure(f"`{name}` cannot be read in a template")


def attribute(value: object, name: str) -> object:
    """Return `value.name`: the key of a map or the part of a view, else MISSING."""
    if type(value) is dict:
        return value.get(name, MISSING)
    if isinstance(value, View):
        return value.lookup(name)
    if isinstance(value, Mapping):
        return value.get(name, MISSING)
    if name.startswith("_") and value is not None:
        raise refuse(name)
    return MISSING


def item(value: object, key: object) -> object:
    """Return `value[key]`: a key, the part of a view, or an index, else MISSING."""
    if isinstance(key, str):
        if is_forbidden(key):
            raise refuse(key)
        return attribute(value, key)
    if isinstance(value, View):
        value = value.plain()
    if isinstance(value, (list, tuple, str)) and isinstance(key, int):
        return value[key] if -len(value) <= key < len(value) else MISSING
    if isinstance(value, Mapping) and (key is None or isinstance(key, (int, float))):
        if isinstance(value, Group) and key in {0, 1}:
            return value["list" if key else "grouper"]
        return value.get(key, MISSING)
    return MISSING


def cut(value: object, bounds: slice, meter: Meter) -> object:
    """Return `value[start:stop:step]` of a text or list."""
    if isinstance(value, View):
        value = value.plain()
    for bound in (bounds.start, bounds.stop, bounds.step):
        if bound is not None and not isinstance(bound, int):
            raise TemplateFailure(f"a slice bound must be an integer, not {kind_of(bound)}")
    if bounds.step == 0:
        raise TemplateFailure("the step of a slice cannot be 0")
    if isinstance(value, str):
        meter.length(len(range(*bounds.indices(len(value)))))
        return value[bounds]
    if isinstance(value, (list, tuple)):
        meter.items(len(range(*bounds.indices(len(value)))))
        return list(value[bounds])
    raise TemplateFailure(f"a value of type {kind_of(value)} cannot be sliced")


@lru_cache(maxsize=64)
def _keys(path: str) -> tuple[str | int, ...]:
    if len(path) > PATH_LIMIT:
        raise LimitExceeded(f"the attribute is longer than {PATH_LIMIT} characters")
    parts = path.split(".")
    return tuple(int(part) if part.isascii() and part.isdigit() else part for part in parts)


def dig(value: object, path: str, meter: Meter) -> object:
    """Return the value at a dotted path, as `attribute=` arguments name it, else MISSING."""
    keys = _keys(path)
    meter.spend(1 + (len(keys) >> 1))
    for key in keys:
        value = item(value, key)
        if value is MISSING:
            return MISSING
    return value
