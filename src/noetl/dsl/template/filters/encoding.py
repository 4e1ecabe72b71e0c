"""Filters between texts and other forms: JSON, base64, URLs, digests, patterns."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import pprint
import re
from collections.abc import Callable, Mapping
from io import StringIO
from typing import Final, NoReturn
from urllib.parse import quote

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.filters import linear
from noetl.dsl.template.filters.arguments import integer, listed, text
from noetl.dsl.template.limits import INDENT_LIMIT, ITEM_LIMIT, Meter, check_length
from noetl.dsl.template.values import to_json, to_text

# A pair of surrogates is one character, a lone one is none; `\\\\ud800` is neither.
_ESCAPES: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F])|.)", re.DOTALL
)
_QUOTE_SIZE: Final = 64 * 1024


def _tojson(meter: Meter, value: object, indent: object = None) -> str:
    if indent is None:
        return to_json(value, meter)
    width = integer(indent, "the indent")
    if width > INDENT_LIMIT:
        raise LimitExceeded(f"the indent is larger than {INDENT_LIMIT}")
    return to_json(value, meter, width)


def _fromjson(meter: Meter, value: object) -> object:
    source = text(value, "JSON")
    meter.length(len(source))
    values = sum(source.count(sign) for sign in ",[{")
    if values > ITEM_LIMIT:
        raise LimitExceeded(f"the JSON holds more than {ITEM_LIMIT} items")
    meter.hold(values)
    meter.spend((values >> 2) + (len(source) >> 5))
    if any(found[1] for found in _ESCAPES.finditer(source)):
        raise TemplateFailure("the JSON holds half a character (a lone surrogate)")
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
    data = _utf8(meter, value)
    meter.length(len(data) * 4 // 3)
    return base64.b64encode(data).decode()


def _b64decode(meter: Meter, value: object) -> str:
    try:
        return meter.text(base64.b64decode(_utf8(meter, value), validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        raise TemplateFailure("the text is not base64 of UTF-8 text") from None


def _sha256(meter: Meter, value: object) -> str:
    return hashlib.sha256(_utf8(meter, value)).hexdigest()


def _quoted(meter: Meter, value: object, safe: str) -> str:
    data = _utf8(meter, value)
    meter.spend(len(data) >> 5)
    quoted = StringIO()
    for start in range(0, len(data), _QUOTE_SIZE):
        quoted.write(quote(data[start : start + _QUOTE_SIZE], safe=safe))
        check_length(quoted.tell())
    return quoted.getvalue()


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
    # Pretty printing is some dozens of times slower than encoding, and again for each level.
    meter.spend(meter.weigh(value) << 2)
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
