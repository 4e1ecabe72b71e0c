"""What a scheme finds in a delivery: a proof of where it comes from, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Secrets = Mapping[str, Mapping[str, Any]]
    """The fields of credentials, by their aliases."""

MOST_SECRETS: Final = 4
STATUS: Final[Mapping[str, int]] = {
    "missing_signature": 401,
    "bad_signature": 401,
    "ambiguous_signature": 401,
    "missing_token": 401,
    "bad_token": 401,
    "stale_timestamp": 401,
    "missing_timestamp": 401,
    "oidc_malformed": 401,
    "oidc_unknown_kid": 401,
    "oidc_expired": 401,
    "oidc_bad_signature": 401,
    "oidc_invalid": 401,
    "oidc_bad_issuer": 401,
    "oidc_wrong_audience": 403,
    "oidc_wrong_sa": 403,
    "oidc_unverified_email": 403,
    "oidc_claim_mismatch": 403,
    "misconfigured": 403,
    "unsupported": 403,
    "jwks_unavailable": 503,
}
"""Every reason that a delivery is refused for, and the status it is answered with."""


class Unproven(Exception):
    """A delivery does not prove where it comes from; the reason is all that anybody is told."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a scheme has found to be true."""

    signed: bytes | None = field(default=None, repr=False)
    """The bytes that the signature covers; none when the scheme signs nothing of the delivery."""
    signed_time: float | None = None
    """When it was sent, where the signature covers that."""
    tolerance_s: int = 0
    id: str | None = None
    """The sender's own id of the delivery."""


def texts(secrets: Secrets, aliases: Iterable[str], *names: str) -> list[str]:
    """The secrets of these credentials, each the first of the fields that it has.

    A credential without one is passed over while another has one. An empty text is no secret.
    """
    asked = tuple(aliases)
    found = []
    for alias in asked:
        fields = secrets.get(alias, {})
        values = (fields.get(name) for name in names)
        value = next((one for one in values if isinstance(one, str) and one), None)
        if value is not None:
            found.append(value)
    if not found or len(asked) > MOST_SECRETS:
        raise Unproven("misconfigured")
    return found
