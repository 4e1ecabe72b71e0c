"""Why somebody whom an issuer sends is not let in."""

from __future__ import annotations

from typing import ClassVar

from noetl.errors import NoetlError


class IssuerNotAllowed(NoetlError):
    """The token is of an issuer that nobody has configured."""

    code = "issuer_not_allowed"
    status: ClassVar[int] = 401


class BadSignature(NoetlError):
    """The token is not signed by its issuer, or in a way that is not taken."""

    code = "bad_signature"
    status: ClassVar[int] = 401


class BadClaims(NoetlError):
    """The token is for somebody else, for another time or for another sign-in."""

    code = "bad_claims"
    status: ClassVar[int] = 401


class BadState(NoetlError):
    """A way back from the issuer that nobody here has begun, or that was gone before."""

    code = "bad_state"
    status: ClassVar[int] = 401


class CodeRefused(NoetlError):
    """The issuer gives no token for this code."""

    code = "code_refused"
    status: ClassVar[int] = 401


class IssuerUnreachable(NoetlError):
    """The issuer does not answer, and what is known of it is too old."""

    code = "auth_unavailable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0


class UnknownProvider(NoetlError):
    """There is no sign-in provider of that name."""

    code = "unknown_provider"
    status: ClassVar[int] = 404
