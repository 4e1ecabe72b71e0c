"""What can go wrong with a template, each error with its place in the text.

TemplateSyntax        the text does not compile (DSL040, DSL042, DSL043)
TemplateFailure       the text compiled, its evaluation failed (template_error)
├── UndefinedName     a name, key or index is missing (template_undefined)
└── LimitExceeded     too much text, too many items, too many turns (template_limit)
"""

from __future__ import annotations

from typing import ClassVar, Self

from noetl.errors import NoetlError


def place(text: str, offset: int) -> str:
    """Return `line:column` of an offset, both counted from one."""
    line = text.count("\n", 0, offset) + 1
    return f"{line}:{offset - (text.rfind(chr(10), 0, offset) + 1) + 1}"


class TemplateSyntax(NoetlError):
    """A text that is not a template of this language."""

    code = "DSL042"
    status: ClassVar[int] = 422

    def __init__(self, reason: str, offset: int, *, hint: str = "", code: str = "DSL042") -> None:
        """Keep the reason and the offset; `locate` adds the place."""
        super().__init__(reason, hint=hint, code=code)
        self.reason = reason
        self.offset = offset

    def locate(self, text: str) -> None:
        """Put `line:column` of the fault into the message."""
        self.message = f"{self.reason} (at {place(text, self.offset)})"


class TemplateFailure(NoetlError):
    """An evaluation that cannot give a value."""

    code = "template_error"
    status: ClassVar[int] = 422

    def __init__(self, reason: str, offset: int | None = None, *, hint: str = "") -> None:
        """Keep the reason; an operation that knows its offset gives it, or its caller does."""
        super().__init__(reason, hint=hint)
        self.reason = reason
        self.offset = offset

    def at(self, offset: int) -> Self:
        """Keep the offset of the operation unless a more exact one is known."""
        if self.offset is None:
            self.offset = offset
        return self

    def locate(self, text: str) -> None:
        """Put `line:column` of the expression into the message."""
        self.message = f"{self.reason} (at {place(text, self.offset or 0)})"


class UndefinedName(TemplateFailure):
    """A name, key or index that does not exist."""

    code = "template_undefined"

    def __init__(self, name: str, offset: int | None = None, *, hint: str = "") -> None:
        """Keep the first part of the chain that is missing."""
        super().__init__(f"`{name}` is undefined", offset, hint=hint)
        self.name = name


class LimitExceeded(TemplateFailure):
    """An evaluation that asked for more than a template may use."""

    code = "template_limit"
