"""`ed25519`: a signature over a text of one's own, by a key that only the sender has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.gateway.ingress.verify.proof import Unproven, texts
from noetl.gateway.ingress.verify.signatures import read, signature
from noetl.gateway.ingress.verify.templates import bare, filled, id_of
from noetl.secrets import ed25519

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.dsl.subscription.verify import Ed25519Verify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Proof, Secrets

_PREFIX = "whpk_"


def verify(config: Ed25519Verify, raw: Raw, now: float, secrets: Secrets) -> Proof:
    """Prove that the holder of one of the private keys has signed the delivery."""
    told = texts(secrets, config.public_key, "public_key", "value", "key")
    keys = public_keys(told)
    given = signature(raw, config.header)
    made = filled(config, raw)
    found = read(bare(config, given), config.encoding)
    if not any([ed25519.verify(key, found, made.signed) for key in keys]):  # noqa: C419 - each is tried
        raise Unproven("bad_signature")
    return made.proof(now, id_of(config.id, raw))


def public_keys(told: Iterable[str]) -> list[bytes]:
    """The keys of credentials; one that is no key is passed over while another is one."""
    found = []
    for one in told:
        try:
            found.append(ed25519.public_key_of(one.removeprefix(_PREFIX)))
        except ValueError:
            continue
    if not found:
        raise Unproven("misconfigured")
    return found
