"""Tokens of issuers: whose they are by their own word, and whether that word counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import JWKRegistry

from noetl.gateway.oidc.errors import BadClaims, BadSignature

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joserfc.jwk import Key

    from noetl.gateway.oidc.provider import Provider

LEEWAY_S: Final = 60
MOST_CHARS: Final = 16_384
_SUBJECT_CHARS: Final = 255


class Taken(Protocol):
    """Whoever says which algorithms are taken."""

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Their names."""


class _Registry(jws.JWSRegistry):
    """Takes the algorithms of a provider, and no other."""

    max_header_length: ClassVar[int] = 8192  # type: ignore[misc] # a limit of the class here
    max_payload_length: ClassVar[int] = MOST_CHARS  # type: ignore[misc] # as above

    def get_alg(self, name: str) -> Any:  # noqa: ANN401 - the library tells its name to nobody
        """The algorithm, without the warning that EdDSA has got a longer name."""
        if not self.allowed or name not in self.allowed or name not in self.algorithms:
            raise UnsupportedAlgorithmError("the algorithm is not taken")
        return self.algorithms[name]


def heading(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a token says of itself, before anything of it is believed."""
    if len(text) > MOST_CHARS or not text.isascii():
        raise BadSignature("the token is too long, or no token")
    try:
        found = jws.extract_compact(text.encode(), None, _Registry(strict_check_header=False))
        claims: Any = json.loads(found.payload)
    except (JoseError, ValueError, RecursionError):
        raise BadSignature("the token is no signed token") from None
    header = found.headers()
    if not isinstance(claims, dict) or not isinstance(header, dict):
        raise BadSignature("the token is no signed token")
    return header, claims


def key_of(told: Mapping[str, Any]) -> Key | None:
    """A public key as its issuer publishes it; none when it is not for signatures."""
    if told.get("kty") not in {"RSA", "EC", "OKP"} or told.get("use", "sig") != "sig":
        return None
    try:
        return JWKRegistry.import_key({name: told[name] for name in told if name != "d"})
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def must_be_signed(text: str, header: Mapping[str, Any], key: Key, taken: Taken) -> None:
    """Refuse a token that this key has not signed, in a way that is taken."""
    must_be_taken(header, taken)
    told = key.as_dict(private=False).get("alg")
    if told is not None and told != header["alg"]:
        raise BadSignature("the key is for another algorithm")
    registry = _Registry(algorithms=taken.algorithms, strict_check_header=False)
    try:
        jws.deserialize_compact(text.encode(), key, registry=registry)
    except (JoseError, ValueError, TypeError):
        raise BadSignature("the token is not signed by its issuer") from None


def must_be_taken(header: Mapping[str, Any], taken: Taken) -> None:
    """Refuse a token for how it is signed, before any key is looked for."""
    if header.get("alg") not in taken.algorithms:
        raise BadSignature("the token is signed in a way that is not taken")
    if "crit" in header:
        raise BadSignature("the token asks for something that is not known here")


def must_count(
    claims: Mapping[str, Any], provider: Provider, now: float, nonce: str | None
) -> None:
    """Refuse a token that is for somebody else, another time or another sign-in."""
    if claims.get("iss") != provider.issuer:
        raise BadClaims("`iss` is not the issuer")
    told = claims.get("aud")
    audiences = told if isinstance(told, list) else [told]
    if provider.audience not in audiences:
        raise BadClaims("`aud` is not for this gateway")
    party = claims.get("azp")
    if party is not None and party not in {provider.client_id, provider.audience}:
        raise BadClaims("`azp` is another client")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= _SUBJECT_CHARS:
        raise BadClaims("`sub` is missing")
    _must_be_now(claims, now)
    if nonce is not None and (not nonce or claims.get("nonce") != nonce):
        raise BadClaims("`nonce` is not that of this sign-in")


def _must_be_now(claims: Mapping[str, Any], now: float) -> None:
    for name in ("exp", "iat", "nbf"):
        value = claims.get(name)
        if value is None and name == "nbf":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - not a number
            raise BadClaims(f"`{name}` is no time")
        is_good = value > now - LEEWAY_S if name == "exp" else value <= now + LEEWAY_S
        if not is_good:
            raise BadClaims("the token has expired" if name == "exp" else f"`{name}` is to come")
