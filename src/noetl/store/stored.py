"""What is known of bytes that lie apart: results of runs, answers to requests, early callbacks.

The bytes themselves are kept by `noetl.blobs`; a row here says whose they are and how long they
stay. Bytes without a row are kept as long as their run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class ResultRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value."""

    key: str
    """Where its bytes lie; its reference without the scheme."""
    result_id: str
    execution_id: str | None
    name: str = ""
    scope: str = "execution"
    """`step`, `execution`, `workflow`, `permanent`: with whose end it may be deleted."""
    source_step: str | None = None
    content_type: str = "application/json"
    size: int = 0
    sha256: str = ""
    tenant_id: str = "default"
    created_at: str = ""
    expires_at: str | None = None


class Forgotten(NamedTuple):
    """A row that is gone."""

    key: str
    object_key: str | None
    """Where its bytes lie; without it they lay in the row."""


class Results(Protocol):
    """What is known of the stored values of runs."""

    async def keep(self, row: ResultRow) -> None:
        """Say whose a value is; of a known key, scope, step and end are those of the last call."""

    async def found(self, keys: Sequence[str]) -> dict[str, ResultRow]:
        """Rows by key; a key without one is left out."""

    async def forget_expired(self, now: str, limit: int = 1000) -> list[Forgotten]:
        """Forget values whose time has passed, or whose step's run has ended, in one step.

        What is put again meanwhile stays.
        """

    async def delete(self, keys: Sequence[str]) -> int:
        """Forget rows, and the bytes that lie in them; how many there were."""

    async def ownerless(self, execution_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that there are not."""


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a client's request; without `body` its bytes lie in the object store."""

    request_id: str
    sha256: str
    execution_id: str | None = None
    created_at: str = ""
    expires_at: str | None = None
    body: bytes | None = None
    media_type: str | None = None


class Requests(Protocol):
    """Results of clients' requests: the first one counts."""

    async def first(self, row: RequestRow, now: str) -> RequestRow:
        """Keep the result of a request; the one that counts, which may be an earlier one."""

    async def get(self, request_id: str, now: str) -> RequestRow | None:
        """The result of a request, unless its time has passed."""


class HeldRow(msgspec.Struct, frozen=True, kw_only=True):
    """A callback of a container that came before its command has parked."""

    execution_id: str
    step: str
    job_name: str
    body: dict[str, Any]
    expires_at: str


class Held(Protocol):
    """Callbacks that wait for their command."""

    async def put(self, row: HeldRow) -> bool:
        """Keep a callback; false when one of that job is kept already."""

    async def waiting(self, limit: int = 1000) -> list[HeldRow]:
        """Callbacks that wait, those whose time passes first in front."""

    async def drop(self, row: HeldRow) -> bool:
        """Forget a callback; false when somebody else did."""


class Exports(Protocol):
    """Which runs hold data that no sink has taken yet; retention spares them."""

    async def mark(self, execution_ids: Sequence[str], *, is_unexported: bool) -> list[str]:
        """Say of runs whether they do; those that there are, in their order."""

    async def unexported(self, execution_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that do."""
