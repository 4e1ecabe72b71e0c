"""What a source of messages does: give a few, and be told what became of them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SOURCES: Final = ("nats", "kafka", "pubsub")
"""Every kind of source that documents may name."""
_DEEP: Final = 500
"""A body with fewer brackets is never nested too deep."""
_AROUND: Final = 64
"""So much deeper a body may come to lie: in a message, in a workload, in a request."""


class SourceError(NoetlError):
    """A source cannot be read; `kind` says why in the words that tasks fail with."""

    def __init__(self, kind: str, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message, code=code)
        self.kind = kind
        self.is_retryable = retryable


class PolledMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as playbooks see it."""

    id: str
    """The same for every delivery, unique within the source."""
    data: Any
    headers: dict[str, Any]
    """By their lower-case names."""
    attributes: dict[str, str]
    """As the source names them."""
    metadata: dict[str, Any]
    ordering_key: str | None
    raw: str | UnsetType = UNSET
    encoding: str | UnsetType = UNSET
    ack_id: str | UnsetType = UNSET
    """What settles it, for those who settle it themselves."""

    def as_json(self) -> dict[str, Any]:
        """As JSON; what it does not have is left out."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


class AckFault(msgspec.Struct, frozen=True, kw_only=True):
    """A message that could not be settled."""

    ack_id: str
    code: str
    message: str


class AckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of messages that were settled."""

    requested: int
    disposed: int
    errors: tuple[AckFault, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a source waits for somebody who holds its messages, where it can tell."""

    max_deliver: int | None = None
    """So often a message is delivered; then it is lost for us."""
    max_age_s: float | None = None
    """So old a message becomes; then the source forgets it."""
    ack_wait_s: float | None = None
    """So long a message may be held; then it is delivered again."""


class Source(Protocol):
    """Messages of one place; a poll never settles them."""

    async def poll(self, batch: int, timeout_ms: int) -> list[PolledMessage]:
        """At most `batch` messages, as soon as there are some; none after the time."""

    async def ack(self, ack_ids: Sequence[str]) -> AckReport:
        """They need no further delivery."""

    async def nack(self, ack_ids: Sequence[str], delay_ms: int = 0) -> AckReport:
        """Deliver them again, after a while."""

    async def term(self, ack_ids: Sequence[str]) -> AckReport:
        """Never deliver them again."""

    async def extend(self, ack_ids: Sequence[str]) -> AckReport:
        """Somebody still works at them."""

    async def backlog(self) -> int | None:
        """How many messages wait, where the source can tell."""

    def facts(self) -> Facts:
        """What was known of its patience when it was opened."""

    async def close(self) -> None:
        """Let go; what was not settled is delivered again."""


def unavailable(source: str) -> SourceError:
    """The error of a kind of source whose client is not installed."""
    message = f"the source `{source}` needs a client: pip install 'noetl[{source}]'"
    return SourceError("config", "source_unavailable", message)


def body_of(raw: bytes) -> dict[str, Any]:
    """A body as `data`: JSON, else text; bytes that are neither stay in `raw`, in base64."""
    if not raw:
        return {"data": None}
    try:
        return {"data": _parsed(raw)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the last: nested too deep
        pass
    try:
        return {"data": raw.decode()}
    except UnicodeDecodeError:
        return {"data": None, "encoding": "base64", "raw": base64.b64encode(raw).decode("ascii")}


def _parsed(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
    """A body of JSON; one that could be read and then not be sent on is nested too deep, too."""
    value = parsed = msgspec.json.decode(raw)
    if raw.count(b"[") + raw.count(b"{") > _DEEP:
        for _ in range(_AROUND):
            value = [value]
        msgspec.json.encode(value)
    return parsed


def bytes_of(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """The body that `body_of` reads as this value: text as it is, anything else as JSON."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    return msgspec.json.encode(value)


def lowered(headers: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Headers by their lower-case names; several of one name become a list, in order."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def report_of(ack_ids: Sequence[str], faults: Mapping[str, tuple[str, str]]) -> AckReport:
    """The report of some ids, and of those among them that failed."""
    errors = tuple(
        AckFault(ack_id=ack_id, code=faults[ack_id][0], message=faults[ack_id][1])
        for ack_id in ack_ids
        if ack_id in faults
    )
    return AckReport(requested=len(ack_ids), disposed=len(ack_ids) - len(errors), errors=errors)
