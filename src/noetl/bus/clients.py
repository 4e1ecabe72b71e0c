"""What the log of clients does: what each is told, in order, kept for half an hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager


@dataclass(frozen=True, slots=True)
class Logged:
    """A message of one client: sequences grow over all clients."""

    seq: int
    payload: bytes
    before: int = 0
    """The sequence of the message of this client before it, as far as it is known; else 0."""


@dataclass(frozen=True, slots=True)
class History:
    """What is left of a client's log after a sequence."""

    messages: tuple[Logged, ...]
    is_whole: bool
    """False when something after the sequence may have been forgotten."""


class ClientLog(Protocol):
    """Messages for connected clients, and for those who come back."""

    async def epoch(self) -> str:
        """Which log it is: another one after its store was lost."""

    async def append(self, client_id: str, payload: bytes, msg_id: str) -> int:
        """Keep a message, once per client and id in 30 minutes.

        Its sequence; 0 for an id that this client was told before.
        """

    async def after(self, client_id: str, seq: int, limit: int = 1000) -> History:
        """What came after a sequence, in order.

        Given the sequence of a message that is still there, the history is whole; given another
        one, it is when nothing can have been forgotten since.
        """

    def hear(
        self, client_id: str, heard: Callable[[Logged], None]
    ) -> AbstractAsyncContextManager[None]:
        """Have a function called with what comes after the context was entered, in order.

        Over a lost connection some may be missed: `before` says so, and `after` has them.
        """

    async def forget(self, client_id: str) -> None:
        """Delete a client's messages."""


class RequestFeed(Protocol):
    """Events of runs that somebody waits for; all gateways share them, each comes to one of them.

    A message is one commit of one run: the JSON that the server publishes.
    """

    async def fetch(self, limit: int, timeout_s: float) -> list[FedMessage]:
        """At least one as soon as there is one, else none after the time."""


class FedMessage(Protocol):
    """One delivery; acknowledged when its effect is kept."""

    @property
    def request_id(self) -> str:
        """The request of the run."""

    @property
    def payload(self) -> bytes:
        """What the commit published."""

    async def ack(self) -> None:
        """It needs no further delivery."""

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after a while."""
