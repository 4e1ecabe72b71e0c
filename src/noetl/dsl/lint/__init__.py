"""What is worth a second look in a right playbook: the lint rules DSL116 and DSL201 to DSL210.

A comment `# noetl: ignore DSL205` on a line silences that rule there; errors are never silenced.
Everything that the rules find is told: only the limits of a document bound how much that is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from noetl.dsl.codes import CODES, severity_of
from noetl.dsl.diagnostics import Diagnostic
from noetl.dsl.lint import flow, names, safety, tools
from noetl.dsl.lint.subject import Rule, Subject
from noetl.dsl.playbook.document import Playbook

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.dsl.diagnostics import Span
    from noetl.dsl.lint.subject import Finding
    from noetl.dsl.parse import Parsed

RULES: dict[str, Rule] = {
    "DSL116": names.unknown_directive,
    "DSL201": flow.step_without_next,
    "DSL202": names.never_written,
    "DSL203": safety.clear_text_secret,
    "DSL204": flow.overlap_or_gap,
    "DSL205": tools.no_timeout,
    "DSL206": tools.unsafe_retry,
    "DSL207": safety.untrusted_text,
    "DSL208": names.never_used,
    "DSL209": flow.unbounded_loop,
    "DSL210": safety.unknown_credential,
}
_IGNORE = re.compile(r"(?:^|\s)#\s*noetl:\s*ignore\s+((?:DSL\d{3}[\s,]*)+)")
_CODE = re.compile(r"DSL\d{3}")


def lint(
    parsed: Parsed, *, known_credentials: frozenset[str] | None = None
) -> tuple[Diagnostic, ...]:
    """Everything found in a document and, when it is a right Playbook, what the rules find."""
    found: list[Diagnostic] = [*parsed.diagnostics]
    if isinstance(parsed.model, Playbook):
        subject = Subject(parsed, parsed.model, known_credentials)
        for code, rule in RULES.items():
            once: dict[tuple[str, Span], Finding] = {}
            for item in rule(subject):
                once.setdefault((item.message, item.span), item)
            found += [_diagnostic(code, item) for item in once.values()]
    in_order = sorted(found, key=lambda item: (item.span, item.code, item.message))
    return tuple(_audible(in_order, parsed.document.lines))


def _diagnostic(code: str, found: Finding) -> Diagnostic:
    return Diagnostic(
        code=code,
        severity=severity_of(code),
        message=found.message,
        hint=found.hint or CODES[code].remedy,
        span=found.span,
        pointer=found.pointer,
    )


def _audible(found: Iterable[Diagnostic], lines: Sequence[str]) -> Iterable[Diagnostic]:
    """What no comment on its line silences."""
    known: dict[int, list[str]] = {}
    for item in found:
        number = item.span.line
        if number not in known:
            ignored = _IGNORE.search(lines[number - 1] if number <= len(lines) else "")
            known[number] = _CODE.findall(ignored[1]) if ignored else []
        if item.severity == "error" or item.code not in known[number]:
            yield item
