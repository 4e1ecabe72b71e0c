"""Errors to HTTP bodies: the one place that makes a problem."""

from __future__ import annotations

import re
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from noetl.api.codes import PROBLEMS
from noetl.api.problems import Problem
from noetl.errors import NoetlError
from noetl.ids import random_key

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from noetl.telemetry.fingerprints import Fingerprints

MEDIA_TYPE: Final = "application/problem+json"
REQUEST_ID: Final = "noetl.request_id"
"""Where the name of a request stands in its scope."""
_PREFIX: Final = "https://noetl.dev/e/"
_COME_BACK: Final = (429, 503)
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_encode: Final = msgspec.json.Encoder().encode

TITLES: Final = {code: known.title for code, known in PROBLEMS.items()}


def problem_of(error: BaseException, request_id: str | None = None) -> Problem:
    """The body of an error; what nobody raised on purpose tells nothing of itself."""
    if not isinstance(error, NoetlError):
        return Problem(
            type=f"{_PREFIX}internal",
            title=TITLES["internal"],
            status=500,
            code="internal",
            detail="an error that is not the caller's; the server's log has it",
            request_id=request_id,
        )
    code = error.code
    return Problem(
        type=_PREFIX + code,
        title=TITLES.get(code, code.replace("_", " ").capitalize()),
        status=error.status,
        code=code,
        detail=error.message,
        hint=error.hint,
        errors=tuple(getattr(error, "errors", ())),
        execution_id=getattr(error, "execution_id", None),
        retry_after=_retry_after(error),
        request_id=request_id,
        state=getattr(error, "state", None),
        allowed=tuple(getattr(error, "allowed", ())),
    )


def _retry_after(error: NoetlError) -> float | None:
    """When to come back: always told where the status promises it."""
    known: float | None = getattr(error, "retry_after", None)
    return 1.0 if known is None and error.status in _COME_BACK else known


def answer_of(
    error: BaseException, request_id: str | None = None, seen: Fingerprints | None = None
) -> Response:
    """The answer of an error; a secret that was seen is covered."""
    problem = problem_of(error, request_id)
    headers = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, ceil(problem.retry_after)))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = _encode(problem).decode()
    if seen is not None:
        body = seen.masked(body)
    return Response(body, status_code=problem.status, headers=headers, media_type=MEDIA_TYPE)


async def refused(request: HTTPConnection, error: Exception) -> Response:
    """What the router itself refuses."""
    status = getattr(error, "status_code", HTTPStatus.NOT_FOUND)
    code = "bad_method" if status == HTTPStatus.METHOD_NOT_ALLOWED else "not_found"
    request_id = request.scope.get(REQUEST_ID) or named(request) or f"r-{random_key()}"
    problem = Problem(
        type=_PREFIX + code,
        title=TITLES[code],
        status=status,
        code=code,
        detail=f"{request.scope.get('method', 'GET')} {request.url.path}",
        request_id=request_id,
    )
    headers = {"X-Request-ID": request_id, **(getattr(error, "headers", None) or {})}
    return Response(_encode(problem), status_code=status, headers=headers, media_type=MEDIA_TYPE)


def header(request: HTTPConnection, name: bytes) -> str | None:
    """A header by its name in small letters: a look at the few that came, no map of them."""
    for key, value in request.scope["headers"]:
        if key == name:
            found: str = value.decode("latin-1")
            return found
    return None


def named(request: HTTPConnection) -> str:
    """The caller's own name for a request, if it is one."""
    given = header(request, b"x-request-id")
    return given if given is not None and _REQUEST_ID.match(given) else ""
