"""Filters over texts: case, padding, wrapping, replacing."""

# ruff: noqa: FBT002, PLR0913, PLR0917 - filters have the signatures of Jinja2
from __future__ import annotations

import re
import textwrap
from io import StringIO
from typing import TYPE_CHECKING, Final

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.filters.arguments import integer, positive
from noetl.dsl.template.limits import Meter, check_width, count_lines
from noetl.dsl.template.methods import bounded_replace, bounded_split
from noetl.dsl.template.printf import printf
from noetl.dsl.template.values import to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TITLE_PARTS: Final = re.compile(r"[-\s({\[<]+|[^-\s({\[<]+")
_WORD: Final = re.compile(r"\w+")


def _read(meter: Meter, value: object) -> str:
    """Return a text of which another one of about its length is made."""
    text = to_text(value, meter)
    meter.length(len(text))
    return text


def _capitalize(meter: Meter, value: object) -> str:
    return _read(meter, value).capitalize()


def _center(meter: Meter, value: object, width: object = 80) -> str:
    return meter.text(to_text(value, meter).center(check_width(width)))


def _format(meter: Meter, value: object, /, *args: object, **named: object) -> str:
    if args and named:
        raise TemplateFailure("`format` takes values either by place or by name")
    return printf(to_text(value, meter), named or list(args), meter)


def _indent(
    meter: Meter,
    value: object,
    width: object = 4,
    first: object = False,
    blank: object = False,
) -> str:
    text = to_text(value, meter)
    lead = width if isinstance(width, str) else " " * check_width(width)
    count = count_lines(text)
    meter.items(count)
    meter.length(len(text) + len(lead) * count)
    lines = text.splitlines() or [""]
    if text.endswith("\n"):
        lines.append("")
    if blank:
        rest = [lead + line for line in lines[1:]]
    else:
        rest = [lead + line if line else line for line in lines[1:]]
    return "\n".join([lead + lines[0] if first else lines[0], *rest])


def _lower(meter: Meter, value: object) -> str:
    return _read(meter, value).lower()


def _upper(meter: Meter, value: object) -> str:
    return _read(meter, value).upper()


def _replace(meter: Meter, value: object, old: object, new: object, count: object = None) -> str:
    return bounded_replace(
        to_text(value, meter),
        to_text(old, meter),
        to_text(new, meter),
        -1 if count is None else count,
        meter,
    )


def _safe(_meter: Meter, value: object) -> object:
    return value


def _split(meter: Meter, value: object, sep: object = None, maxsplit: object = -1) -> list[str]:
    return bounded_split(to_text(value, meter), sep, maxsplit, meter, right=False)


def _string(meter: Meter, value: object) -> str:
    return to_text(value, meter)


def _title(meter: Meter, value: object) -> str:
    text = _read(meter, value)
    meter.spend(len(text) >> 1)
    titled = StringIO()
    for found in _TITLE_PARTS.finditer(text):
        part = found[0]
        titled.write(part[:1].upper() + part[1:].lower())
    return titled.getvalue()


def _trim(meter: Meter, value: object, chars: object = None) -> str:
    text = _read(meter, value)
    if chars is None:
        return text.strip()
    ends = to_text(chars, meter)
    meter.search(text, ends, is_linear=False)
    return text.strip(ends)


def _truncate(
    meter: Meter,
    value: object,
    length: object = 255,
    killwords: object = False,
    end: object = "...",
    leeway: object = 5,
) -> str:
    text = to_text(value, meter)
    ending = to_text(end, meter)
    limit = integer(length, "the length")
    spare = 5 if leeway is None else integer(leeway, "the leeway")
    if limit < len(ending) or spare < 0:
        raise TemplateFailure(f"the length must be at least {len(ending)} and the leeway 0")
    if len(text) <= limit + spare:
        return text
    kept = text[: limit - len(ending)]
    return meter.text((kept if killwords else kept.rsplit(" ", 1)[0]) + ending)


def _wordcount(meter: Meter, value: object) -> int:
    text = to_text(value, meter)
    meter.spend(len(text) >> 3)
    return sum(1 for _ in _WORD.finditer(text))


def _wordwrap(
    meter: Meter,
    value: object,
    width: object = 79,
    break_long_words: object = True,
    wrapstring: object = None,
    break_on_hyphens: object = True,
) -> str:
    text = to_text(value, meter)
    separator = "\n" if wrapstring is None else to_text(wrapstring, meter)
    columns = positive(width, "the width")
    # Wrapping costs far more per character than other filters do.
    meter.spend(len(text))
    meter.length(len(text) + len(separator) * len(text))
    lines = text.splitlines()
    # What is left of a long word is copied for each cut, runs of hyphens are read several times.
    meter.spend(sum(len(line) ** 2 // columns >> 10 for line in lines))
    meter.spend(sum(line.count("-") ** 2 >> 10 for line in lines))
    return separator.join(
        separator.join(
            textwrap.wrap(
                line,
                width=columns,
                expand_tabs=False,
                replace_whitespace=False,
                break_long_words=bool(break_long_words),
                break_on_hyphens=bool(break_on_hyphens),
            )
        )
        for line in lines
    )


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "capitalize": _capitalize,
    "center": _center,
    "format": _format,
    "indent": _indent,
    "lower": _lower,
    "replace": _replace,
    "safe": _safe,
    "split": _split,
    "string": _string,
    "title": _title,
    "trim": _trim,
    "truncate": _truncate,
    "upper": _upper,
    "wordcount": _wordcount,
    "wordwrap": _wordwrap,
}
