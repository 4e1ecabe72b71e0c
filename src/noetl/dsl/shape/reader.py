"""Carries one reading of a document: what was found, and every template with its place and role."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from noetl.dsl.diagnostics import Findings, Hint, Span
from noetl.dsl.plugins import NONE
from noetl.dsl.template import (
    CODE_SOURCE_LIMIT,
    SOURCE_LIMIT,
    Template,
    TemplateSyntax,
    compile_condition,
    compile_template,
    is_template,
)
from noetl.dsl.yaml import Map, Place, Seq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.plugins import Plugins
    from noetl.dsl.yaml import Document

WORKER = "worker"
SERVER = "server"
WORKLOAD = "workload"
RULE = "rule"
TASK_SET = "task_set"
STEP_SET = "step_set"
ARC = "arc"
SQL = "sql"
SHELL = "shell"
CODE = "code"
GENERAL_FAULTS = frozenset({"DSL014", "DSL015", "DSL016", "DSL037", "DSL038", "DSL039"})
_BLOCK = "|>"
_QUOTES = "'\""


class Site(NamedTuple):
    """One template of the document."""

    template: Template
    place: Place
    role: str
    is_key: bool = False


def type_name(value: object) -> str:
    """The YAML type of a value, in the words of the messages."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    return "null"


class Reader:
    """What one pass over a document collects."""

    def __init__(self, document: Document, *, plugins: Plugins = NONE) -> None:
        self.findings: Findings = document.findings
        self.sites: list[Site] = []
        self.plugins = plugins
        self._code = ""
        self._lines = document.lines
        self._root = document.root

    def report(  # noqa: PLR0913 - the facts of one finding
        self,
        code: str,
        message: str,
        place: Place,
        *,
        hint: Hint = "",
        on_key: bool = False,
        into: bool = False,
    ) -> None:
        """Record a fault at a value, at its key, or inside it (its first key)."""
        if self.findings.is_full:
            self.findings.overflow += 1
            return
        span = self._first_of(place) if into else place.key_span if on_key else place.span
        if self._code and code in GENERAL_FAULTS:
            code = self._code
        self.findings.add(code, message, span=span, pointer=place.pointer, hint=hint)

    @contextmanager
    def coded(self, code: str) -> Iterator[None]:
        """Report general faults (type, range, missing key) under a code of their own."""
        outer, self._code = self._code, code
        try:
            yield
        finally:
            self._code = outer

    def wrong_type(self, place: Place, value: object, expected: str) -> None:
        """Record a value of another type than the key takes."""
        found = type_name(value)
        quote = "quote it to make it text" if expected == "text" and found != "null" else ""
        message = f"`{place.key}` must be {expected}, not {found}"
        self.report("DSL038", message, place, hint=quote)

    def note(  # noqa: PLR0913 - the facts of one finding
        self, code: str, message: str, place: Place, text: str, offset: int, *, hint: Hint = ""
    ) -> None:
        """Record a finding at one character of a text."""
        if self.findings.is_full:
            self.findings.overflow += 1
            return
        span = self.locate(place, text, offset)
        self.findings.add(code, message, span=span, pointer=place.pointer, hint=hint)

    def text(self, text: str, place: Place, role: str) -> bool:
        """Compile a text if it is a template; whether it is one."""
        if role == CODE or not is_template(text):
            return False
        if self.findings.is_full and self.findings.has_errors:
            self.findings.overflow += 1  # refused already: not worth a look
            return True
        limit = CODE_SOURCE_LIMIT if role in {SQL, SHELL} else SOURCE_LIMIT
        try:
            template = compile_template(text, source_limit=limit)
        except TemplateSyntax as fault:
            self.syntax(fault, place, text)
        else:
            self.sites.append(Site(template, place, role))
        return True

    def condition(self, text: str, place: Place, role: str) -> None:
        """Compile a condition: a template or a bare expression."""
        try:
            template = compile_condition(text)
        except TemplateSyntax as fault:
            self.syntax(fault, place, text)
        else:
            self.sites.append(Site(template, place, role))

    def syntax(self, fault: TemplateSyntax, place: Place, text: str) -> None:
        """Record a template that does not parse, at the very character."""
        self.note(fault.code, fault.message, place, text, fault.offset, hint=fault.hint)

    def walk(self, value: object, place: Place, role: str) -> None:
        """Compile every template inside a value of the author's own."""
        if isinstance(value, str):
            self.text(value, place, role)
        elif isinstance(value, dict):
            for name, item in value.items():
                where = Place(value, name, place)
                self.name(name, where, role)
                self.walk(item, where, role)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self.walk(item, Place(value, i, place), role)

    def name(self, name: str, place: Place, role: str) -> None:
        """Compile a key of the author's own, if it is a template."""
        if not is_template(name):
            return
        try:
            template = compile_template(name)
        except TemplateSyntax as fault:
            self.findings.add(
                fault.code,
                fault.message,
                span=place.key_span,
                pointer=place.pointer,
                hint=fault.hint,
            )
        else:
            self.sites.append(Site(template, place, role, is_key=True))

    def locate(self, place: Place, text: str, offset: int) -> Span:
        """Where a character of a scalar stands in the source, as exactly as YAML allows."""
        span = place.span
        before = text[:offset]
        row = before.count("\n")
        column = offset - (before.rfind("\n") + 1)
        line = self._lines[span.line - 1] if span.line <= len(self._lines) else ""
        first = line[span.column - 1 : span.column]
        if first and first in _BLOCK:
            content = [item for item in self._lines[span.line :] if item.strip()]
            indent = len(content[0]) - len(content[0].lstrip()) if content else 0
            where = span.line + 1 + row
            return Span(where, indent + column + 1, where, indent + column + 2)
        if row:
            return span
        quoted = 1 if first and first in _QUOTES else 0
        start = span.column + quoted + column
        return Span(span.line, start, span.line, start + 1)

    def _first_of(self, place: Place) -> Span:
        """Where a value begins: its first key, for a map."""
        value = self._root if place.container is None else value_at(place)
        if isinstance(value, Map) and value:
            return Place(value, next(iter(value)), place).key_span
        return place.span


def value_at(place: Place) -> object:
    """The value that stands at a place."""
    box = place.container
    if isinstance(box, Map):
        return box.get(str(place.key))
    if isinstance(box, Seq) and isinstance(place.key, int):
        return box[place.key]
    return None
