"""`shopify`: an HMAC over the body in `X-Shopify-Hmac-Sha256`, in base64."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.verify.proof import Proof
from noetl.gateway.ingress.verify.signatures import hmacs, must_be_any, shared, signature
from noetl.gateway.ingress.verify.templates import header_text

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import ShopifyVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets

ID: Final = "x-shopify-webhook-id"


def verify(config: ShopifyVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that Shopify has signed the body; it tells no time."""
    del now
    keys = [one.encode() for one in shared(secrets, config.secret)]
    given = signature(raw, config.signature_header)
    must_be_any([base64.b64encode(one) for one in hmacs(keys, raw.body)], [given])
    return Proof(signed=raw.body, id=header_text(raw, ID))
