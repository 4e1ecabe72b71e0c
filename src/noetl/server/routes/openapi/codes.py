"""Which problems the operations of the server are answered with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.edge.declared import PUBLIC
from noetl.edge.openapi import method_of, names_of

if TYPE_CHECKING:
    from noetl.edge.openapi import Named

_READS: Final = "GET"
_EVERY: Final = ("unknown_parameter", "bad_value", "internal", "db_unavailable", "timeout")
_PROTECTED: Final = (
    "auth_required", "token_expired", "session_expired", "forbidden", "rate_limited",
)  # fmt: skip
_INTERNAL: Final = ("internal_token_mismatch", "internal_token_unset")
_WRITES: Final = ("draining", "pool_saturated", "storage_full")
_BODIES: Final = (
    "bad_json", "bad_media_type", "body_too_large", "unknown_field", "validation_failed",
    "invalid_id", "bad_time",
)  # fmt: skip
_QUERIES: Final = ("validation_failed", "invalid_id", "bad_time")
_OF_NAMES: Final = {
    "execution_id": ("unknown_execution", "invalid_id"),
    "path": ("unknown_path", "path_invalid"),
    "event_id": ("unknown_command", "not_found", "invalid_id"),
    "pool": ("unknown_worker", "pool_invalid"),
}
_ANY_NAME: Final = ("not_found", "invalid_id", "validation_failed")


def codes_of(route: Named) -> list[str]:
    """Codes of every such route, and the route's own."""
    declared = route.declared
    codes: list[str] = [*declared.codes, *_EVERY]
    if route.permission != PUBLIC:
        codes += _PROTECTED
    if route.permission == "internal":
        codes += _INTERNAL
    if method_of(route) != _READS:
        codes += _WRITES
    if declared.body is not None or declared.takes is not None:
        codes += _BODIES
    if declared.query:
        codes += _QUERIES
    if any(parameter.name == "cursor" for parameter in declared.query):
        codes.append("bad_cursor")
    for name in names_of(route):
        codes += _OF_NAMES.get(name, _ANY_NAME)
    return codes
