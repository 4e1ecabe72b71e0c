"""`svix`: Standard Webhooks under headers that begin with `svix-`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.gateway.ingress.verify.standard_webhooks import verify_as

if TYPE_CHECKING:
    from noetl.dsl.subscription.verify import SvixVerify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Proof, Secrets

HEADERS: Final = "svix"


def verify(config: SvixVerify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that the sender has signed id, time and body."""
    return verify_as(HEADERS, config, raw, now, secrets)
