"""The error body of every process."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.errors import NoetlError


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`application/problem+json`; `code` is stable, `detail` is for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str = ""
    errors: tuple[dict[str, Any], ...] = ()
    request_id: str | None = None
    execution_id: str | None = None
    retry_after: float | None = None
    state: str | None = None
    """Of the thing, when its state is the reason."""
    allowed: tuple[str, ...] = ()
    """What may be asked for in that state."""


class Refused(NoetlError):
    """A call that the server answered with a problem."""

    def __init__(self, problem: Problem) -> None:
        """Keep the whole problem beside its code."""
        super().__init__(problem.detail, hint=problem.hint, code=problem.code)
        self.problem = problem
