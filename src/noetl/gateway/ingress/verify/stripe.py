"""`stripe`: HMACs over time and body in `Stripe-Signature: t=...,v1=...`; any of them may match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.subscription.verify import StripeVerify
from noetl.gateway.ingress.raw import json_of, text_at
from noetl.gateway.ingress.verify.proof import Proof, Unproven
from noetl.gateway.ingress.verify.signatures import (
    hmacs,
    must_be_any,
    must_be_recent,
    shared,
    signature,
    stamped,
)

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import HmacVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets

TOLERANCE_S: Final = 300


def verify(config: StripeVerify | HmacVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that Stripe has signed the body, and when."""
    keys = [one.encode() for one in shared(secrets, config.secret)]
    parts = _parts(signature(raw, StripeVerify.signature_header))
    times, given = parts.get(b"t", []), parts.get(b"v1", [])
    if len(times) > 1:
        raise Unproven("ambiguous_signature")
    if not given:
        raise Unproven("missing_signature")
    time = stamped(times[0] if times else None)
    signed = time + b"." + raw.body
    expected = [one.hex().encode() for one in hmacs(keys, signed)]
    must_be_any(expected, [one.lower() for one in given])
    tolerance_s = tolerance_of(config)
    must_be_recent(float(time), now, tolerance_s)
    return Proof(
        signed=signed,
        signed_time=float(time),
        tolerance_s=tolerance_s,
        id=text_at(json_of(raw.body), "id"),
    )


def tolerance_of(config: object) -> int:
    """How old or early a delivery may be, in either way of writing a provider's scheme."""
    told = getattr(config, "tolerance_secs", None)
    if told is None:
        told = getattr(getattr(config, "timestamp", None), "tolerance_secs", None)
    return told if isinstance(told, int) else TOLERANCE_S


def _parts(text: bytes) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for part in text.split(b","):
        name, _, value = part.strip().partition(b"=")
        found.setdefault(name, []).append(value)
    return found
