"""The port to the network: one request out, one answer back, by rules that the caller sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Mapping

ASK_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request; its headers and body may be secret, so they are never shown."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    timeout_s: float = ASK_S
    authority: str = field(default="", repr=False)
    """PEM of certificates that are trusted besides the usual ones, for this request alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: names of headers in lower case, the body as bytes, never shown."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)

    @property
    def is_ok(self) -> bool:
        """Whether the other side did what it was asked."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of answers


class Unreached(NoetlError):
    """The other side did not answer, or may not be asked."""

    code = "unreached"

    def __init__(self, message: str, *, hint: str = "", is_refused: bool = False) -> None:
        """Keep what happened, what to do about it, and whether another try would be in vain."""
        super().__init__(message, hint=hint)
        self.is_refused = is_refused


class Fetch(Protocol):
    """Sends a request."""

    async def __call__(self, ask: Ask) -> Answer:
        """Answer with whatever status the other side gave; `Unreached` when it gave none."""
