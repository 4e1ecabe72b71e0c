"""Credentials as they are used: their fields, wherever these lie, and what of them may leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.documents.credential_types import first_names
from noetl.secrets.source import SourceRefused
from noetl.secrets.tokens import oauth2
from noetl.server.wallet.credentials import FROM, missing
from noetl.server.wallet.errors import must_reside
from noetl.server.wallet.keychain.kept import Made, refresh_token_of
from noetl.server.wallet.keychain.managers import MANAGERS
from noetl.server.wallet.keychain.values import Spot, Value

if TYPE_CHECKING:
    from noetl.server.wallet.credentials import Credentials
    from noetl.server.wallet.keychain.kept import Kept
    from noetl.server.wallet.keychain.managers import Managers
    from noetl.store.secrets import CredentialRow
    from noetl.store.secrets import Credentials as Store

MOST_DEEP: Final = 4
"""A credential of a provider may lie with a provider itself, and so on."""
CLIENT: Final = "oauth2"
_NEAR: Final = ("env", "file")
_PLATFORM: Final = "0"
"""Stands for a document where a value belongs to none."""


class Opened:
    """Opens credentials of any tenant, for the server's own use and for sealing."""

    def __init__(
        self,
        store: Store,
        credentials: Credentials,
        managers: Managers,
        kept: Kept,
        *,
        region: str,
    ) -> None:
        self._store = store
        self._credentials = credentials
        self._managers = managers
        self._kept = kept
        self._region = region

    async def row(self, tenant_id: str, name: str) -> CredentialRow:
        """The row of a credential that may be used in this region."""
        return self.usable(name, await self._store.get(tenant_id, name))

    def usable(self, name: str, row: CredentialRow | None) -> CredentialRow:
        """A row that was looked for, if it is there and may be used in this region."""
        if row is None:
            raise missing(name)
        must_reside(
            f"the credential `{row.name}`",
            str(row.meta.get("residency", "none")),
            regions_of(row),
            self._region,
        )
        return row

    async def given(self, row: CredentialRow) -> Value:
        """What leaves the server of a credential.

        Of a client of an OAuth 2 server that is a token; its secret and what refreshes tokens
        stay here.
        """
        if row.type != CLIENT:
            return Value(type=row.type, data=await self.fields(row))

        async def make(before: Value | None) -> Made:
            return await self.token(await self.fields(row), refresh_token_of(before))

        found = await self._kept.get(row.tenant_id, _spot(row, "token"), make)
        return without_refresh(found)

    async def token(
        self, fields: Mapping[str, Any], refresh_token: str | None = None, endpoint: str = ""
    ) -> Made:
        """A token for the fields of a client of an OAuth 2 server."""
        if refresh_token and fields.get("refresh_token"):
            fields = {**fields, "refresh_token": refresh_token}
        fields = first_names(CLIENT, fields)
        token = await oauth2.mint_of(self._managers.fetch, fields, endpoint=endpoint)
        return Made(type=CLIENT, fields=token.fields, expires_in=token.expires_in)

    async def fields(self, row: CredentialRow, depth: int = 0) -> dict[str, Any]:
        """The fields of a credential, wherever they lie, for the server's own use.

        What a secret manager gave is kept for a while. Variables and files of this machine are
        not: they cost less than a record, and another server may have others.
        """
        source = row.meta.get(FROM)
        if not isinstance(source, Mapping):
            return await self._credentials.opened(row)
        is_near = source.get("provider") in _NEAR or any(name in source for name in _NEAR)
        if is_near or depth:  # whoever is asked on behalf of another one is part of that request
            return await self._read(row, source, depth)

        async def make(before: Value | None) -> Made:
            del before
            return Made(type=row.type, fields=await self._read(row, source, depth))

        return (await self._kept.get(row.tenant_id, _spot(row, "fields"), make)).data

    async def auth(self, tenant_id: str, auth: Any, depth: int = 0) -> dict[str, Any]:  # noqa: ANN401 - an alias or a map
        """The fields of what `auth` names; a map may name a credential and add to it."""
        if depth > MOST_DEEP:
            raise SourceRefused("credentials of providers lead to each other without an end")
        if auth is None or auth == "":
            return {}
        own: dict[str, Any] = {}
        if isinstance(auth, Mapping):
            own = {name: value for name, value in auth.items() if name != "credential"}
            auth = auth.get("credential")
            if auth is None:
                return own
        row = await self.row(tenant_id, str(auth))
        found = await self.fields(row, depth)
        return {**first_names(row.type, found), **first_names(row.type, own)}

    async def _read(
        self, row: CredentialRow, source: Mapping[str, Any], depth: int
    ) -> dict[str, Any]:
        """The fields as their provider has them now."""
        auth = await self.auth(row.tenant_id, source.get("auth"), depth + 1)
        region = str(source.get("region") or "")
        if "provider" in source:
            provider = str(source["provider"])
            return await self._managers.mapped(provider, source.get("map") or {}, auth, region)
        for provider in (*_NEAR, *MANAGERS):
            if source.get(provider) is not None:
                return await self._managers.whole(
                    provider, source[provider], auth, type_=row.type, region=region
                )
        raise SourceRefused(f"the credential `{row.name}` does not say where its fields lie")


def regions_of(row: CredentialRow) -> tuple[str, ...]:
    """Where a credential may be used when it is strict: where it says, else where it is at home."""
    said = row.meta.get("allowed_regions")
    named = tuple(map(str, said)) if isinstance(said, (list, tuple)) else ()
    return named or (row.region,)


def without_refresh(value: Value) -> Value:
    """A token as workers get it: the server alone asks for the next one."""
    data = {name: item for name, item in value.data.items() if name != "refresh_token"}
    return Value(type=value.type, data=data, until=value.until)


def _spot(row: CredentialRow, what: str) -> Spot:
    """Where something of a credential is kept; a change of the credential makes another place."""
    return Spot(catalog_id=_PLATFORM, name=f"credential/{row.id}/{row.updated_at}/{what}")
