"""A key of keys in the transit engine of Vault; it never leaves there."""

from __future__ import annotations

import re
from dataclasses import replace
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
from noetl.secrets.text import to_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.secrets.fetch import Answer, Fetch
    from noetl.secrets.kek.base import WalletError

PROVIDER: Final = "vault"
MOUNT: Final = "transit"
_FORBIDDEN: Final = 403
_WHO: Final = "Vault"
_PATH: Final = re.compile(r"(?:(?!\.)[A-Za-z0-9_.-]{1,128}/){1,8}(?!\.)[A-Za-z0-9_.-]{1,128}\Z")
_CIPHERTEXT: Final = re.compile(r"vault:v([1-9][0-9]{0,8}):[A-Za-z0-9+/=]+\Z")


class VaultKek:
    """A transit key: `noetl` of the mount `transit`, or `<mount>/<key>`."""

    provider = PROVIDER

    def __init__(  # noqa: PLR0913 - one argument per setting
        self,
        fetch: Fetch,
        key: str,
        *,
        address: str,
        token: Callable[[], str],
        namespace: str = "",
        setting: str = SETTING,
    ) -> None:
        """Keep how Vault is reached; `token` is asked each time, `setting` names the key."""
        self._fetch = fetch
        self._token = token
        self._key = key if "/" in key else f"{MOUNT}/{key}"
        if not _PATH.match(self._key):
            raise BadKey(
                f"{setting} is not the name of a transit key of Vault.",
                hint="use `<key>` or `<mount>/<key>`, such as transit/noetl",
            )
        self._base = f"{address.rstrip('/')}/v1"
        self._headers = {"x-vault-request": "true"}
        if namespace:
            self._headers["x-vault-namespace"] = namespace

    async def current(self) -> tuple[str, str]:
        """The key and its latest version."""
        found = await self._told("GET", self._key, "keys", None, KekUnavailable)
        latest = found.get("latest_version")
        if not isinstance(latest, int) or isinstance(latest, bool):
            raise KekUnavailable(f"{_WHO} does not say the latest version of {self._key}")
        return self._key, str(latest)

    async def wrap(self, dek: bytes) -> Wrapped:
        """Encrypt with the latest version; the answer tells which one that was."""
        body = {"plaintext": to_text(dek)}
        found = await self._told("POST", self._key, "encrypt", body, CannotWrap)
        ciphertext = str(found.get("ciphertext", ""))
        version = _CIPHERTEXT.match(ciphertext)
        if version is None:
            raise CannotWrap(f"{_WHO} answered no ciphertext")
        return Wrapped(PROVIDER, self._key, version[1], ciphertext.encode())

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        """Decrypt with the key that the record names: it may be one that was current before."""
        if wrapped.p != PROVIDER:
            raise not_set_up(wrapped)
        ciphertext = wrapped.ct.decode("latin-1")
        version = _CIPHERTEXT.match(ciphertext)
        if not _PATH.match(wrapped.kid) or version is None or version[1] != wrapped.kv:
            raise CannotUnwrap("the record's key was not wrapped by Vault")
        body = {"ciphertext": ciphertext}
        found = await self._told("POST", wrapped.kid, "decrypt", body, CannotUnwrap)
        return key_in(found, _WHO)

    async def _told(
        self,
        method: str,
        key: str,
        action: str,
        body: dict[str, str] | None,
        refusal: type[WalletError],
    ) -> dict[str, Any]:
        mount, _, name = key.rpartition("/")
        ask = Ask(
            method=method,
            url=f"{self._base}/{mount}/{action}/{name}",
            headers=self._headers,
            body=None if body is None else msgspec.json.encode(body),
        )
        found = (await kms_told(self._as_known, ask, _WHO, refusal)).get("data")
        if not isinstance(found, dict):
            raise refusal(f"{_WHO} answered without data")
        return found

    async def _as_known(self, ask: Ask) -> Answer:
        """Ask with our token; who is refused may hold one that was replaced a moment ago."""
        token = self._token()
        answer = await self._fetch(_with(ask, token))
        if answer.status != _FORBIDDEN or (renewed := self._token()) == token:
            return answer
        return await self._fetch(_with(ask, renewed))


def _with(ask: Ask, token: str) -> Ask:
    return replace(ask, headers={**ask.headers, "x-vault-token": token})
