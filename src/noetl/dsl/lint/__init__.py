"""What is worth a second look in a right playbook: the lint rules DSL201 to DSL210.

A comment `# noetl: ignore DSL205` on a line silences that rule there; errors are never silenced.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from noetl.dsl.diagnostics import Diagnostic, Findings
from noetl.dsl.lint import flow, names, safety, tools
from noetl.dsl.lint.subject import Rule, Subject
from noetl.dsl.playbook.document import Playbook

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.dsl.parse import Parsed

RULES: dict[str, Rule] = {
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
    findings = Findings()
    if isinstance(parsed.model, Playbook):
        subject = Subject(parsed, parsed.model, known_credentials)
        for code, rule in RULES.items():
            for found in rule(subject):
                findings.add(code, found.message, span=found.span, pointer=found.pointer)
    both = (*parsed.diagnostics, *findings.sorted())
    in_order = sorted(both, key=lambda item: (item.span, item.code, item.message))
    return tuple(_audible(in_order, parsed.document.lines))


def _audible(found: Iterable[Diagnostic], lines: Sequence[str]) -> Iterable[Diagnostic]:
    """What no comment on its line silences."""
    for item in found:
        line = lines[item.span.line - 1] if item.span.line <= len(lines) else ""
        ignored = _IGNORE.search(line)
        codes = _CODE.findall(ignored[1]) if ignored else []
        if item.severity == "error" or item.code not in codes:
            yield item
