"""Things that can be taken once: a random name, what it stands for, and who comes second."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.bus.base import BusGone
from noetl.bus.keys import KeyChanged
from noetl.gateway.errors import AuthUnavailable
from noetl.secrets.cipher import Forged, decrypt, encrypt

if TYPE_CHECKING:
    from noetl.bus.keys import Keys
    from noetl.clock import Clock

_BYTES: Final = 32
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_USED: Final = b""
"""Written, not deleted: a broker that is killed may bring back what was deleted just before."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    ends_at: float
    sealed: bytes


class Once:
    """A corner of a bucket; what lies there is sealed with the name that is not kept there."""

    def __init__(self, keys: Keys, corner: str, clock: Clock) -> None:
        self._keys = keys
        self._corner = corner
        self._clock = clock

    async def put(self, data: bytes, ttl_s: float) -> str:
        """Leave something for whoever knows the name that is answered."""
        name = base64.urlsafe_b64encode(secrets.token_bytes(_BYTES)).rstrip(b"=").decode()
        ends_at = self._clock.now().timestamp() + ttl_s
        sealed = encrypt(self._opener(name), data, self._corner.encode())
        kept = msgspec.msgpack.encode(_Kept(ends_at, sealed))
        try:
            await self._keys.create(self._key(name), kept, ttl_s)
        except BusGone as fault:
            raise AuthUnavailable("what is needed to sign in cannot be kept now") from fault
        return name

    async def take(self, name: str) -> bytes | None:
        """What lies there, for the first who asks; none for everybody after, or too late."""
        if not _FORM.match(name):
            return None
        key = self._key(name)
        try:
            entry = await self._keys.get(key)
            if entry is None or entry.value == _USED:
                return None
            kept = msgspec.msgpack.decode(entry.value, type=_Kept)
            left_s = kept.ends_at - self._clock.now().timestamp()
            await self._keys.update(key, _USED, entry.revision, max(1.0, left_s))
            data = decrypt(self._opener(name), kept.sealed, self._corner.encode())
        except (KeyChanged, msgspec.DecodeError, Forged):
            return None
        except BusGone as fault:
            raise AuthUnavailable("nobody can say now whether it was used") from fault
        return data if left_s > 0 else None

    def _key(self, name: str) -> str:
        return f"{self._corner}.{hashlib.sha256(name.encode()).hexdigest()}"

    @staticmethod
    def _opener(name: str) -> bytes:
        return hashlib.sha256(b"noetl-once-v1\0" + name.encode()).digest()
