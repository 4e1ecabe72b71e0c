"""What the language says about a document: diagnostics with a code, a place and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from noetl.dsl.codes import CODES, doc_of, severity_of
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity = Literal["error", "warning"]

Hint = str | Callable[[], str]

MOST_DIAGNOSTICS = 200


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of the source text, 1-based, the end exclusive."""

    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1


START = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding: what is wrong, where, and what to do about it."""

    code: str
    severity: Severity
    message: str
    hint: str = ""
    span: Span = START
    pointer: str = ""

    @property
    def doc(self) -> str:
        """The documentation row that explains the code."""
        return doc_of(self.code)

    def as_json(self) -> dict[str, object]:
        """The wire form of dsl.md 14."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "hint": self.hint,
            "line": self.span.line,
            "column": self.span.column,
            "end_line": self.span.end_line,
            "end_column": self.span.end_column,
            "pointer": self.pointer,
            "doc": self.doc,
        }


class Findings:
    """Collects diagnostics up to the cap; what is left out or not looked at is counted."""

    __slots__ = ("_items", "_seen", "overflow")

    def __init__(self) -> None:
        self._items: list[Diagnostic] = []
        self._seen: set[tuple[str, Span, str]] = set()
        self.overflow = 0

    @property
    def is_full(self) -> bool:
        """Whether further findings are only counted."""
        return len(self._items) >= MOST_DIAGNOSTICS

    def add(
        self, code: str, message: str, *, span: Span = START, pointer: str = "", hint: Hint = ""
    ) -> None:
        """Record one finding; the same finding at the same place is recorded once.

        A hint that is costly to find is a function: it is not called for what is only counted.
        """
        seen = (code, span, message)
        if seen in self._seen:
            return
        if self.is_full:
            self.overflow += 1
            return
        self._seen.add(seen)
        words = hint if isinstance(hint, str) else hint()
        self._items.append(
            Diagnostic(
                code=code,
                severity=severity_of(code),
                message=message,
                hint=words or (CODES[code].remedy if code in CODES else ""),
                span=span,
                pointer=pointer,
            )
        )

    def sorted(self) -> tuple[Diagnostic, ...]:
        """Everything found, in the order of the text."""
        return tuple(sorted(self._items, key=lambda item: (item.span, item.code, item.message)))

    @property
    def has_errors(self) -> bool:
        """Whether the document must be refused."""
        return any(item.severity == "error" for item in self._items)


class InvalidDocument(NoetlError):
    """A document that breaks the language; carries every diagnostic."""

    code = "invalid_playbook"
    status = 422

    def __init__(self, diagnostics: Iterable[Diagnostic], *, source: str = "") -> None:
        self.diagnostics = tuple(diagnostics)
        self.source = source
        errors = [item for item in self.diagnostics if item.severity == "error"]
        plural = "" if len(errors) == 1 else "s"
        where = f" in {source}" if source else ""
        super().__init__(
            f"{len(errors)} error{plural}{where}", hint=errors[0].hint if errors else ""
        )
