"""Verified or rejected: the one way from a delivery to something that may be believed.

`Verified` is made here and nowhere else, and it holds the request that was verified. Whoever plans
a run takes it, so that no header of a stranger can route anything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from noetl.dsl.subscription.verify import HmacVerify, JwtVerify, PubsubVerify
from noetl.gateway.ingress.raw import Doubled
from noetl.gateway.ingress.verify import (
    api_key,
    basic,
    bearer,
    ed25519,
    github,
    hmac_sha256,
    jwt,
    pubsub_oidc,
    shopify,
    slack,
    standard_webhooks,
    stripe,
    svix,
)
from noetl.gateway.ingress.verify.proof import STATUS, Proof, Unproven
from noetl.gateway.oidc.bearer import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.dsl.subscription.verify import Verify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.jwt import Wanted
    from noetl.gateway.ingress.verify.proof import Secrets
    from noetl.gateway.oidc.bearer import Keys

REPLAY_WINDOW_S: Final = 604_800
MOST_WINDOW_S: Final = 2_592_000
SIGNED: Final[Mapping[str, Callable[..., Proof]]] = {
    "hmac_sha256": hmac_sha256.verify,
    "stripe": stripe.verify,
    "github": github.verify,
    "slack": slack.verify,
    "standard_webhooks": standard_webhooks.verify,
    "svix": svix.verify,
    "shopify": shopify.verify,
    "ed25519": ed25519.verify,
    "bearer": bearer.verify,
    "basic": basic.verify,
    "api_key": api_key.verify,
}
"""Schemes that need secrets alone."""
ISSUED: Final[Mapping[str, Callable[..., Proof]]] = {
    "pubsub_oidc": pubsub_oidc.verify,
    "jwt": jwt.verify,
    "oidc": jwt.verify,
}
"""Schemes that need the keys of an issuer as well."""
_MINE: Final = object()


class Verified:
    """A delivery whose sender is known; only `verify` makes one."""

    __slots__ = ("id", "raw", "replay_key", "replay_window_s", "scheme", "signed_time")

    id: str | None
    """The sender's own id of the delivery."""
    signed_time: float | None
    """When it was sent, where the signature covers that."""
    replay_key: str | None
    """What is the same when it is sent again; none when the scheme signs nothing of it."""
    replay_window_s: int
    """How long that is remembered."""
    scheme: str
    raw: Raw
    """What was verified."""

    def __init__(self, mine: object, raw: Raw, scheme: str, proof: Proof, window_s: int) -> None:
        if mine is not _MINE:
            raise TypeError("only a verifier says that a delivery is verified")
        is_timed = proof.signed_time is not None
        set_ = object.__setattr__
        set_(self, "id", proof.id)
        set_(self, "signed_time", proof.signed_time)
        set_(self, "replay_key", _sha256(proof.signed))
        set_(self, "replay_window_s", 2 * proof.tolerance_s if is_timed else window_s)
        set_(self, "scheme", scheme)
        set_(self, "raw", raw)
        if self.replay_key is None:
            set_(self, "replay_window_s", 0)

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("nothing else is verified")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"`{name}` of a verified delivery cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"`{name}` of a verified delivery cannot be changed")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a verified delivery is not copied or stored")

    def __repr__(self) -> str:
        return f"Verified(scheme={self.scheme!r})"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A delivery that is refused; the reason is the code of the answer."""

    reason: str

    def __post_init__(self) -> None:
        """Refuse a reason that nobody knows."""
        if self.reason not in STATUS:
            raise ValueError("there is no such reason")

    @property
    def status(self) -> int:
        """The status of the answer."""
        return STATUS[self.reason]

    @property
    def is_forged(self) -> bool:
        """Whether the sender is at fault; an issuer that is away is nobody's forgery."""
        return self.reason not in {"jwks_unavailable", "misconfigured", "unsupported"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a delivery is verified with."""

    secrets: Secrets
    """The fields of credentials, by alias."""
    keys: Keys = unavailable
    """The keys of the issuer, asked for beforehand (`wanted`)."""
    replay_window_s: int = REPLAY_WINDOW_S
    """How long a body is remembered whose signature covers no time."""

    def __repr__(self) -> str:
        return "Known()"


def verify(config: Verify | None, raw: Raw, now: float, known: Known) -> Verified | Rejected:
    """Whether a delivery proves where it comes from, by the scheme of its listener."""
    scheme = scheme_of(config)
    more: tuple[Any, ...] = (known.keys,) if scheme in ISSUED else ()
    check = SIGNED.get(scheme) or ISSUED.get(scheme)
    if check is None:  # `none` among them
        return Rejected("unsupported")
    window_s = known.replay_window_s
    if not 1 <= window_s <= MOST_WINDOW_S:
        return Rejected("misconfigured")
    try:
        proof = check(config, raw, now, known.secrets, *more)
    except Doubled:
        return Rejected("ambiguous_signature")
    except Unproven as refusal:
        return Rejected(refusal.reason)
    return Verified(_MINE, raw, scheme, proof, window_s)


def wanted(config: Verify | None, raw: Raw) -> Wanted | None:
    """The key of an issuer that `verify` will ask for; none when it needs none."""
    if isinstance(config, PubsubVerify):
        return pubsub_oidc.wanted(config, raw)
    return jwt.wanted(config, raw) if isinstance(config, JwtVerify) else None


def scheme_of(config: Verify | None) -> str:
    """The scheme of a listener: a provider's own where only its header is named."""
    if config is None:
        return ""
    return config.scheme if isinstance(config, HmacVerify) else config.type


def _sha256(signed: bytes | None) -> str | None:
    return None if signed is None else hashlib.sha256(signed).hexdigest()
