"""`slack`: an HMAC over version, time and body in `X-Slack-Signature`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.subscription.verify import SlackVerify
from noetl.gateway.ingress.raw import json_of, text_at
from noetl.gateway.ingress.verify.proof import Proof, Unproven
from noetl.gateway.ingress.verify.signatures import (
    hmacs,
    must_be_any,
    must_be_recent,
    shared,
    signature,
    stamp,
)
from noetl.gateway.ingress.verify.stripe import tolerance_of

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import HmacVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets

TIME: Final = "x-slack-request-timestamp"
_PREFIX: Final = b"v0="


def verify(config: SlackVerify | HmacVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that Slack has signed the body, and when."""
    keys = [one.encode() for one in shared(secrets, config.secret)]
    given = signature(raw, SlackVerify.signature_header)
    time = stamp(raw, TIME)
    if not given.startswith(_PREFIX):
        raise Unproven("bad_signature")
    signed = b"v0:" + time + b":" + raw.body
    expected = [one.hex().encode() for one in hmacs(keys, signed)]
    must_be_any(expected, [given.removeprefix(_PREFIX).lower()])
    tolerance_s = tolerance_of(config)
    must_be_recent(float(time), now, tolerance_s)
    return Proof(
        signed=signed,
        signed_time=float(time),
        tolerance_s=tolerance_s,
        id=text_at(json_of(raw.body), "event_id"),
    )
