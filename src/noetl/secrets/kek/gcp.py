"""A key of keys in Google Cloud KMS; it never leaves there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.secrets.fetch import Ask
from noetl.secrets.kek.base import (
    CannotUnwrap,
    CannotWrap,
    KekUnavailable,
    Wrapped,
    not_set_up,
)
from noetl.secrets.kek.local import BadKey
from noetl.secrets.kek.remote import SETTING, key_in, kms_told
from noetl.secrets.source import SourceError
from noetl.secrets.text import from_text, to_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.secrets.fetch import Fetch
    from noetl.secrets.kek.base import WalletError

PROVIDER: Final = "gcp-kms"
BASE: Final = "https://cloudkms.googleapis.com/v1"
SCOPE: Final = "https://www.googleapis.com/auth/cloudkms"
_WHO: Final = "Cloud KMS"
_PART: Final = r"(?!\.)[A-Za-z0-9_.:-]{1,100}"
_KEY: Final = re.compile(
    rf"projects/{_PART}/locations/{_PART}/keyRings/{_PART}/cryptoKeys/{_PART}\Z"
)
_VERSION: Final = re.compile(r"(.+)/cryptoKeyVersions/([1-9][0-9]{0,8})\Z")


class GcpKek:
    """A symmetric crypto key, named as `projects/../locations/../keyRings/../cryptoKeys/..`."""

    provider = PROVIDER

    def __init__(
        self,
        fetch: Fetch,
        key: str,
        *,
        bearer: Callable[[], Awaitable[str]],
        base: str = BASE,
        setting: str = SETTING,
    ) -> None:
        """Keep how the service is reached; `setting` is the one that names the key."""
        if not _KEY.match(key):
            raise BadKey(
                f"{setting} is not the name of a crypto key of Google Cloud KMS.",
                hint="use projects/<p>/locations/<l>/keyRings/<r>/cryptoKeys/<k>",
            )
        self._fetch = fetch
        self._key = key
        self._bearer = bearer
        self._base = base.rstrip("/")

    async def current(self) -> tuple[str, str]:
        """The key and its primary version."""
        found = await self._told("GET", self._key, None, KekUnavailable)
        primary = found.get("primary")
        name = str(primary.get("name", "")) if isinstance(primary, dict) else ""
        version = _VERSION.match(name)
        if version is None:
            raise KekUnavailable(f"{_WHO} does not say the primary version of the key")
        return self._key, version[2]

    async def wrap(self, dek: bytes) -> Wrapped:
        """Encrypt with the primary version; the answer tells which one that was."""
        body = {"plaintext": to_text(dek)}
        found = await self._told("POST", f"{self._key}:encrypt", body, CannotWrap)
        version = _VERSION.match(str(found.get("name", "")))
        try:
            ct = from_text(str(found.get("ciphertext", "")))
        except ValueError:
            ct = b""
        if version is None or not ct:
            raise CannotWrap(f"{_WHO} answered no ciphertext")
        return Wrapped(PROVIDER, self._key, version[2], ct)

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        """Decrypt with the key that the record names: it may be one that was current before."""
        if wrapped.p != PROVIDER:
            raise not_set_up(wrapped)
        if not _KEY.match(wrapped.kid):
            raise CannotUnwrap("the record's key was not wrapped by Cloud KMS")
        body = {"ciphertext": to_text(wrapped.ct)}
        found = await self._told("POST", f"{wrapped.kid}:decrypt", body, CannotUnwrap)
        return key_in(found, _WHO)

    async def _told(
        self, method: str, path: str, body: dict[str, str] | None, refusal: type[WalletError]
    ) -> dict[str, Any]:
        try:
            token = await self._bearer()
        except SourceError as fault:
            raise KekUnavailable(fault.message, hint=fault.hint) from None
        ask = Ask(
            method=method,
            url=f"{self._base}/{path}",
            headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
            body=None if body is None else msgspec.json.encode(body),
        )
        return await kms_told(self._fetch, ask, _WHO, refusal)
