"""The methods of texts, lists and maps that templates may call: those that change nothing."""

# ruff: noqa: FBT002 - methods have the signatures of Python
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.limits import ITEM_LIMIT, Meter, check_length, check_width, count_lines
from noetl.dsl.template.operators import contains, equal
from noetl.dsl.template.printf import format_text
from noetl.dsl.template.values import kind_of, plain, to_text

Method = Callable[..., object]

_CHANGES: Final = frozenset(
    [
        "append",
        "extend",
        "insert",
        "remove",
        "pop",
        "clear",
        "sort",
        "reverse",
        "update",
        "setdefault",
        "popitem",
    ]
)
# Their results are never much longer than the text, so they run as they are.
_CHANGED_TEXT: Final = (
    "capitalize",
    "casefold",
    "lower",
    "removeprefix",
    "removesuffix",
    "swapcase",
    "title",
    "upper",
)
# They compare the text with one or several others at one end.
_ENDS: Final = ("endswith", "startswith")
# They look for a text, or for any of some characters; true when the time is linear.
_SEARCHES: Final = {
    "count": True,
    "find": True,
    "index": True,
    "lstrip": False,
    "partition": True,
    "rfind": False,
    "rindex": False,
    "rpartition": False,
    "rstrip": False,
    "strip": False,
}
_QUESTIONS: Final = (
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
)


def bounded_split(text: str, sep: object, limit: object, meter: Meter, *, right: bool) -> list[str]:
    """Return the parts of a text, at most a list of bounded size."""
    if sep is not None and not isinstance(sep, str):
        raise TemplateFailure(f"a separator must be text, not {kind_of(sep)}")
    if sep == "":
        raise TemplateFailure("a separator cannot be empty")
    if not isinstance(limit, int):
        raise TemplateFailure("the number of splits must be an integer")
    meter.search(text, sep or " ", is_linear=not right)
    meter.length(len(text))
    # One part more than can be paid for is enough to know that there are too many.
    most = min(ITEM_LIMIT, meter.fuel + 1)
    bound = most if limit < 0 else min(limit, most)
    parts = text.rsplit(sep, bound) if right else text.split(sep, bound)
    meter.items(len(parts))
    return parts


def bounded_replace(text: str, old: object, new: object, count: object, meter: Meter) -> str:
    """Return a text with parts replaced, after computing how long it becomes."""
    if not isinstance(old, str) or not isinstance(new, str):
        raise TemplateFailure("`replace` needs two texts")
    if not isinstance(count, int):
        raise TemplateFailure("the number of replacements must be an integer")
    meter.search(text, old)
    found = text.count(old)
    times = found if count < 0 else min(count, found)
    meter.length(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, count)


def bounded_join(separator: str, values: object, meter: Meter) -> str:
    """Return the texts of a list with a separator between them."""
    if not isinstance(values, (str, list, tuple, Mapping)):
        raise TemplateFailure(f"a value of type {kind_of(values)} is not a list")
    meter.items(len(values))
    parts: list[str] = []
    total = 0
    for value in values:
        parts.append(to_text(value, meter))
        total += len(parts[-1]) + len(separator)
        check_length(total - len(separator))
    meter.length(max(total - len(separator), 0))
    return separator.join(parts)


def _aligned(name: str) -> Method:
    method: Callable[..., str] = getattr(str, name)

    def run(meter: Meter, text: str, width: object, fill: str = " ") -> str:
        check_width(width)
        return meter.text(method(text, width, fill))

    return run


def _zfill(meter: Meter, text: str, width: object) -> str:
    return meter.text(text.zfill(check_width(width)))


def _expandtabs(meter: Meter, text: str, tabsize: object = 8) -> str:
    size = check_width(tabsize)
    meter.length(len(text) + text.count("\t") * max(size, 0))
    return text.expandtabs(size)


def _split(meter: Meter, text: str, sep: object = None, maxsplit: object = -1) -> list[str]:
    return bounded_split(text, sep, maxsplit, meter, right=False)


def _rsplit(meter: Meter, text: str, sep: object = None, maxsplit: object = -1) -> list[str]:
    return bounded_split(text, sep, maxsplit, meter, right=True)


def _splitlines(meter: Meter, text: str, keepends: object = False) -> list[str]:
    meter.length(len(text))
    meter.items(count_lines(text))
    return text.splitlines(bool(keepends))


def _replace(meter: Meter, text: str, old: object, new: object, count: object = -1) -> str:
    return bounded_replace(text, old, new, count, meter)


def _join(meter: Meter, text: str, values: object) -> str:
    return bounded_join(text, values, meter)


def _format(meter: Meter, text: str, /, *args: object, **named: object) -> str:
    return format_text(text, args, named, meter)


def _changed(name: str) -> Method:
    method: Callable[..., object] = getattr(str, name)

    def run(meter: Meter, text: str, *args: object) -> object:
        meter.length(len(text))
        return method(text, *args)

    return run


def _question(name: str) -> Method:
    method: Callable[..., object] = getattr(str, name)

    def run(meter: Meter, text: str) -> object:
        meter.look(len(text))
        return method(text)

    return run


def _searching(name: str) -> Method:
    method: Callable[..., object] = getattr(str, name)
    is_linear = _SEARCHES[name]

    def run(meter: Meter, text: str, *args: object) -> object:
        part = args[0] if args and isinstance(args[0], str) else ""
        meter.search(text, part, is_linear=is_linear)
        meter.length(len(text))
        found = method(text, *args)
        return list(found) if isinstance(found, tuple) else found

    return run


def _at_end(name: str) -> Method:
    method: Callable[..., object] = getattr(str, name)

    def run(meter: Meter, text: str, ends: object, *args: object) -> object:
        if not isinstance(ends, (list, tuple)):
            meter.read(len(text))
            return method(text, ends, *args)
        meter.items(len(ends))
        meter.spend(sum(len(end) >> 10 for end in ends))
        # Python takes several ends as a tuple only; templates have lists.
        return method(text, tuple(ends), *args)

    return run


_TEXT_METHODS: Final[dict[str, Method]] = {
    **{name: _changed(name) for name in _CHANGED_TEXT},
    **{name: _question(name) for name in _QUESTIONS},
    **{name: _searching(name) for name in _SEARCHES},
    **{name: _at_end(name) for name in _ENDS},
    **{name: _aligned(name) for name in ("center", "ljust", "rjust")},
    "expandtabs": _expandtabs,
    "format": _format,
    "join": _join,
    "replace": _replace,
    "rsplit": _rsplit,
    "split": _split,
    "splitlines": _splitlines,
    "zfill": _zfill,
}


def _index(meter: Meter, values: list[object], value: object) -> int:
    if not contains(values, value, meter):
        raise TemplateFailure("the value is not in the list")
    return values.index(value)


def _count(meter: Meter, values: list[object], value: object) -> int:
    meter.items(len(values))
    return sum(equal(value, known, meter) for known in values)


def _copy_list(meter: Meter, values: list[object]) -> list[object]:
    meter.items(len(values))
    return list(values)


_LIST_METHODS: Final[dict[str, Method]] = {"index": _index, "count": _count, "copy": _copy_list}


def _get(meter: Meter, values: Mapping[Any, object], key: object, default: object = None) -> object:
    return values.get(key, default) if contains(values, key, meter) else default


def keys(meter: Meter, values: Mapping[object, object]) -> list[object]:
    """Return the keys of a map."""
    meter.items(len(values))
    return list(values)


def map_values(meter: Meter, values: Mapping[object, object]) -> list[object]:
    """Return the values of a map."""
    meter.items(len(values))
    return list(values.values())


def items(meter: Meter, values: Mapping[object, object]) -> list[list[object]]:
    """Return the pairs of a map as lists of two."""
    meter.items(len(values))
    meter.hold(len(values))
    return [[key, value] for key, value in values.items()]


def _copy_map(meter: Meter, values: Mapping[object, object]) -> dict[object, object]:
    meter.items(len(values))
    return dict(values)


_MAP_METHODS: Final[dict[str, Method]] = {
    "get": _get,
    "keys": keys,
    "values": map_values,
    "items": items,
    "copy": _copy_map,
}


def find_method(value: object, name: str) -> Method:
    """Return the method of a value that templates may call, or fail and say why not."""
    table: Mapping[str, Method] = {}
    if isinstance(value, str):
        table = _TEXT_METHODS
    elif isinstance(value, (list, tuple)):
        table = _LIST_METHODS
    elif isinstance(value, Mapping):
        table = _MAP_METHODS
    method = table.get(name)
    if method is not None:
        return method
    if name in _CHANGES:
        raise TemplateFailure(f"`{name}` would change a value, and values are read-only")
    raise TemplateFailure(f"a value of type {kind_of(plain(value))} has no method `{name}`")
