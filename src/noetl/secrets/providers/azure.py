"""Secrets of Azure Key Vault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from noetl.secrets.fetch import Ask
from noetl.secrets.source import SourceRefused, text_in, told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.secrets.fetch import Fetch

SCOPE: Final = "https://vault.azure.net/.default"
_API: Final = "7.4"
_WHO: Final = "Azure Key Vault"
_NAME: Final = re.compile(r"([A-Za-z0-9-]{1,127})(?:/([A-Za-z0-9]{1,64}))?\Z")


class AzureSecrets:
    """Names are those of secrets of one vault, `name` or `name/version`."""

    def __init__(
        self, fetch: Fetch, *, bearer: Callable[[], Awaitable[str]], vault_url: str
    ) -> None:
        self._fetch = fetch
        self._bearer = bearer
        self._base = vault_url.rstrip("/")

    async def read(self, name: str, version: str | None = None) -> str:
        """One secret; a version is the id that Azure gave it."""
        found = _NAME.match(f"{name}/{version}" if version else name)
        if found is None:
            raise SourceRefused(
                f"{name[:200]!r} is not the name of a secret in {_WHO}",
                hint="letters, digits and `-`",
            )
        ask = Ask(
            method="GET",
            url=f"{self._base}/secrets/{found[1]}/{found[2] or ''}?api-version={_API}",
            headers={"authorization": f"Bearer {await self._bearer()}"},
        )
        return text_in(await told(self._fetch, ask, _WHO), "value", _WHO)
