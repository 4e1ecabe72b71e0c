"""Sealed delivery: bytes that one process alone can open, for one purpose.

The sender makes a key pair for this one message; the message opens with the receiver's own key
and with the same words about it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from noetl.errors import NoetlError
from noetl.secrets.cipher import KEY_BYTES, NONCE_BYTES, Forged, decrypt_with, encrypt_with
from noetl.secrets.text import from_text, to_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

ALG: Final = "x25519-hkdf-sha256-aes256gcm"
VERSION: Final = 1
PUBLIC_BYTES: Final = 32
_INFO: Final = b"noetl-sealed-v1"
_PRIME: Final = 2**255 - 19


class CannotOpen(NoetlError):
    """Sealed bytes that were made for somebody else, for something else, or were changed."""

    code = "cannot_open"


class InvalidPublicKey(NoetlError):
    """A text that is no public key of a receiver."""

    code = "worker_key_missing"
    status: ClassVar[int] = 400


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """Sealed bytes as they travel; the texts are base64."""

    alg: str
    v: int
    eph_pub: str
    ciphertext: str


def about_delivery(worker_id: str, execution_id: str, name: str) -> str:
    """What a delivery is about: who opens it, in which run, and what it is."""
    return f"{ALG}|{VERSION}|{worker_id}|{execution_id}|{name}"


@lru_cache(maxsize=1_000)
def is_public_key(text: str) -> bool:
    """Whether a text is a public key that can be sealed to; some points of the curve are none."""
    from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415 - see `seal_to`

    try:
        receiver = x25519.X25519PublicKey.from_public_bytes(_point(text))
        x25519.X25519PrivateKey.generate().exchange(receiver)
    except ValueError:
        return False
    return True


def seal_to(public: str, data: bytes, about: str) -> Sealed:
    """Seal bytes to the holder of a public key."""
    # The library takes longer to import than a short local run may; most runs need none of it.
    from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415 - see above

    once = x25519.X25519PrivateKey.generate()
    try:
        receiver = x25519.X25519PublicKey.from_public_bytes(_point(public))
        shared = once.exchange(receiver)
    except ValueError:
        raise InvalidPublicKey("the receiver's public key is not 32 bytes of base64") from None
    key, nonce = _derived(shared)
    return Sealed(
        alg=ALG,
        v=VERSION,
        eph_pub=to_text(once.public_key().public_bytes_raw()),
        ciphertext=to_text(encrypt_with(key, nonce, data, about.encode())),
    )


class KeyPair:
    """The key pair of one process; the private half never leaves it."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private
        self.public = to_text(private.public_key().public_bytes_raw())
        """The half that others seal to: base64 of 32 bytes."""

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"

    @classmethod
    def make(cls) -> KeyPair:
        """A new pair."""
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415 - as above

        return cls(x25519.X25519PrivateKey.generate())

    def open(self, sealed: Sealed, about: str) -> bytes:
        """What was sealed to this pair about this; `CannotOpen` for anything else."""
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415 - as above

        if (sealed.alg, sealed.v) != (ALG, VERSION):
            raise CannotOpen("the delivery is sealed in a way that this version does not know")
        try:
            sender = x25519.X25519PublicKey.from_public_bytes(_point(sealed.eph_pub))
            key, nonce = _derived(self._private.exchange(sender))
            return decrypt_with(key, nonce, from_text(sealed.ciphertext), about.encode())
        except (Forged, ValueError):
            raise CannotOpen(
                "the delivery was sealed to another key, for another purpose, or was changed"
            ) from None


def _point(text: str) -> bytes:
    """The bytes of a public key in their one spelling: the curve would ignore the last bit."""
    data = from_text(text)
    if len(data) != PUBLIC_BYTES or int.from_bytes(data, "little") >= _PRIME:
        raise ValueError("it is not a public key")
    return data


def _derived(shared: bytes) -> tuple[bytes, bytes]:
    """Key and nonce of one message."""
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - as above

    length = KEY_BYTES + NONCE_BYTES
    made = HKDF(algorithm=SHA256(), length=length, salt=None, info=_INFO).derive(shared)
    return made[:KEY_BYTES], made[KEY_BYTES:]
