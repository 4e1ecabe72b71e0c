"""Patterns with RE2, whose time grows with the text only; the standard library backtracks."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import re2

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.limits import PATTERN_LIMIT, REGEX_INPUT_LIMIT, Meter, check_length

_GROUPS: Final = 20
_PATTERN_FUEL: Final = 64
_PATTERNS: Final = 32
_PATTERN_MEMORY: Final = 1024 * 1024
_GROUP: Final = re.compile(r"\\(?:([0-9]{1,2})|g<(\w+)>|(\\))")


def _compile(pattern: str, value: str, meter: Meter, *, captures: bool = True) -> Any:  # noqa: ANN401 - untyped library
    if len(pattern) > PATTERN_LIMIT:
        raise LimitExceeded(f"the pattern is longer than {PATTERN_LIMIT} characters")
    if len(value) > REGEX_INPUT_LIMIT:
        raise LimitExceeded(f"the text to match is longer than {REGEX_INPUT_LIMIT} characters")
    if meter.patterns is None:
        meter.patterns = set()
    compiled = _compiled(pattern, captures=captures)
    size = compiled.programsize
    if pattern not in meter.patterns:
        # Other renderings may have compiled it before, which must not change what is paid.
        meter.patterns.add(pattern)
        meter.spend(_PATTERN_FUEL + size)
    # At worst every instruction of the program is tried at every character.
    meter.spend(len(value) * size >> (5 if captures else 6))
    return compiled


@lru_cache(maxsize=_PATTERNS)
def _compiled(pattern: str, *, captures: bool) -> Any:  # noqa: ANN401 - untyped library
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    options.never_capture = not captures
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise TemplateFailure(f"the pattern is wrong: {shown}") from None
    if compiled.groups > _GROUPS:
        raise LimitExceeded(f"the pattern has more than {_GROUPS} groups")
    return compiled


def pattern_fault(pattern: str) -> str | None:
    """Why a pattern cannot be used; None when it can."""
    try:
        _compile(pattern, "", Meter(), captures=False)
    except TemplateFailure as fault:
        return fault.message
    return None


def matches(pattern: str, value: str, meter: Meter) -> bool:
    """Return whether the pattern matches at the start of the text."""
    return _compile(pattern, value, meter, captures=False).match(value) is not None


def replace(pattern: str, replacement: str, value: str, count: int, meter: Meter) -> str:
    r"""Replace matches; `\1` and `\g<name>` stand for groups, count 0 means all."""
    compiled = _compile(pattern, value, meter)
    parts = _parts(replacement, compiled)
    size = max(compiled.programsize, 16)
    total = 0

    def expand(found: Any) -> str:  # noqa: ANN401 - untyped library
        nonlocal total
        # Each search may read to the end of the text before it finds the next match.
        meter.spend(len(parts) + ((len(value) - found.start()) * size >> 12))
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
