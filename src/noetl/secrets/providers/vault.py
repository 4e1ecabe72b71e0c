"""Secrets of Vault's key-value engine, version 2."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from noetl.secrets.fetch import Ask
from noetl.secrets.providers.base import field_of, split_field
from noetl.secrets.source import SourceMissing, SourceRefused, told

if TYPE_CHECKING:
    from noetl.secrets.fetch import Fetch

MOUNT: Final = "secret"
_WHO: Final = "Vault"
_PATH: Final = re.compile(r"(?:(?!\.)[A-Za-z0-9_.@-]{1,200}/){0,15}(?!\.)[A-Za-z0-9_.@-]{1,200}\Z")


class VaultSecrets:
    """Names are `path#field` below the mount; without a field all of them come as JSON."""

    def __init__(
        self, fetch: Fetch, *, address: str, token: str, namespace: str = "", mount: str = MOUNT
    ) -> None:
        self._fetch = fetch
        self._base = f"{address.rstrip('/')}/v1/{_checked(mount)}/data"
        self._headers = {"x-vault-token": token, "x-vault-request": "true"}
        if namespace:
            self._headers["x-vault-namespace"] = namespace

    async def read(self, name: str, version: str | None = None) -> str:
        """One secret; a version is its number."""
        path, field = split_field(name)
        query = ""
        if version:
            if not version.isdecimal():
                raise SourceRefused(f"{version[:40]!r} is not a version in {_WHO}: use a number")
            query = f"?version={version}"
        url = f"{self._base}/{_checked(path)}{query}"
        found = (
            await told(self._fetch, Ask(method="GET", url=url, headers=self._headers), _WHO)
        ).get("data")
        data = found.get("data") if isinstance(found, dict) else None
        if not isinstance(data, dict):
            raise SourceMissing(f"the secret in {_WHO} was deleted, or is not of version 2")
        return field_of(data, field, _WHO)


def _checked(path: str) -> str:
    path = path.strip("/")
    if not _PATH.match(path):
        raise SourceRefused(
            f"{path[:200]!r} is not a path in {_WHO}", hint="use path/to/secret#field"
        )
    return path
