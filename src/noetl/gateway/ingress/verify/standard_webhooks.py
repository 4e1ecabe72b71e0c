"""`standard_webhooks`: id, time and body, signed with a shared secret or a key of the sender.

`svix` is the same under headers of another name.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.verify.ed25519 import public_keys
from noetl.gateway.ingress.verify.proof import Proof, Unproven
from noetl.gateway.ingress.verify.signatures import (
    MOST_SIGNATURES,
    hmacs,
    is_any,
    must_be_recent,
    read,
    shared,
    signature,
    stamp,
)
from noetl.secrets import ed25519
from noetl.secrets.text import from_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.dsl.subscription.verify import StandardVerify, SvixVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets

HEADERS: Final = "webhook"
_SECRET: Final = "whsec_"  # noqa: S105 - what stands before one
_PUBLIC: Final = "whpk_"
_SHARED: Final = b"v1,"
_KEYED: Final = b"v1a,"


@dataclass(frozen=True, slots=True)
class _Known:
    """What deliveries may be signed with."""

    secrets: list[bytes]
    public: list[bytes]


def verify(config: StandardVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that the sender has signed id, time and body."""
    return verify_as(HEADERS, config, raw, now, secrets)


def verify_as(
    prefix: str, config: StandardVerify | SvixVerify, raw: Raw, now: float, secrets: Secrets
) -> Proof:
    """The same for headers that begin with this word."""
    known = _known(shared(secrets, config.secret))
    given = signature(raw, f"{prefix}-signature").split()
    delivery_id = raw.one(f"{prefix}-id")
    if not delivery_id:
        raise Unproven("missing_signature")
    time = stamp(raw, f"{prefix}-timestamp")
    signed = delivery_id + b"." + time + b"." + raw.body
    if len(given) > MOST_SIGNATURES or not _is_signed(known, given, signed):
        raise Unproven("bad_signature")
    must_be_recent(float(time), now, config.tolerance_secs)
    return Proof(
        signed=signed,
        signed_time=float(time),
        tolerance_s=config.tolerance_secs,
        id=delivery_id.decode("latin-1"),
    )


def _is_signed(known: _Known, given: list[bytes], signed: bytes) -> bool:
    shares = [one.removeprefix(_SHARED) for one in given if one.startswith(_SHARED)]
    is_good = is_any([base64.b64encode(one) for one in hmacs(known.secrets, signed)], shares)
    keyed = [read(one.removeprefix(_KEYED), "base64") for one in given if one.startswith(_KEYED)]
    for key in known.public:
        for one in keyed:
            is_good |= ed25519.verify(key, one, signed)
    return is_good


def _known(told: Iterable[str]) -> _Known:
    public, found = [], []
    for one in told:
        if one.startswith(_PUBLIC):
            public.append(one)
            continue
        try:
            secret = from_text(one.removeprefix(_SECRET))
        except ValueError:  # passed over while another is a secret
            continue
        if secret:
            found.append(secret)
    if not found and not public:
        raise Unproven("misconfigured")
    return _Known(found, public_keys(public) if public else [])
