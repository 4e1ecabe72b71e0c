"""Keys of keys that this process was told: the first one wraps, every one unwraps."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Final

from noetl.secrets.cipher import KEY_BYTES, Forged, decrypt, encrypt
from noetl.secrets.kek.base import CannotUnwrap, WalletError, Wrapped, not_set_up
from noetl.secrets.text import from_text, to_text

PROVIDER: Final = "local"
VERSION: Final = "1"
_ID_LENGTH: Final = 16


class BadKey(WalletError):
    """A setting holds no key, or something that is none."""

    code = "bad_key"


class LocalKek:
    """Keys from a setting: base64 of 32 bytes each, commas between them."""

    provider = PROVIDER

    def __init__(self, keys: str) -> None:
        found = [_key(number, text) for number, text in enumerate(keys.split(","), 1)]
        self._keys = {_id(key): key for key in found}
        self._current = _id(found[0])

    def __repr__(self) -> str:
        return f"LocalKek({', '.join(self._keys)})"

    async def current(self) -> tuple[str, str]:
        """The id of the first key; a key here has one version."""
        return self._current, VERSION

    async def wrap(self, dek: bytes) -> Wrapped:
        """Wrap with the first key."""
        kid = self._current
        ct = encrypt(self._keys[kid], dek, _about(kid, VERSION))
        return Wrapped(PROVIDER, kid, VERSION, ct)

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        """Unwrap with the key that wrapped."""
        if wrapped.p != PROVIDER:
            raise not_set_up(wrapped)
        key = self._keys.get(wrapped.kid)
        if key is None:
            raise CannotUnwrap(
                f"the record's key is wrapped with the {wrapped.p} key {wrapped.kid[:40]}, "
                "which is not known here",
                hint="put that key back at the end of the list in NOETL_ENCRYPTION_KEY",
            )
        try:
            return decrypt(key, wrapped.ct, _about(wrapped.kid, wrapped.kv))
        except Forged:
            raise CannotUnwrap("the record's key was changed since it was wrapped") from None


def make_key() -> str:
    """A new key as the setting holds it."""
    return to_text(os.urandom(KEY_BYTES))


def _key(number: int, text: str) -> bytes:
    try:
        key = from_text(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadKey(
            f"Key {number} of NOETL_ENCRYPTION_KEY is not base64 of {KEY_BYTES} bytes.",
            hint=f"make one: head -c {KEY_BYTES} /dev/urandom | base64",
        )
    return key


def _id(key: bytes) -> str:
    """A name for a key that tells nothing about it."""
    return sha256(b"noetl-kek|" + key).hexdigest()[:_ID_LENGTH]


def _about(kid: str, version: str) -> bytes:
    return f"noetl|dek|{PROVIDER}|{kid}|{version}".encode()
