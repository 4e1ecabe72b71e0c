"""The root of every error that NoETL raises on purpose.

NoetlError
└── TemplateSyntax, TemplateFailure    noetl.dsl.template (UndefinedName, LimitExceeded below it)
"""

from __future__ import annotations

from typing import ClassVar


class NoetlError(Exception):
    """A failure with a stable code, the HTTP status it maps to and a hint for the reader."""

    code: str = "internal"
    retryable: ClassVar[bool] = False
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        """Keep what happened, what to do about it, and a code when the class has several."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        """Return the message alone: code and hint are fields of their own."""
        return self.message
