"""Secrets of the clients that gateways are at sign-in providers, sealed for one gateway alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.edge.errors import Forbidden
from noetl.secrets.sealed import about_delivery
from noetl.server.fleet.gateways import KIND
from noetl.server.wallet.keychain.opened import CLIENT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from noetl.api.credentials import SealedAnswer
    from noetl.server.access.caller import Caller
    from noetl.server.wallet.keychain.opened import Opened
    from noetl.server.wallet.sealing import Sealing

GIVEN: Final = ("client_id", "client_secret")
"""What leaves the server of such a credential."""
_FETCHES: Final = ("token_url", "refresh_token", "username", "password")
"""What a client has that fetches tokens for runs; its secret never leaves the server."""
_SECRET: Final = "client_secret"  # noqa: S105 - the name of a field


class SignInSecrets:
    """Gives gateways what proves them to sign-in providers, and nothing else of the wallet."""

    def __init__(self, opened: Opened, sealing: Sealing) -> None:
        self._opened = opened
        self._sealing = sealing

    async def sealed(self, alias: str, process: str, provider: str, caller: Caller) -> SealedAnswer:
        """The client of a provider, for the gateway of this name."""
        with self._sealing.counted():
            return await self._sealed(alias, process, provider, caller)

    async def _sealed(
        self, alias: str, process: str, provider: str, caller: Caller
    ) -> SealedAnswer:
        row = await self._opened.row(caller.tenant_id, alias)
        if row.type != CLIENT:
            raise _not_for_this(alias, f"it is of the type `{row.type}`, not `{CLIENT}`")
        key = await self._sealing.key_of(process, KIND)
        fields = await self._opened.fields(row)
        _must_be_for_sign_in(alias, fields)
        data = {name: fields[name] for name in GIVEN if fields.get(name)}
        about = about_delivery(process, f"sign-in:{provider}", alias)
        return self._sealing.seal(key, {"type": CLIENT, "data": data}, about, None)


def _must_be_for_sign_in(alias: str, fields: Mapping[str, Any]) -> None:
    """Refuse the clients of runs: a gateway that is taken over may not read those."""
    for name in _FETCHES:
        if fields.get(name):
            raise _not_for_this(alias, f"it has `{name}`, with which tokens are fetched for runs")
    if not fields.get(_SECRET):
        raise _not_for_this(alias, f"it has no `{_SECRET}`")


def _not_for_this(alias: str, why: str) -> Forbidden:
    return Forbidden(
        f"the credential `{alias[:80]}` is none for sign-in: {why}",
        hint=f"keep `client_id` and `{_SECRET}` in a credential of the type `{CLIENT}`",
    )
