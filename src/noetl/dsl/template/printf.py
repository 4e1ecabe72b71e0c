"""Text formatting: `%` directives and the `format` method, over values and never into them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Final

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.limits import Meter, check_length, check_width
from noetl.dsl.template.values import MISSING, kind_of, plain, to_text

_DIRECTIVE: Final = re.compile(
    r"%(?:\((?P<name>[^)]*)\))?(?P<flags>[-#0 +]*)(?P<width>\*|[0-9]*)"
    r"(?:\.(?P<precision>\*|[0-9]*))?[hlL]?(?P<kind>.?)",
    re.DOTALL,
)
# Filling in one field takes longer than other steps do.
_FIELD_FUEL: Final = 4
_NUMBERS: Final = "diouxXeEfFgG"
_SPEC: Final = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?([0-9]*)[,_]?(?:\.([0-9]+))?([a-zA-Z%]?)")


def printf(template: str, arguments: object, meter: Meter) -> str:
    """Return a text with its `%s`, `%05d` and `%(name)s` directives filled in."""
    source = _Arguments(arguments)
    parts: list[str] = []
    position = total = 0
    for found in _DIRECTIVE.finditer(template):
        meter.spend(_FIELD_FUEL)
        parts.append(template[position : found.start()])
        parts.append(_directive(found, source, meter))
        position = found.end()
        total += len(parts[-1]) + len(parts[-2])
        check_length(total)
    parts.append(template[position:])
    source.finish()
    return meter.text("".join(parts))


class _Arguments:
    """The values of a `%` formatting, taken by name or one after the other."""

    def __init__(self, values: object) -> None:
        self.values = values if isinstance(values, (list, tuple, Mapping)) else [values]
        self.next = 0

    def take(self, name: str | None) -> object:
        if name is not None:
            if not isinstance(self.values, Mapping):
                raise TemplateFailure("`%(name)s` needs a map of values")
            value = self.values.get(name, MISSING)
            if value is MISSING:
                raise TemplateFailure(f"there is no value for `%({name})s`")
            return value
        if isinstance(self.values, Mapping):
            self.values = [self.values]
        if self.next >= len(self.values):
            raise TemplateFailure("there are more `%` directives than values")
        self.next += 1
        return self.values[self.next - 1]

    def finish(self) -> None:
        if not isinstance(self.values, Mapping) and self.next < len(self.values):
            raise TemplateFailure("there are more values than `%` directives")


def _width(digits: str) -> int:
    """Return a width or precision; a few digits are enough to know one that is too large."""
    return check_width(int(digits.lstrip("0")[:9] or 0))


def _directive(found: re.Match[str], source: _Arguments, meter: Meter) -> str:
    kind = found["kind"]
    if kind == "%":
        return "%"
    if "*" in {found["width"], found["precision"]}:
        raise TemplateFailure("`*` as a width is not supported")
    if not kind or kind not in _NUMBERS + "sc":
        raise TemplateFailure(f"`{found[0]}` is not a `%` directive")
    precision = found["precision"]
    width = _width(found["width"])
    digits = _width(precision or "")
    value = plain(source.take(found["name"]))
    if kind in "sc":
        kind, value = "s", to_text(value, meter)
    elif not isinstance(value, (int, float)):
        raise TemplateFailure(f"`%{kind}` needs a number, not {kind_of(value)}")
    spec = f"%{found['flags']}{width or ''}"
    spec += kind if precision is None else f".{digits}{kind}"
    try:
        return spec % (value,)
    except (TypeError, ValueError, OverflowError) as error:
        raise TemplateFailure(f"`{found[0]}`: {error}") from None


def format_text(
    template: str, args: tuple[object, ...], named: Mapping[str, object], meter: Meter
) -> str:
    """Return `template.format(...)`: fields name values, never their attributes or items."""
    parts: list[str] = []
    automatic = total = 0
    for literal, field, spec, conversion in _fields(template):
        meter.spend(_FIELD_FUEL)
        parts.append(literal)
        if field is not None:
            if not field:
                field, automatic = str(automatic), automatic + 1  # noqa: PLW2901 - fills `{}`
            if conversion not in {None, "", "s"}:
                raise TemplateFailure(f"`format`: the conversion `!{conversion}` is not supported")
            value = _field(field, args, named)
            parts.append(_formatted(value, spec or "", meter))
            total += len(parts[-1])
        total += len(literal)
        check_length(total)
    return meter.text("".join(parts))


def _fields(template: str) -> Iterator[tuple[str, str | None, str | None, str | None]]:
    try:
        yield from Formatter().parse(template)
    except ValueError as error:
        raise TemplateFailure(f"`format`: {error}") from None


def _field(field: str, args: tuple[object, ...], named: Mapping[str, object]) -> object:
    if field.isascii() and field.isdigit():
        if int(field[:9]) >= len(args):
            raise TemplateFailure(f"`format`: there is no value {field}")
        return args[int(field)]
    if field not in named:
        hint = "fields cannot read into values" if "." in field or "[" in field else ""
        raise TemplateFailure(f"`format`: there is no value `{field}`", hint=hint)
    return named[field]


def _formatted(value: object, spec: str, meter: Meter) -> str:
    value = plain(value)
    if not spec:
        return to_text(value, meter)
    known = _SPEC.fullmatch(spec)
    if known is None:
        raise TemplateFailure(f"`format`: `{spec[:40]}` is not a format")
    _width(known[1])
    _width(known[2] or "")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or known[3] == "s":
        value = to_text(value, meter)
    try:
        return format(value, spec)
    except (ValueError, OverflowError) as error:
        raise TemplateFailure(f"`format`: {error}") from None
