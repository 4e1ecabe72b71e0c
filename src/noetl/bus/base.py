"""What a bus does: hints that are delivered until acknowledged, and words to whoever listens now.

Nothing on the bus is the truth: a hint says where to look, and a lost one costs seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager


class BusGone(NoetlError):
    """The bus cannot be reached, or was closed."""

    code = "broker_unreachable"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How hints are delivered: the settings of streams and their consumers."""

    ack_wait_s: float = 30.0
    max_deliver: int = 10
    max_ack_pending: int = 1024
    duplicate_window_s: float = 120.0
    max_age_s: float = 3600.0


class TooLarge(NoetlError):
    """A message that no broker would take, however often it is sent."""

    code = "message_too_large"
    status: ClassVar[int] = 413


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that is to be kept until it is acknowledged."""

    subject: str
    payload: bytes
    msg_id: str
    headers: tuple[tuple[str, str], ...] = ()


class Message(Protocol):
    """One delivery; the first of `ack`, `nak` and `term` counts.

    None of them fails: an answer that does not arrive is one more delivery.
    """

    @property
    def subject(self) -> str:
        """Where it was published."""

    @property
    def payload(self) -> bytes:
        """What was published."""

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included."""

    async def ack(self) -> None:
        """It needs no further delivery."""

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after a while."""

    async def term(self) -> None:
        """Never deliver it again: nobody will make sense of it."""


class Hints(Protocol):
    """The hints of one pool; all of its workers share them."""

    async def fetch(self, limit: int, timeout_s: float) -> list[Message]:
        """At least one message as soon as there is one, else none after the time."""


@dataclass(frozen=True, slots=True)
class Told:
    """A core message: whoever listened got it, nobody else ever will."""

    subject: str
    payload: bytes


class Bus(Protocol):
    """The way from process to process beside the API."""

    async def publish(self, subject: str, payload: bytes, msg_id: str) -> bool:
        """Keep a message until it is acknowledged; false for an id seen in the window before."""

    async def publish_many(self, letters: Sequence[Letter]) -> int:
        """Publish messages in order without waiting in between; how many ids were new.

        Either all are kept or it fails; then all may be published again under their ids.
        """

    def hints(self, pool: str) -> Hints:
        """The hints of a pool, also those published before anyone asked."""

    async def lag(self, pool: str) -> int:
        """How many hints of a pool nobody has fetched yet."""

    async def tell(self, subject: str, payload: bytes) -> None:
        """Tell whoever listens now."""

    def listen(self, subject: str) -> AbstractAsyncContextManager[AsyncIterator[Told]]:
        """Hear what is told or published under a subject (`*` one token, `>` the rest)."""

    async def close(self) -> None:
        """Let go; whoever waits gets `BusGone`, whoever listens comes to an end."""
