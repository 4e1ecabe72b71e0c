"""Deliveries that are not taken: a code, and nothing that would help somebody to guess."""

from __future__ import annotations

from typing import Final

OVERLOADED: Final = "overloaded"
HEADERS_TOO_LARGE: Final = "headers_too_large"
BODY_TOO_LARGE: Final = "body_too_large"
BODY_TIMEOUT: Final = "body_timeout"
RATE_LIMITED: Final = "rate_limited"
IP_NOT_ALLOWED: Final = "ip_not_allowed"
UNKNOWN_LISTENER: Final = "unknown_listener"
CONFIG_UNAVAILABLE: Final = "config_unavailable"
DEACTIVATED: Final = "deactivated"
BAD_METHOD: Final = "bad_method"
BAD_MEDIA_TYPE: Final = "bad_media_type"
BAD_ENVELOPE: Final = "bad_envelope"
NOT_ACTIVE: Final = "not_active"
CIRCUIT_OPEN: Final = "circuit_open"
SPOOL_FULL: Final = "spool_full"
SPOOL_UNAVAILABLE: Final = "spool_unavailable"
DISPATCH_FAILED: Final = "dispatch_failed"


class TurnedAway(Exception):
    """A delivery that goes no further; who sent it is told the code alone."""

    def __init__(self, code: str, *, retry_after: float | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.retry_after = retry_after
