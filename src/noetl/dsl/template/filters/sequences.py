"""Filters over lists: order, groups, parts, sums."""

# ruff: noqa: FBT002 - filters have the signatures of Jinja2
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Final

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.filters.arguments import (
    comparable,
    integer,
    listed,
    mapping,
    part,
    positive,
    text,
)
from noetl.dsl.template.limits import VALUE_DEPTH_LIMIT, Meter
from noetl.dsl.template.methods import bounded_join, items, keys, map_values
from noetl.dsl.template.operators import add, is_large
from noetl.dsl.template.values import MISSING, Group, kind_of, to_json, to_text

# A group takes the memory of several items.
_GROUP_ITEMS: Final = 4
_SORT_PATHS: Final = 16


def _length(_meter: Meter, value: object) -> int:
    if not isinstance(value, (str, list, tuple, Mapping)):
        raise TemplateFailure(f"a value of type {kind_of(value)} has no length")
    return len(value)


def _first(meter: Meter, value: object) -> object:
    if isinstance(value, Mapping):
        return next(iter(value), MISSING)
    found = _indexed(meter, value)
    return found[0] if found else MISSING


def _last(meter: Meter, value: object) -> object:
    found = _indexed(meter, value)
    return found[-1] if found else MISSING


def _indexed(meter: Meter, value: object) -> str | list[object] | tuple[object, ...]:
    """Return a text or list as it is: reading one end visits nothing else."""
    return value if isinstance(value, (str, list, tuple)) else listed(meter, value)


def _list(meter: Meter, value: object) -> list[object]:
    return list(listed(meter, value))


def _reverse(meter: Meter, value: object) -> object:
    if isinstance(value, str):
        meter.length(len(value))
        return value[::-1]
    return listed(meter, value)[::-1]


def _join(meter: Meter, value: object, d: object = "", attribute: object = None) -> str:
    values = listed(meter, value)
    if attribute is not None:
        values = [part(meter, entry, attribute) for entry in values]
    return bounded_join(to_text(d, meter), values, meter)


def _sort(
    meter: Meter,
    value: object,
    reverse: object = False,
    case_sensitive: object = False,
    attribute: object = None,
) -> list[object]:
    values = listed(meter, value)
    paths = attribute.split(",", _SORT_PATHS) if isinstance(attribute, str) else [attribute]
    if len(paths) > _SORT_PATHS:
        raise LimitExceeded(f"more than {_SORT_PATHS} attributes to sort by")
    _pay_sorting(meter, len(values) * len(paths))

    def key(entry: object) -> list[object]:
        found = (part(meter, entry, path) for path in paths)
        return [comparable(meter, one, case_sensitive=case_sensitive) for one in found]

    def only_key(entry: object) -> Any:  # noqa: ANN401 - sorting compares whatever it gets
        return comparable(meter, part(meter, entry, paths[0]), case_sensitive=case_sensitive)

    return sorted(values, key=key if len(paths) > 1 else only_key, reverse=bool(reverse))


def _pay_sorting(meter: Meter, count: int) -> None:
    """Pay for the comparisons; visiting the items was paid for before."""
    meter.spend(count * count.bit_length() >> 3)


def _unique_key(meter: Meter, value: object, *, case_sensitive: object) -> object:
    if isinstance(value, (list, tuple, Mapping)):
        return ("json", to_json(value, meter))
    if isinstance(value, (int, float)) and is_large(value):
        return ("number", str(int(value)))
    return comparable(meter, value, case_sensitive=case_sensitive)


def _unique(
    meter: Meter,
    value: object,
    case_sensitive: object = False,
    attribute: object = None,
) -> list[object]:
    seen: set[object] = set()
    kept: list[object] = []
    for entry in listed(meter, value):
        key = _unique_key(meter, part(meter, entry, attribute), case_sensitive=case_sensitive)
        if key not in seen:
            seen.add(key)
            kept.append(entry)
    return kept


def _extreme(
    meter: Meter,
    value: object,
    case_sensitive: object = False,
    attribute: object = None,
    *,
    largest: bool,
) -> object:
    values = listed(meter, value)
    if not values:
        return MISSING

    def key(entry: object) -> object:
        return comparable(meter, part(meter, entry, attribute), case_sensitive=case_sensitive)

    return max(values, key=key) if largest else min(values, key=key)  # type: ignore[arg-type] # a TypeError is translated by the caller


def _min(
    meter: Meter,
    value: object,
    case_sensitive: object = False,
    attribute: object = None,
) -> object:
    return _extreme(meter, value, case_sensitive, attribute, largest=False)


def _max(
    meter: Meter,
    value: object,
    case_sensitive: object = False,
    attribute: object = None,
) -> object:
    return _extreme(meter, value, case_sensitive, attribute, largest=True)


def _sum(meter: Meter, value: object, attribute: object = None, start: object = 0) -> object:
    total = start
    for entry in listed(meter, value):
        total = add(total, part(meter, entry, attribute), meter)
    return total


def _groupby(
    meter: Meter,
    value: object,
    attribute: object,
    default: object = MISSING,
    case_sensitive: object = False,
) -> list[Group]:
    fold = partial(comparable, meter, case_sensitive=case_sensitive)
    values = listed(meter, value)
    _pay_sorting(meter, len(values))
    found = [part(meter, entry, attribute, default) for entry in values]
    keyed = [(fold(grouper), grouper, entry) for grouper, entry in zip(found, values, strict=True)]
    keyed.sort(key=itemgetter(0))
    groups: list[Group] = []
    members: list[object] = []
    previous: object = MISSING
    for key, grouper, entry in keyed:
        if previous is MISSING or key != previous:
            meter.items(_GROUP_ITEMS)
            members = []
            groups.append(Group(grouper=grouper, list=members))
            previous = key
        members.append(entry)
    return groups


def _batch(
    meter: Meter, value: object, linecount: object, fill_with: object = None
) -> list[list[object]]:
    size = positive(linecount, "the size of a batch")
    values = listed(meter, value)
    meter.hold(len(values) // size)
    rows = [values[start : start + size] for start in range(0, len(values), size)]
    if fill_with is not None and rows:
        missing = size - len(rows[-1])
        meter.items(missing)
        rows[-1] = [*rows[-1], *([fill_with] * missing)]
    return rows


def _slice(
    meter: Meter, value: object, slices: object, fill_with: object = None
) -> list[list[object]]:
    count = positive(slices, "the number of slices")
    meter.items(count)
    values = listed(meter, value)
    size, longer = divmod(len(values), count)
    columns: list[list[object]] = []
    start = 0
    for number in range(count):
        end = start + size + (1 if number < longer else 0)
        column = values[start:end]
        if fill_with is not None and number >= longer:
            column.append(fill_with)
        columns.append(column)
        start = end
    return columns


def _chunk(meter: Meter, value: object, n: object) -> list[list[object]]:
    return _batch(meter, value, n)


def _flatten(meter: Meter, value: object, levels: object = None) -> list[object]:
    left = VALUE_DEPTH_LIMIT if levels is None else integer(levels, "`levels`")
    values = listed(meter, value)
    while left > 0 and any(isinstance(entry, (list, tuple)) for entry in values):
        left -= 1
        flat: list[object] = []
        for entry in values:
            if isinstance(entry, (list, tuple)):
                meter.items(len(entry))
                flat.extend(entry)
            else:
                flat.append(entry)
        meter.items(len(flat))
        values = flat
    return list(values)


def _zip(meter: Meter, value: object, *others: object) -> list[list[object]]:
    columns = [listed(meter, column) for column in (value, *others)]
    meter.hold(min(map(len, columns)))
    return [list(row) for row in zip(*columns, strict=False)]


def _dictsort(
    meter: Meter,
    value: object,
    case_sensitive: object = False,
    by: object = "key",
    reverse: object = False,
) -> list[list[object]]:
    if by not in {"key", "value"}:
        raise TemplateFailure("`by` must be `key` or `value`")
    index = 0 if by == "key" else 1
    _pay_sorting(meter, len(mapping(value)))
    return sorted(
        items(meter, mapping(value)),
        key=lambda pair: comparable(meter, pair[index], case_sensitive=case_sensitive),
        reverse=bool(reverse),
    )


def _get(_meter: Meter, value: object, key: object, default: object = None) -> object:
    if isinstance(value, (list, tuple)):
        index = integer(key, "the index")
        return value[index] if -len(value) <= index < len(value) else default
    if value is None:
        return default
    return mapping(value).get(text(key, "the key"), default)


def _keys(meter: Meter, value: object) -> list[object]:
    return keys(meter, mapping(value))


def _values(meter: Meter, value: object) -> list[object]:
    return map_values(meter, mapping(value))


def _items(meter: Meter, value: object) -> list[list[object]]:
    return items(meter, mapping(value))


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "batch": _batch,
    "chunk": _chunk,
    "count": _length,
    "dictsort": _dictsort,
    "first": _first,
    "flatten": _flatten,
    "get": _get,
    "groupby": _groupby,
    "items": _items,
    "join": _join,
    "keys": _keys,
    "last": _last,
    "len": _length,
    "length": _length,
    "list": _list,
    "max": _max,
    "min": _min,
    "reverse": _reverse,
    "slice": _slice,
    "sort": _sort,
    "sum": _sum,
    "unique": _unique,
    "values": _values,
    "zip": _zip,
}
