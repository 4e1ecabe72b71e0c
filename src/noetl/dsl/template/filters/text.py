"""Filters over texts: case, padding, wrapping, replacing."""

# ruff: noqa: FBT002, PLR0913, PLR0917 - filters have the signatures of Jinja2
from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.filters.arguments import integer, positive
from noetl.dsl.template.limits import Meter, check_width
from noetl.dsl.template.methods import bounded_replace, bounded_split
from noetl.dsl.template.printf import printf
from noetl.dsl.template.values import to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_WORD_STARTS: Final = re.compile(r"([-\s({\[<]+)")
_WORD: Final = re.compile(r"\w+")


def _capitalize(meter: Meter, value: object) -> str:
    return meter.text(to_text(value, meter).capitalize())


def _center(meter: Meter, value: object, width: object = 80) -> str:
    return meter.text(to_text(value, meter).center(check_width(width)))


def _format(meter: Meter, value: object, *args: object, **named: object) -> str:
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
    meter.length(len(text) + len(lead) * (text.count("\n") + 1))
    lines = text.splitlines() or [""]
    if text.endswith("\n"):
        lines.append("")
    meter.items(len(lines))
    if blank:
        rest = [lead + line for line in lines[1:]]
    else:
        rest = [lead + line if line else line for line in lines[1:]]
    return "\n".join([lead + lines[0] if first else lines[0], *rest])


def _lower(meter: Meter, value: object) -> str:
    return meter.text(to_text(value, meter).lower())


def _upper(meter: Meter, value: object) -> str:
    return meter.text(to_text(value, meter).upper())


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
    text = to_text(value, meter)
    meter.spend(len(text) >> 3)
    return "".join(word[:1].upper() + word[1:].lower() for word in _WORD_STARTS.split(text))


def _trim(meter: Meter, value: object, chars: object = None) -> str:
    return to_text(value, meter).strip(None if chars is None else to_text(chars, meter))


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
        for line in text.splitlines()
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
