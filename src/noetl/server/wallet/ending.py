"""Secrets that end soon, of all tenants that are there for who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.credentials import Expiring

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.api.credentials import CredentialShown
    from noetl.server.access.caller import Caller
    from noetl.server.wallet.credentials import Credentials
    from noetl.server.wallet.keychain.values import Keychain
    from noetl.store.identity import Tenants

_PAGE: Final = 200


class Ending:
    """Tells what ends, and shows no value."""

    def __init__(self, tenants: Tenants, credentials: Credentials, keychain: Keychain) -> None:
        self._tenants = tenants
        self._credentials = credentials
        self._keychain = keychain

    async def soon(self, caller: Caller, within_s: float, limit: int) -> Expiring:
        """Kept values and credentials that end within a time, at most so many of each."""
        found: list[CredentialShown] = []
        async for tenant_id in self._of(caller):
            found += await self._credentials.expiring(tenant_id, within_s)
            if len(found) >= limit:
                break
        return Expiring(
            items=await self._keychain.expiring(caller, within_s, limit),
            credentials=tuple(found[:limit]),
        )

    async def _of(self, caller: Caller) -> AsyncIterator[str]:
        """The caller's own tenant; of the platform's processes, every one."""
        if caller.is_bound:
            yield caller.tenant_id
            return
        after: str | None = None
        while page := await self._tenants.listed(_PAGE, after):
            for row in page:
                yield row.tenant_id
            after = page[-1].tenant_id
