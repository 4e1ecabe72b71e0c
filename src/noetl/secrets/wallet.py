"""The wallet: every record under a key of its own, and that key under a key of keys.

A record is text. It opens only in the row that it was sealed for, and changing the key of keys
leaves its ciphertext as it is.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.secrets.cipher import KEY_BYTES, Forged, decrypt, encrypt
from noetl.secrets.kek.base import (
    CannotUnwrap,
    CannotWrap,
    KekUnavailable,
    NotARecord,
    RecordDamaged,
    Wrapped,
)
from noetl.secrets.text import from_text, to_text

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.secrets.kek.base import Kek

ALG: Final = "AES-256-GCM"
VERSION: Final = 1
KNOWN_S: Final = 300.0
MOST_KNOWN: Final = 10_000


class _Dek(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key of a record, wrapped."""

    p: str
    kid: str
    kv: str
    ct: str


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sealed value as it is stored."""

    v: int
    alg: str
    ct: str
    dek: _Dek


def about(table: str, tenant: str, record_id: str) -> str:
    """What a record belongs to: one row of one table of one tenant."""
    return "|".join(("noetl", *(_part(part) for part in (table, tenant, record_id))))


def version_of(record: str) -> tuple[str, str, str]:
    """Provider, key and version that wrapped the key of a record."""
    dek = _parsed(record)[0].dek
    return dek.p, dek.kid, dek.kv


class Wallet:
    """Seals and opens records; keys that were unwrapped lately are known without asking."""

    def __init__(self, kek: Kek, clock: Clock) -> None:
        self._kek = kek
        self._clock = clock
        self._known: OrderedDict[Wrapped, tuple[bytes, float]] = OrderedDict()

    async def current(self) -> tuple[str, str, str]:
        """Provider, key and version that wrap now."""
        return self._kek.provider, *await self._kek.current()

    async def seal(self, data: bytes, about: str) -> str:
        """A record of these bytes, under a key that no other record has."""
        dek = os.urandom(KEY_BYTES)
        wrapped = await self._kek.wrap(dek)
        self._keep(wrapped, dek)
        return _written(to_text(encrypt(dek, data, about.encode())), wrapped)

    async def open(self, record: str, about: str) -> bytes:
        """What was sealed for this place; `RecordDamaged` when it was not, or was changed."""
        found, sealed, wrapped = _parsed(record)
        dek = await self._dek(wrapped)
        try:
            return decrypt(dek, sealed, about.encode())
        except (Forged, ValueError):
            raise RecordDamaged(
                f"the record (version {found.v}) was changed or belongs to another row"
            ) from None

    async def rewrap(self, record: str, current: tuple[str, str, str] | None = None) -> str | None:
        """The same record with its key under the current key of keys; None when it is already.

        A rotation asks `current()` once and tells it here. What fails is `NotARecord`,
        `CannotUnwrap` or `CannotWrap`; a service that does not answer counts as the step it
        was asked for.
        """
        found, _, wrapped = _parsed(record)
        try:
            target = current or await self.current()
        except KekUnavailable as fault:
            raise CannotWrap(fault.message, hint=fault.hint) from fault
        if wrapped.version == target:
            return None
        try:
            dek = await self._dek(wrapped)
        except KekUnavailable as fault:
            raise CannotUnwrap(fault.message, hint=fault.hint) from fault
        try:
            fresh = await self._kek.wrap(dek)
        except KekUnavailable as fault:
            raise CannotWrap(fault.message, hint=fault.hint) from fault
        self._keep(fresh, dek)
        return _written(found.ct, fresh)

    async def _dek(self, wrapped: Wrapped) -> bytes:
        """The key of a record: known for five minutes, so an outage does not stop known records."""
        self._forget()
        known = self._known.get(wrapped)
        if known is not None:
            return known[0]
        dek = await self._kek.unwrap(wrapped)
        self._keep(wrapped, dek)
        return dek

    def _keep(self, wrapped: Wrapped, dek: bytes) -> None:
        self._forget()
        self._known.pop(wrapped, None)  # the newest is last, so the first is the one that ends
        self._known[wrapped] = (dek, self._clock.monotonic() + KNOWN_S)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def _forget(self) -> None:
        now = self._clock.monotonic()
        while self._known and next(iter(self._known.values()))[1] <= now:
            self._known.popitem(last=False)


def _parsed(record: str) -> tuple[_Record, bytes, Wrapped]:
    """A record, its sealed bytes and its wrapped key."""
    try:
        found = msgspec.json.decode(record, type=_Record)
        sealed, key = from_text(found.ct), from_text(found.dek.ct)
    except (msgspec.MsgspecError, ValueError):
        # The text may be a secret that somebody stored as it is: no word of it is told.
        raise NotARecord("the stored value is no record of the wallet") from None
    if (found.v, found.alg) != (VERSION, ALG):
        raise NotARecord("the record has another version or algorithm than this server knows")
    return found, sealed, Wrapped(found.dek.p, found.dek.kid, found.dek.kv, key)


def _written(ct: str, wrapped: Wrapped) -> str:
    dek = _Dek(p=wrapped.p, kid=wrapped.kid, kv=wrapped.kv, ct=to_text(wrapped.ct))
    return msgspec.json.encode(_Record(v=VERSION, alg=ALG, ct=ct, dek=dek)).decode()


def _part(text: str) -> str:
    """A part that cannot be taken for two."""
    return text.replace("%", "%25").replace("|", "%7C")
