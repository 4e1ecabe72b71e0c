"""Filters between texts and other forms: JSON, base64, URLs, digests, patterns."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import pprint
from collections.abc import Callable, Mapping
from typing import Final, NoReturn
from urllib.parse import quote

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.filters import linear
from noetl.dsl.template.filters.arguments import integer, listed, text
from noetl.dsl.template.limits import Meter, check_width
from noetl.dsl.template.values import to_json, to_text


def _tojson(meter: Meter, value: object, indent: object = None) -> str:
    if indent is None:
        return to_json(value, meter)
    # Indented output is made by Python code, several times slower than the compact one.
    meter.weigh(value)
    meter.weigh(value)
    return to_json(value, meter, check_width(integer(indent, "the indent")))


def _fromjson(meter: Meter, value: object) -> object:
    source = text(value, "JSON")
    meter.length(len(source))
    meter.spend(len(source) >> 5)
    try:
        return json.loads(source, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise LimitExceeded("the JSON is nested too deeply") from None
    except ValueError as error:
        raise TemplateFailure(f"the text is not JSON: {error}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is not a JSON number")


def _finite(source: str) -> float:
    number = float(source)
    if number - number != 0:
        raise ValueError(f"`{source[:40]}` is too large")
    return number


def _utf8(meter: Meter, value: object) -> bytes:
    source = to_text(value, meter)
    meter.length(len(source))
    try:
        return source.encode()
    except UnicodeEncodeError:
        raise TemplateFailure("the text holds half a character (a lone surrogate)") from None


def _b64encode(meter: Meter, value: object) -> str:
    return meter.text(base64.b64encode(_utf8(meter, value)).decode())


def _b64decode(meter: Meter, value: object) -> str:
    try:
        return meter.text(base64.b64decode(_utf8(meter, value), validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        raise TemplateFailure("the text is not base64 of UTF-8 text") from None


def _sha256(meter: Meter, value: object) -> str:
    return hashlib.sha256(_utf8(meter, value)).hexdigest()


def _quoted(meter: Meter, value: object, safe: str) -> str:
    return quote(_utf8(meter, value), safe=safe)


def _urlencode(meter: Meter, value: object) -> str:
    if isinstance(value, str) or not isinstance(value, (Mapping, list, tuple)):
        return meter.text(_quoted(meter, value, "/"))
    pairs = value.items() if isinstance(value, Mapping) else listed(meter, value)
    parts: list[str] = []
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:  # noqa: PLR2004 - a pair
            raise TemplateFailure("`urlencode` needs text, a map or a list of pairs")
        meter.spend(1)
        sides = [_quoted(meter, side, "").replace("%20", "+") for side in pair]
        parts.append("=".join(sides))
    return meter.text("&".join(parts))


def _pprint(meter: Meter, value: object) -> str:
    before = meter.fuel
    meter.weigh(value)
    # Pretty printing visits each item some dozens of times slower than encoding does.
    meter.spend((before - meter.fuel) << 4)
    return meter.text(pprint.pformat(value))


def _regex_match(meter: Meter, value: object, pattern: object) -> bool:
    return linear.matches(text(pattern, "the pattern"), to_text(value, meter), meter)


def _regex_replace(
    meter: Meter, value: object, pattern: object, replacement: object = "", count: object = 0
) -> str:
    return linear.replace(
        text(pattern, "the pattern"),
        text(replacement, "the replacement"),
        to_text(value, meter),
        integer(count, "the count"),
        meter,
    )


FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "b64decode": _b64decode,
    "b64encode": _b64encode,
    "fromjson": _fromjson,
    "pprint": _pprint,
    "regex_match": _regex_match,
    "regex_replace": _regex_replace,
    "sha256": _sha256,
    "tojson": _tojson,
    "urlencode": _urlencode,
}
