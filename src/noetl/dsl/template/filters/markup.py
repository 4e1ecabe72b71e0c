"""Filters for HTML and XML text."""

# ruff: noqa: FBT002, PLR0913, PLR0917 - filters have the signatures of Jinja2
from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.filters.arguments import integer, mapping
from noetl.dsl.template.values import to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.dsl.template.limits import Meter

_COMMENT_START: Final = "<!--"
_COMMENT_END: Final = "-->"
_TAG: Final = re.compile(r"<[^<>]*>")
_BAD_KEY: Final = re.compile(r"[\s/>=]")
_BLANKS: Final = re.compile(r"(\s+)")
_ADDRESS: Final = re.compile(r"(?:https?://|www\.)[^\s<>\"']+", re.IGNORECASE)
_EMAIL: Final = re.compile(r"[^\s@<>:/]+@[^\s@<>:/]+\.[A-Za-z]{2,}")
_LEADING: Final = "(<"
_TRAILING: Final = ".,)>\n"
# The ampersand is first, since every entity has one.
_SIGNS: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"}


def _escaped(meter: Meter, value: object) -> str:
    text = to_text(value, meter)
    grown = len(text) + 4 * sum(text.count(sign) for sign in _SIGNS)
    meter.length(grown)
    for sign, entity in _SIGNS.items():
        text = text.replace(sign, entity)
    return text


def _striptags(meter: Meter, value: object) -> str:
    text = to_text(value, meter)
    meter.spend(len(text) >> 1)
    kept: list[str] = []
    while (start := text.find(_COMMENT_START)) != -1:
        end = text.find(_COMMENT_END, start)
        if end == -1:
            break
        kept.append(text[:start])
        text = text[end + len(_COMMENT_END) :]
        meter.spend(1 + (len(text) >> 8))
    without = _TAG.sub("", "".join([*kept, text]))
    return html.unescape(" ".join(without.split()))


def _xmlattr(meter: Meter, value: object, autospace: object = True) -> str:
    parts: list[str] = []
    for key, entry in mapping(value).items():
        meter.spend(1)
        name = to_text(key, meter)
        if _BAD_KEY.search(name):
            raise TemplateFailure(f"`{name[:40]}` is not the name of an attribute")
        if entry is not None:
            parts.append(f'{_escaped(meter, name)}="{_escaped(meter, entry)}"')
    text = " ".join(parts)
    return meter.text(f" {text}" if autospace and text else text)


def _urlize(
    meter: Meter,
    value: object,
    trim_url_limit: object = None,
    nofollow: object = False,
    target: object = None,
    rel: object = None,
) -> str:
    limit = None if trim_url_limit is None else integer(trim_url_limit, "the limit")
    meter.spend(len(to_text(rel, meter)))
    rels = sorted({*to_text(rel, meter).split(), "noopener", *(["nofollow"] if nofollow else [])})
    tail = f' rel="{_escaped(meter, " ".join(rels))}"'
    if target is not None:
        tail += f' target="{_escaped(meter, target)}"'
    source = _escaped(meter, value)
    meter.spend(len(source) >> 1)
    words = _BLANKS.split(source)
    meter.items(len(words))
    meter.length(sum(map(len, words)) * 2 + len(words) * len(tail))
    return meter.text("".join(_linked(word, limit, tail) for word in words))


def _linked(word: str, limit: int | None, tail: str) -> str:
    core = word.lstrip(_LEADING).rstrip(_TRAILING)
    start = word.find(core) if core else 0
    head, rest = word[:start], word[start + len(core) :]
    shown = core if limit is None or len(core) <= limit else f"{core[:limit]}..."
    if _ADDRESS.fullmatch(core):
        address = core if core.lower().startswith("http") else f"https://{core}"
        return f'{head}<a href="{address}"{tail}>{shown}</a>{rest}'
    if _EMAIL.fullmatch(core):
        return f'{head}<a href="mailto:{core}">{core}</a>{rest}'
    return word


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "e": _escaped,
    "escape": _escaped,
    "forceescape": _escaped,
    "striptags": _striptags,
    "urlize": _urlize,
    "xmlattr": _xmlattr,
}
