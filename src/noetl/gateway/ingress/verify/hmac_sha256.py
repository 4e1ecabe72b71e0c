"""`hmac_sha256`: an HMAC over a text of one's own, under a secret that both sides know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.gateway.ingress.verify.signatures import (
    as_compared,
    hmacs,
    must_be_any,
    shared,
    signature,
    written,
)
from noetl.gateway.ingress.verify.templates import bare, filled, id_of

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import HmacVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Proof, Secrets


def verify(config: HmacVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that somebody with one of the secrets has signed the delivery."""
    keys = [one.encode() for one in shared(secrets, config.secret)]
    given = signature(raw, config.header)
    made = filled(config, raw)
    text = as_compared(bare(config, given, config.algorithm), config.encoding)
    digests = hmacs(keys, made.signed, config.algorithm)
    must_be_any([one for each in digests for one in written(each, config.encoding)], [text])
    return made.proof(now, id_of(config.id, raw))
