"""Tokens that deliveries carry: whether one counts, and in one word why it does not.

All is decided from what is given; the keys of issuers are asked for by whoever calls.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey

from noetl.gateway.oidc.errors import BadSignature, IssuerUnreachable
from noetl.gateway.oidc.tokens import heading, key_of, must_be_signed

Keys = Callable[[str | None], Key | None]
"""The key of a name; none when the issuer has none. Raises IssuerUnreachable when nobody knows."""
Held = Sequence[Key]
Found = Callable[[str | None], Held]
"""Every key that a name may mean."""

LEAST_SECRET_BYTES: Final = 32
"""Shorter ones can be guessed (RFC 7518, 3.2)."""
_TYPES: Final = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP", "HS256": "oct"}
_KINDS: Final = (RSAKey, ECKey, OKPKey)


class TokenRefused(Exception):
    """A token that does not count; the reason is all that anybody is told."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which tokens count."""

    algorithms: tuple[str, ...]
    issuers: frozenset[str]
    audience: str
    leeway_s: int
    email: str = ""
    """Whose token it must be, by an address that the issuer has verified; empty: anybody's."""
    claims: Mapping[str, Any] = field(default_factory=dict)
    """Claims that must be equal."""


def unavailable(kid: str | None) -> Key | None:
    """The keys of an issuer of whom nothing is known."""
    raise IssuerUnreachable(f"there are no keys{' of that name' if kid else ''}")


def kid_of(text: str, algorithms: Sequence[str]) -> tuple[str | None] | None:
    """The name of the key that a token asks for; no answer when no key could make it count."""
    try:
        header = heading(text)[0]
        _must_be_taken(header, algorithms)
    except (BadSignature, TokenRefused):
        return None
    return (_kid(header),)


def claims_of(text: str, rules: Rules, found: Found, now: float) -> dict[str, Any]:
    """The claims of a token that counts: signed first, then believed."""
    try:
        header, claims = heading(text)
    except BadSignature:
        raise TokenRefused("oidc_malformed") from None
    if not all(_is_plain(part) for part in text.split(".")):
        raise TokenRefused("oidc_malformed")
    _must_be_taken(header, rules.algorithms)
    try:
        keys = found(_kid(header))
    except IssuerUnreachable:
        raise TokenRefused("jwks_unavailable") from None
    if not keys:
        raise TokenRefused("oidc_unknown_kid")
    # A key serves its own kind of signature alone: the public key of an issuer is no secret.
    fitting = [one for one in keys if one.key_type == _TYPES[header["alg"]]]
    if not any([_is_signed(text, header, one, rules) for one in fitting]):  # noqa: C419 - each is tried
        raise TokenRefused("oidc_bad_signature")
    _must_count(claims, rules, now)
    return claims


def keys_in(text: str) -> list[Key]:
    """The keys that a credential holds: PEM, a JWK, a set of them, or a shared secret."""
    told = text.strip()
    if told.startswith("-----BEGIN"):
        return _from_pem(told)
    if told.startswith("{"):
        return _from_json(told)
    secret = text.encode()
    return [OctKey.import_key(secret)] if len(secret) >= LEAST_SECRET_BYTES else []


# ---------------------------------------------------------------------------- signature


def _is_plain(part: str) -> bool:
    """Whether a part of a token is in the one spelling of its bytes."""
    try:
        found = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return False
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode() == part


def _kid(header: Mapping[str, Any]) -> str | None:
    kid = header.get("kid")
    return kid if isinstance(kid, str) else None


def _must_be_taken(header: Mapping[str, Any], algorithms: Sequence[str]) -> None:
    """Refuse a token for how it is signed, before any key is looked for."""
    alg = header.get("alg")
    if alg not in algorithms or alg not in _TYPES or not {"crit", "b64"}.isdisjoint(header):
        raise TokenRefused("oidc_invalid")


def _is_signed(text: str, header: Mapping[str, Any], key: Key, rules: Rules) -> bool:
    try:
        must_be_signed(text, header, key, rules)
    except BadSignature:
        return False
    return True


# ---------------------------------------------------------------------------- claims


def _must_count(claims: Mapping[str, Any], rules: Rules, now: float) -> None:
    if claims.get("iss") not in tuple(rules.issuers):  # what cannot be hashed is none of them
        raise TokenRefused("oidc_bad_issuer")
    _must_be_now(claims, now, rules.leeway_s)
    told = claims.get("aud")
    if not rules.audience or rules.audience not in (told if isinstance(told, list) else [told]):
        raise TokenRefused("oidc_wrong_audience")
    if rules.email:
        if claims.get("email") != rules.email:
            raise TokenRefused("oidc_wrong_sa")
        if claims.get("email_verified") is not True:
            raise TokenRefused("oidc_unverified_email")
    for name, value in rules.claims.items():
        if name not in claims or _as_text(claims[name]) != _as_text(value):
            raise TokenRefused("oidc_claim_mismatch")


def _must_be_now(claims: Mapping[str, Any], now: float, leeway_s: int) -> None:
    times = {}
    for name in ("exp", "iat", "nbf"):
        value = claims.get(name)
        if value is None and name == "nbf":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TokenRefused("oidc_invalid")
        if not math.isfinite(value):
            raise TokenRefused("oidc_invalid")
        times[name] = value
    if times["exp"] <= now - leeway_s:
        raise TokenRefused("oidc_expired")
    if times["iat"] > now + leeway_s or times.get("nbf", 0) > now + leeway_s:
        raise TokenRefused("oidc_invalid")


def _as_text(value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """One text for each value, so that `true` is not 1."""
    return msgspec.json.encode(value, order="deterministic")


# ---------------------------------------------------------------------------- keys


def _from_pem(text: str) -> list[Key]:
    for kind in _KINDS:
        try:
            return [kind.import_key(text)]
        except (JoseError, ValueError, TypeError):
            continue
    return []


def _from_json(text: str) -> list[Key]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return []
    listed = told.get("keys", [told])
    maps = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    found = [_shared(one) if one.get("kty") == "oct" else key_of(one) for one in maps]
    return [one for one in found if one is not None]


def _shared(told: Mapping[str, Any]) -> Key | None:
    """A shared secret as a JWK; none when it can be guessed."""
    text, kid = told.get("k"), told.get("kid")
    if not isinstance(text, str) or not _is_plain(text):
        return None
    secret = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(secret) < LEAST_SECRET_BYTES:
        return None
    return OctKey.import_key(secret, {"kid": kid} if isinstance(kid, str) else None)
