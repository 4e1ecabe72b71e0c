"""Ed25519: whether the holder of a private key has signed a message."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}\Z")


def verify(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature is that of this key, over these bytes."""
    # The library takes longer to import than a short local run may; most runs need none of it.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - as above

    if len(public_key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key_of(text: str) -> bytes:
    """The 32 bytes of a public key in PEM, hex or base64; `ValueError` for anything else."""
    told = text.strip()
    if told.startswith("-----BEGIN"):
        return _from_pem(told)
    if _HEX.match(told):
        return bytes.fromhex(told)
    try:
        plain = told.translate(str.maketrans("-_", "+/")).rstrip("=")
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is no public key") from None
    if len(found) != KEY_BYTES:
        raise ValueError("it is no public key of Ed25519")
    return found


def _from_pem(text: str) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - as above
        load_pem_public_key,
    )

    try:
        found = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("it is no public key") from None
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise ValueError("it is no public key of Ed25519")  # noqa: TRY004 - of a text, not of a type
    return found.public_bytes_raw()
