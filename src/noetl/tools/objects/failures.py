"""What an object store refuses, in the words of tools; its own texts are never shown."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from noetl.tools.base import ToolError, remedied, remedy_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_IDENTITY: Final = frozenset(
    {"SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken",
     "RequestTimeTooSkewed", "TokenRefreshRequired", "AuthorizationHeaderMalformed"}
)  # fmt: skip
_FULL: Final = frozenset({"QuotaExceeded", "StorageFull", "EntityTooLarge"})
_PRESSED: Final = frozenset({"SlowDown", "Throttling", "RequestLimitExceeded"})
_UNKNOWN, _DENIED, _MISSING, _MANY, _CLIENT, _SERVER = 401, 403, 404, 429, 400, 500


@contextmanager
def failing(uri: str) -> Iterator[None]:
    """Translate whatever the library raises about the object `uri`."""
    from obstore.exceptions import (  # noqa: PLC0415 - an extra
        AlreadyExistsError,
        BaseError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )

    try:
        yield
    except FileNotFoundError as fault:
        raise _missing(uri, str(fault)) from None
    except (AlreadyExistsError, PreconditionError):
        message = f"{uri} exists already, and `if_none_match` wants it new"
        raise ToolError("client_error", "already_exists", message) from None
    except UnauthenticatedError as fault:
        raise _refused(uri, _UNKNOWN, _code(str(fault))) from None
    except PermissionDeniedError as fault:
        raise _refused(uri, _DENIED, _code(str(fault))) from None
    except BaseError as fault:
        raise _translated(uri, str(fault)) from None


def _translated(uri: str, text: str) -> ToolError:
    found = _STATUS.search(text)
    code = _code(text)
    if found is None:
        return _unreached(uri, text)
    status = int(found[1])
    if status == _MISSING:
        return _missing(uri, text)
    if code in _FULL:
        message = f"{uri}: the store takes no more"
        return remedied(ToolError("storage_quota", "store_full", message))
    if status == _MANY or code in _PRESSED:
        message = f"{uri}: too many requests"
        return remedied(ToolError("rate_limit", "slow_down", message, status_code=status))
    if status >= _SERVER:
        message = f"{uri}: the store failed with {status}: {remedy_of(status)}"
        return ToolError("server_error", f"http_{status}", message, status_code=status)
    if status in {_UNKNOWN, _DENIED} or code in _IDENTITY:
        return _refused(uri, status, code)
    said = f"{status} ({code})" if code else str(status)
    message = f"{uri}: the store refused it with {said}: {remedy_of(status)}"
    return ToolError("client_error", f"http_{status}", message, status_code=status)


def _unreached(uri: str, text: str) -> ToolError:
    lower = text.lower()
    if "certificate" in lower:
        message = f"{uri}: the certificate of the endpoint is not trusted"
        return remedied(ToolError("connection", "TLS_ERROR", message, retryable=False))
    if "timed out" in lower:
        message = f"{uri}: the store did not answer in time"
        return remedied(ToolError("timeout", "CONN_TIMEOUT", message))
    if "dns" in lower or "lookup" in lower:
        message = f"{uri}: the name of the endpoint is not known"
        return remedied(ToolError("connection", "DNS_ERROR", message))
    if "private key" in lower or "credential" in lower or "service account" in lower:
        message = f"{uri}: the identity cannot be used; check the fields of the credential"
        return ToolError("auth", "bad_credential", message)
    if "refused" in lower or "sending request" in lower or "connect" in lower:
        message = f"{uri}: the endpoint of the store cannot be reached"
        return remedied(ToolError("connection", "CONN_REFUSED", message))
    message = f"{uri}: the store did not do it; let the step retry"
    return ToolError("server_error", "store_failed", message)


def _missing(uri: str, text: str) -> ToolError:
    if _code(text) in {"NoSuchBucket", "BucketNotFound"} or "bucket does not exist" in text:
        bucket = "/".join(uri.split("/")[:3])
        message = f"the bucket {bucket} does not exist; create it, or check its name and region"
        return ToolError("not_found", "no_such_bucket", message, status_code=_MISSING)
    message = f"{uri} does not exist"
    return remedied(ToolError("not_found", "no_such_object", message, status_code=_MISSING))


def _refused(uri: str, status: int, code: str) -> ToolError:
    if status == _UNKNOWN or code in _IDENTITY:
        message = (
            f"{uri}: the store does not accept the identity{f' ({code})' if code else ''};"
            " check key, secret and expiry of the credential"
        )
        return ToolError("auth", "auth_failed", message, status_code=status)
    message = f"{uri}: access denied; grant the identity of the credential this right"
    return ToolError("storage_access", "access_denied", message, status_code=status)


def _code(text: str) -> str:
    found = _CODE.search(text)
    return found[1] if found else ""
