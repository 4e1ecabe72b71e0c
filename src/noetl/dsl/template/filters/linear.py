"""Patterns with RE2, whose time grows with the text only; the standard library backtracks."""

from __future__ import annotations

import re
from typing import Any, Final

import re2

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.limits import PATTERN_LIMIT, REGEX_INPUT_LIMIT, Meter, check_length

_GROUP: Final = re.compile(r"\\(?:([0-9]{1,2})|g<(\w+)>|(\\))")


def _compile(pattern: str, value: str, meter: Meter) -> Any:  # noqa: ANN401 - untyped library
    if len(pattern) > PATTERN_LIMIT:
        raise LimitExceeded(f"the pattern is longer than {PATTERN_LIMIT} characters")
    if len(value) > REGEX_INPUT_LIMIT:
        raise LimitExceeded(f"the text to match is longer than {REGEX_INPUT_LIMIT} characters")
    meter.spend(len(value) >> 6)
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise TemplateFailure(f"the pattern is wrong: {shown}") from None


def matches(pattern: str, value: str, meter: Meter) -> bool:
    """Return whether the pattern matches at the start of the text."""
    return _compile(pattern, value, meter).match(value) is not None


def replace(pattern: str, replacement: str, value: str, count: int, meter: Meter) -> str:
    r"""Replace matches; `\1` and `\g<name>` stand for groups, count 0 means all."""
    compiled = _compile(pattern, value, meter)
    parts = _parts(replacement, compiled)
    total = 0

    def expand(found: Any) -> str:  # noqa: ANN401 - untyped library
        nonlocal total
        # Each search may read to the end of the text before it finds the next match.
        meter.spend(len(parts) + (len(value) - found.start() >> 8))
        text = "".join(part if isinstance(part, str) else found[part] or "" for part in parts)
        total += len(text)
        check_length(total)
        return text

    return meter.text(compiled.sub(expand, value, max(count, 0)))


def _parts(replacement: str, compiled: Any) -> list[str | int]:  # noqa: ANN401 - untyped library
    """Cut a replacement into texts and numbers of groups.

    The library's own expansion decodes escapes byte by byte, which breaks other alphabets.
    """
    parts: list[str | int] = []
    position = 0
    for found in _GROUP.finditer(replacement):
        parts.append(replacement[position : found.start()])
        position = found.end()
        if found[3]:
            parts.append("\\")
            continue
        name = found[1] or found[2]
        number = int(name) if name.isdigit() else compiled.groupindex.get(name, -1)
        if not 0 <= number <= compiled.groups:
            raise TemplateFailure(f"the pattern has no group `{name}`")
        parts.append(number)
    parts.append(replacement[position:])
    return parts
