"""What a keychain entry stands for: each kind read, put together or fetched."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.documents.credential_types import first_names
from noetl.secrets.source import SourceMissing, SourceRefused
from noetl.secrets.tokens import aws_sts, azure, google, oauth2
from noetl.secrets.tokens.bearer import Bearer
from noetl.secrets.tokens.gcp_iam import Impersonation
from noetl.server.wallet.keychain.kept import Made
from noetl.server.wallet.keychain.values import Value

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.secrets.tokens.base import Token
    from noetl.server.wallet.keychain.managers import Managers
    from noetl.server.wallet.keychain.opened import Opened

MINTERS: Final = ("aws-sts", "gcp-iam", "azure-oauth")
_OF_PROVIDER: Final = {"aws": "aws-sts", "gcp": "gcp-iam", "azure": "azure-oauth"}
_TYPE_OF: Final = {minter: kind for kind, minter in _OF_PROVIDER.items()}
_AZURE: Final = "https://management.azure.com/.default"
_TOKEN: Final = ("token", "access_token", "id_token", "value", "key")
_KEY: Final = ("key", "api_key", "value", "token")
FETCHED: Final = frozenset({"oauth2", "google_id_token", "secret_manager"})
"""Kinds whose values come from elsewhere, and are kept for a while."""


def is_fetched(entry: Mapping[str, Any]) -> bool:
    """Whether the value of an entry is asked for elsewhere."""
    kind = entry["kind"]
    return kind in FETCHED or (kind == "bearer" and bool(entry.get("endpoint")))


def is_variable(entry: Mapping[str, Any]) -> bool:
    """Whether an entry stands for variables of the worker that uses it."""
    return entry["kind"] == "secret_manager" and entry.get("provider") == "env"


def names_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the secrets of an entry are called where they lie, by its fields."""
    names = entry.get("map") or {}
    if not names:
        raise SourceRefused(
            f"the entry `{entry['name']}` names no secret", hint="write `map: {field: name}`"
        )
    return dict(names)


class Entries:
    """Makes values of entries whose templates are rendered."""

    def __init__(self, opened: Opened, managers: Managers, clock: Clock) -> None:
        self._opened = opened
        self._managers = managers
        self._clock = clock

    async def make(
        self,
        tenant_id: str,
        entry: Mapping[str, Any],
        refresh_token: str | None = None,
        *,
        stays: bool = False,
    ) -> Made:
        """The value of an entry; a token that was last given for a refresh replaces the first.

        What stays on the server, to ask for a token with, may be the secret of a client.
        """
        match entry["kind"]:
            case "static":
                return Made(type="secret", fields=await self._merged(tenant_id, entry, stays=stays))
            case "credential":
                return await self._credential(tenant_id, entry, stays=stays)
            case "basic":
                return await self._basic(tenant_id, entry, stays=stays)
            case "api_key":
                return await self._api_key(tenant_id, entry, stays=stays)
            case "bearer" if not entry.get("endpoint"):
                return await self._bearer(tenant_id, entry, stays=stays)
            case "google_id_token":
                return await self._id_token(tenant_id, entry)
            case "secret_manager":
                return await self._managed(tenant_id, entry)
            case _:
                return await self._token(tenant_id, entry, refresh_token)

    # ------------------------------------------------------------------ of the wallet

    async def _merged(
        self, tenant_id: str, entry: Mapping[str, Any], *, stays: bool
    ) -> dict[str, Any]:
        """The fields of the entry's credential that may leave, and its own ones over them."""
        alias = entry.get("credential")
        found: dict[str, Any] = {}
        if alias:
            found = (await self._found(tenant_id, str(alias), stays=stays)).data
        return {**found, **(entry.get("map") or {})}

    async def _found(self, tenant_id: str, alias: str, *, stays: bool) -> Value:
        row = await self._opened.row(tenant_id, alias)
        if stays:
            return Value(type=row.type, data=await self._opened.fields(row))
        return await self._opened.given(row)

    async def _credential(self, tenant_id: str, entry: Mapping[str, Any], *, stays: bool) -> Made:
        alias = entry.get("credential") or entry.get("auth")
        if not isinstance(alias, str) or not alias:
            raise SourceRefused(f"the entry `{entry['name']}` names no `credential`")
        found = await self._found(tenant_id, alias, stays=stays)
        fields = {**found.data, **(entry.get("map") or {})}
        return Made(type=found.type, fields=fields, until=found.until)

    async def _bearer(self, tenant_id: str, entry: Mapping[str, Any], *, stays: bool) -> Made:
        fields = await self._merged(tenant_id, entry, stays=stays)
        token = entry.get("token") or _first(fields, _TOKEN)
        if not token:
            raise _empty(entry, "token")
        kind = entry.get("token_type") or "Bearer"
        made = {"token": token, "access_token": token, "token_type": kind}
        return Made(type="bearer", fields=made)

    async def _basic(self, tenant_id: str, entry: Mapping[str, Any], *, stays: bool) -> Made:
        fields = await self._merged(tenant_id, entry, stays=stays)
        user = _first(fields, ("username", "user"))
        if not user:
            raise _empty(entry, "username")
        made = {"username": user, "password": str(fields.get("password") or "")}
        return Made(type="basic", fields=made)

    async def _api_key(self, tenant_id: str, entry: Mapping[str, Any], *, stays: bool) -> Made:
        fields = await self._merged(tenant_id, entry, stays=stays)
        key = entry.get("token") or _first(fields, _KEY)
        if not key:
            raise _empty(entry, "key")
        header = str(fields.get("header") or "X-API-Key")
        return Made(type="api_key", fields={"header": header, "key": key})

    # ------------------------------------------------------------------ of others

    async def _managed(self, tenant_id: str, entry: Mapping[str, Any]) -> Made:
        provider, names = str(entry.get("provider") or ""), names_of(entry)
        if is_variable(entry):
            raise SourceMissing(
                f"the entry `{entry['name']}` is a variable, which only the system pool reads"
            )
        auth = await self._opened.auth(tenant_id, entry.get("auth") or entry.get("credential"))
        region = str(entry.get("region") or "")
        found = await self._managers.mapped(provider, names, auth, region)
        single = {"value": next(iter(found.values()))} if len(found) == 1 else {}
        return Made(type="secret", fields=single | found)

    async def _id_token(self, tenant_id: str, entry: Mapping[str, Any]) -> Made:
        auth = await self._opened.auth(tenant_id, entry.get("auth") or entry.get("credential"))
        audience = str(entry.get("endpoint") or "")
        target = auth.get("impersonate")
        if target:
            token = await self._impersonation(auth, str(target)).mint_id_token(audience)
        else:
            token = await google.mint_id_token(
                self._managers.fetch,
                self._clock,
                audience=audience,
                account=google.account_of(auth),
                metadata=self._managers.metadata,
            )
        return _bearing(token)

    async def _token(
        self, tenant_id: str, entry: Mapping[str, Any], refresh_token: str | None
    ) -> Made:
        auth = await self._opened.auth(tenant_id, entry.get("auth") or entry.get("credential"))
        minter = str(entry.get("token_type") or "")
        if minter not in MINTERS:
            minter = _OF_PROVIDER.get(str(entry.get("provider") or ""), "")
        if minter:
            return await self._minted(minter, auth, entry)
        endpoint, data = str(entry.get("endpoint") or ""), entry.get("data")
        if not isinstance(data, Mapping):
            return await self._opened.token(auth, refresh_token, endpoint)
        if refresh_token and data.get("refresh_token"):
            data = {**data, "refresh_token": refresh_token}
        if not endpoint:
            raise SourceRefused(f"the entry `{entry['name']}` has no `endpoint`")
        return _bearing(
            await oauth2.mint(
                self._managers.fetch,
                endpoint,
                data=data,
                headers={name: str(value) for name, value in (entry.get("headers") or {}).items()},
                method=str(entry.get("method") or "POST"),
            )
        )

    async def _minted(self, minter: str, auth: Mapping[str, Any], entry: Mapping[str, Any]) -> Made:
        """A token of one of the clouds."""
        own = entry.get("data")
        kind = _TYPE_OF[minter]
        asked = first_names(kind, auth) | first_names(kind, own if isinstance(own, Mapping) else {})
        if minter == "aws-sts":
            token = await aws_sts.mint(
                self._managers.fetch, self._clock, asked, region=str(entry.get("region") or "")
            )
            return Made(type="aws", fields=token.fields, expires_in=token.expires_in)
        wanted = asked.get("scope") or asked.get("scopes") or ""
        scope = wanted if isinstance(wanted, str) else " ".join(map(str, wanted))
        if minter == "azure-oauth":
            return _bearing(await azure.mint(self._managers.fetch, asked, scope=scope or _AZURE))
        scope = scope or google.CLOUD
        target = asked.get("impersonate")
        if target:
            return _bearing(await self._impersonation(asked, str(target)).mint(scope))
        account = google.account_of(asked)
        if account is None:
            raise SourceRefused(
                f"the entry `{entry['name']}` names no account of Google",
                hint="name a service account, or one to `impersonate`; the server's own is not "
                "given away",
            )
        return _bearing(
            await google.mint(self._managers.fetch, self._clock, scope=scope, account=account)
        )

    def _impersonation(self, auth: Mapping[str, Any], email: str) -> Impersonation:
        """Tokens of another account of Google, for the one that `auth` is."""
        fetch = self._managers.fetch
        mint = partial(
            google.mint,
            fetch,
            self._clock,
            account=google.account_of(auth),
            metadata=self._managers.metadata,
        )
        return Impersonation(fetch, self._clock, bearer=Bearer(self._clock, mint), email=email)


def _bearing(token: Token) -> Made:
    return Made(type="bearer", fields=token.fields, expires_in=token.expires_in)


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((str(fields[name]) for name in names if fields.get(name) not in {None, ""}), "")


def _empty(entry: Mapping[str, Any], name: str) -> SourceRefused:
    return SourceRefused(
        f"the entry `{entry['name']}` has no `{name}`",
        hint="name a credential that has it",
    )
