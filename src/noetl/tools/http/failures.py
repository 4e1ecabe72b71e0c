"""What an answer or a broken connection means as an error of the task."""

from __future__ import annotations

import socket
import ssl
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

import httpcore

from noetl.tools.base import ToolError, remedied, remedy_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

MOST_RETRY_AFTER_S: Final = 365 * 86_400.0
_KINDS: Final = {401: "auth", 403: "auth", 404: "not_found", 429: "rate_limit"}
_SERVER: Final = 500
_TLS: Final = "a credential of type tls in `auth` names the authorities to trust (`ca`)"


def status_error(status: int, headers: Mapping[str, str], body: object, now: datetime) -> ToolError:
    """The error of an answer that is not ok."""
    return ToolError(
        kind_of(status),
        f"http_{status}",
        f"the server answered {status}: {remedy_of(status)}",
        status_code=status,
        retry_after_s=retry_after(headers.get("retry-after"), now),
        details={"body": body},
    )


def kind_of(status: int) -> str:
    """The kind of error that the status of an answer is."""
    return _KINDS.get(status, "server_error" if status >= _SERVER else "client_error")


def retry_after(text: str | None, now: datetime) -> float | None:
    """How long the server asks to wait: seconds or a date; None when it does not say."""
    given = (text or "").strip()
    if not given:
        return None
    if given.isascii() and given.isdigit():
        return min(float(given), MOST_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(given)
        wait = (moment - now).total_seconds()
    except (ValueError, TypeError, OverflowError):  # no date, or one without a zone
        return None
    return min(max(0.0, wait), MOST_RETRY_AFTER_S)


def translated(fault: Exception) -> ToolError:
    """The error of a connection that failed."""
    said = str(fault) or type(fault).__name__
    if isinstance(fault, (httpcore.ConnectTimeout, httpcore.PoolTimeout)):
        return remedied(ToolError("timeout", "CONN_TIMEOUT", said))
    if isinstance(fault, httpcore.TimeoutException):
        return remedied(ToolError("timeout", "tool_timeout", said))
    if isinstance(fault, httpcore.LocalProtocolError):
        return ToolError("config", "invalid_config", said)
    for cause in _causes(fault):
        if isinstance(cause, ToolError):
            return cause
        if isinstance(cause, ssl.SSLError):
            return ToolError("connection", "TLS_ERROR", f"{cause}: {_TLS}", retryable=False)
        if isinstance(cause, socket.gaierror):
            return remedied(ToolError("connection", "DNS_ERROR", said))
    code = "CONN_REFUSED" if isinstance(fault, httpcore.ConnectError) else "CONN_RESET"
    return remedied(ToolError("connection", code, said))


def _causes(fault: BaseException) -> Iterator[BaseException]:
    """A fault and what led to it."""
    seen: set[int] = set()
    here: BaseException | None = fault
    while here is not None and id(here) not in seen:
        seen.add(id(here))
        yield here
        here = here.__cause__ or here.__context__
