"""Requests to run playbooks, as clients of the gateway send them and are told of them."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

OPEN: Final = ("accepted", "running")
"""The states of a request whose end is still to come."""
CALLBACK_HEADER: Final = "x-noetl-callback-token"
"""Proves to a gateway that a run itself sends word of it."""
MOST_CALLBACK_BYTES: Final = 8 * 1024 * 1024
"""A larger callback is refused."""
End = Literal["completed", "failed", "cancelled", "timeout"]
_ENDS: Final[dict[str, End]] = {
    **dict.fromkeys(("COMPLETED", "SUCCESS", "SUCCEEDED", "OK", "DONE"), "completed"),
    **dict.fromkeys(("FAILED", "ERROR", "FAILURE"), "failed"),
    **dict.fromkeys(("CANCELLED", "CANCELED"), "cancelled"),
    "TIMEOUT": "timeout",
}
_MOST_WORD: Final = max(map(len, _ENDS)) + 8
_STATUSES: Final = {"completed": "COMPLETED", "cancelled": "CANCELLED"}


class Wish(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename="camel",
):
    """A playbook is to run; `playbook/execute`, `executePlaybook` and MCP calls are this."""

    name: str
    variables: dict[str, Any] | None = None
    client_id: str | None = None
    resource_kind: Literal["playbook", "agent"] = "playbook"
    version: int | None = None
    delivery: Literal["client", "session", "user", "none"] | None = None
    idempotency_key: str | None = None
    timeout_secs: int | None = None
    on_timeout: Literal["leave", "cancel"] = "leave"


class Accepted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """It runs; the result follows."""

    request_id: str
    execution_id: str
    status: str = "PENDING"


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there is no result, in the codes of JSON-RPC."""

    code: int
    message: str
    data: dict[str, Any] | None = None


class DataRef(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is too large for a stream."""

    ref: str
    bytes: int
    sha256: str


class RequestDocument(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """What is known of a request."""

    request_id: str
    execution_id: str
    playbook_path: str
    state: Literal["accepted", "running", "completed", "failed", "cancelled", "timeout", "rejected"]
    created_at: str
    deadline: str
    result: Any = None
    error: Failure | None = None
    result_ref: DataRef | None = None
    late_result: dict[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether its end is still to come."""
        return self.state in OPEN


def status_of(state: str) -> str:
    """The word of a result, by the state in which its request has ended."""
    return _STATUSES.get(state, "FAILED")


def end_of(status: str) -> End | None:
    """What the status of a callback means, in any case of letters; none when it is no status."""
    return _ENDS.get(status.strip().upper()) if len(status) <= _MOST_WORD else None


class ShardPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run belongs, as the gateway sees it."""

    execution_id: str
    shard_count: int
    shard_index: int
    hash_function: str
    seed: int
    source: str = "noetl-gateway"


class GatewayReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether callers may be sent to a gateway, and what it lacks."""

    status: Literal["ok", "unready"]
    server: str
    nats: str
    kv: str
    shards: str
    """`ok`, `unknown` until the server was asked, `mismatch` when it sees them differently."""
    draining: bool
    failing: tuple[str, ...] = ()


class GatewayContract(msgspec.Struct, frozen=True, kw_only=True):
    """What a client of the gateway can rely on."""

    version: str
    contract_version: str
    protocol_versions: dict[str, tuple[str, ...]]
    routes: dict[str, tuple[str, ...]]
    """By permission, each as `METHOD /path`; a WebSocket is `WS /path`."""
    providers: tuple[dict[str, str], ...]
    limits: dict[str, float]
    features: dict[str, bool]


class Callback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a playbook tells of its end; fields that nobody knows are left aside."""

    request_id: str
    execution_id: str | int | None = None
    status: str = "COMPLETED"
    step: str | None = None
    data: Any = None
    error: Any = None
    callback_token: str | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a playbook tells of its way."""

    request_id: str
    execution_id: str | int | None = None
    step: str | None = None
    message: str | None = None
    progress: float | None = None
    callback_token: str | None = None


class CallbackAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What became of a callback."""

    status: Literal["delivered", "queued", "duplicate", "sent", "ignored"]
    client_disconnected: bool = False


class CallbackHeard(msgspec.Struct, frozen=True, kw_only=True):
    """Whether somebody waited for a callback."""

    delivered: bool
    message: str


class RequestPage(msgspec.Struct, frozen=True, kw_only=True):
    """The newest requests of the caller."""

    items: tuple[RequestDocument, ...]


class CancelRequest(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The run of a request is to end."""

    cascade: bool = True
    reason: str = ""


class RequestCancelled(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The run that ends."""

    execution_id: str
    status: str
