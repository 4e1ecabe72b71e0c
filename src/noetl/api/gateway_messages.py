"""What the gateway tells on a stream, as its clients read it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.api.gateway import (  # noqa: TC001 - msgspec reads the types of the fields
    DataRef,
    Failure,
    RequestDocument,
)

_STATUSES: Final = {"completed": "COMPLETED", "cancelled": "CANCELLED"}


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What messages about requests have in common."""

    request_id: str
    execution_id: str = ""


class Progress(_Told, frozen=True, kw_only=True, rename="camel"):
    """How far a request is."""

    step: str | None = None
    message: str | None = None
    progress: float | None = None


class Result(_Told, frozen=True, kw_only=True, rename="camel"):
    """How a request has ended."""

    status: str
    data: Any = None
    data_ref: DataRef | None = None
    error: Failure | None = None

    @classmethod
    def of(cls, document: RequestDocument) -> Result:
        """The end of a request that was looked up."""
        return cls(
            request_id=document.request_id,
            execution_id=document.execution_id,
            status=_STATUSES.get(document.state, "FAILED"),
            data=document.result,
            data_ref=document.result_ref,
            error=document.error,
        )


class Pending(_Told, frozen=True, kw_only=True, rename="camel"):
    """A request that has not ended."""

    playbook_path: str = ""
    deadline: str = ""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what was missed could be told again."""

    requested: bool = False
    recovered: bool = False


class Greeting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the gateway says first."""

    client_id: str
    epoch: str = ""
    recovery: Recovery = Recovery()
    pending_requests: tuple[Pending, ...] = ()
