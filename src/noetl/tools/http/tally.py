"""What became of the requests of steps, for whoever shows it to scrapers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.tools.base import ToolError

CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")
REASONS: Final = (
    "host", "link_local", "loopback", "mapped", "metadata", "multicast", "nat64", "private",
    "reserved", "scheme", "shared", "tunnel", "unspecified", "userinfo",
)  # fmt: skip
"""Why a request is not let out."""


@dataclass(slots=True)
class Tally:
    """Answers by class, and requests that were refused by reason."""

    answers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0))
    blocked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def answered(self, status: int) -> None:
        """A server has answered."""
        self.answers[CLASSES[min(max(status // 100, 1), 5) - 1]] += 1

    def failed(self, fault: ToolError) -> None:
        """A request has failed; those that the guard refused are counted."""
        reason = str((fault.details or {}).get("reason", ""))
        if fault.kind == "egress" and reason in self.blocked:
            self.blocked[reason] += 1
