"""AES-256-GCM: a fresh nonce before the text, the tag behind it."""

from __future__ import annotations

import os
from typing import Final

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16


class Forged(Exception):
    """The bytes were not made with this key for this purpose, or were changed since."""


def encrypt(key: bytes, data: bytes, about: bytes) -> bytes:
    """Nonce, ciphertext and tag; what it is about must be told again to open it."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + encrypt_with(key, nonce, data, about)


def encrypt_with(key: bytes, nonce: bytes, data: bytes, about: bytes) -> bytes:
    """Ciphertext and tag under a nonce that this key has never seen."""
    # The library takes longer to import than a short local run may; most runs need none of it.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - see above

    return AESGCM(key).encrypt(nonce, data, about)


def decrypt(key: bytes, sealed: bytes, about: bytes) -> bytes:
    """What `encrypt` was given."""
    return decrypt_with(key, sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)


def decrypt_with(key: bytes, nonce: bytes, sealed: bytes, about: bytes) -> bytes:
    """What `encrypt_with` was given."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

    if len(nonce) != NONCE_BYTES or len(sealed) < TAG_BYTES:
        raise Forged("it is too short")
    try:
        return AESGCM(key).decrypt(nonce, sealed, about)
    except InvalidTag:
        raise Forged("the tag does not fit") from None
