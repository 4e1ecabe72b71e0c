"""`jwt` and `oidc`: a token that an issuer has signed, or one under a key of the wallet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.raw import Doubled
from noetl.gateway.ingress.verify.bearer import token_of
from noetl.gateway.ingress.verify.proof import Proof, Unproven, texts
from noetl.gateway.oidc.bearer import Rules, TokenRefused, claims_of, keys_in, kid_of
from noetl.gateway.oidc.keyrings import Published

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import JwtVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets
    from noetl.gateway.oidc.bearer import Found, Held, Keys

ALGORITHMS: Final = {"rs256": "RS256", "es256": "ES256", "eddsa": "EdDSA", "hs256": "HS256"}
_SHARED: Final = "HS256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A key that a token asks for, and where its issuer publishes it."""

    place: Published
    kid: str | None


def verify(config: JwtVerify, raw: Raw, now: float, secrets: Secrets, keys: Keys) -> Proof:
    """Prove that the issuer has given the sender a token for here; the body is not signed."""
    rules = rules_of(config)
    if not config.key_:
        return proven(config.header, rules, raw, now, published(keys))
    known = texts(secrets, config.key_, "key", "value", "public_key", "secret", "token")
    held = [key for one in known for key in keys_in(one)]
    if not held:
        raise Unproven("misconfigured")
    return proven(config.header, rules, raw, now, lambda kid: _named(held, kid))


def wanted(config: JwtVerify, raw: Raw) -> Wanted | None:
    """The key that has to be known before a delivery can be verified; none when no key helps."""
    if config.key_:
        return None
    place = Published(issuer=config.issuer, jwks_url=config.jwks_url or "")
    return wanted_at(place, config.header, rules_of(config), raw)


def wanted_at(place: Published, header: str, rules: Rules, raw: Raw) -> Wanted | None:
    """The same for a place and rules."""
    try:
        found = kid_of(token_of(raw, header).decode("latin-1"), rules.algorithms)
    except (Unproven, Doubled):
        return None
    return None if found is None else Wanted(place=place, kid=found[0])


def proven(
    header: str,
    rules: Rules,
    raw: Raw,
    now: float,
    found: Found,
) -> Proof:
    """The proof of a token that counts."""
    if not rules.algorithms or not rules.issuers or not rules.audience:
        raise Unproven("misconfigured")
    text = token_of(raw, header).decode("latin-1")
    try:
        claims_of(text, rules, found, now)
    except TokenRefused as refusal:
        raise Unproven(refusal.reason) from None
    return Proof()


def published(keys: Keys) -> Found:
    """The one key that an issuer has of a name, or none."""

    def found(kid: str | None) -> Held:
        key = keys(kid)
        return [] if key is None else [key]

    return found


def rules_of(config: JwtVerify) -> Rules:
    """Which tokens count for a listener; a shared key only where a credential holds it."""
    named = [ALGORITHMS[one.lower()] for one in config.algorithms if one.lower() in ALGORITHMS]
    return Rules(
        algorithms=tuple(one for one in named if one != _SHARED or config.key_),
        issuers=frozenset({config.issuer} if config.issuer else ()),
        audience=config.audience,
        leeway_s=config.leeway_secs,
        claims=config.claims,
    )


def _named(held: Held, kid: str | None) -> Held:
    """The keys that a name may mean: those of that name, else those without any."""
    same = [one for one in held if kid is not None and one.kid == kid]
    return same or [one for one in held if kid is None or one.kid is None]
