"""An issuer: where its endpoints are and which keys it signs with, remembered for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from noetl.gateway.oidc.errors import BadSignature, IssuerUnreachable
from noetl.gateway.oidc.keyring import FRESH_S, STALE_S, Door, Keyring
from noetl.gateway.oidc.tokens import heading, must_be_signed, must_be_taken, must_count

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.gateway.oidc.provider import Provider
    from noetl.secrets.fetch import Answer, Ask, Fetch

WELL_KNOWN: Final = "/.well-known/openid-configuration"


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """What an issuer tells of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    id_token_signing_alg_values_supported: tuple[str, ...] = ()


class Issuer:
    """The issuer of one provider; all that leaves for it passes the guard of `fetch`."""

    def __init__(self, provider: Provider, fetch: Fetch, clock: Clock) -> None:
        self.provider = provider
        self._clock = clock
        self._lock = asyncio.Lock()
        self._door = Door(provider.name, fetch)
        self._keyring = Keyring(self._door, self._where_keys_are, clock)
        self._endpoints: Endpoints | None = None
        self._endpoints_at = 0.0

    async def checked(self, text: str, nonce: str | None) -> dict[str, Any]:
        """The claims of a token that counts; a nonce is that of a sign-in which we began."""
        header, claims = heading(text)
        must_be_taken(header, self.provider)
        key = await self._keyring.key(header.get("kid"))
        if key is None:
            raise BadSignature("the issuer has no such key")
        must_be_signed(text, header, key, self.provider)
        must_count(claims, self.provider, self._clock.now().timestamp(), nonce)
        return claims

    async def endpoints(self) -> Endpoints:
        """Where people and codes go; an old answer counts for a day while the issuer is away."""
        async with self._lock:
            return await self._located()

    async def ask(self, ask: Ask) -> Answer:
        """One request to the issuer."""
        return await self._door.ask(ask)

    async def _where_keys_are(self) -> str:
        return (await self.endpoints()).jwks_uri

    async def _located(self) -> Endpoints:
        now = self._clock.monotonic()
        known, age = self._endpoints, now - self._endpoints_at
        if known is not None and age < FRESH_S:
            return known
        try:
            told = await self._door.told(self.provider.issuer.rstrip("/") + WELL_KNOWN, Endpoints)
            self._must_be_its_own(told)
        except IssuerUnreachable:
            if known is None or age >= STALE_S:
                raise
            return known
        self._endpoints, self._endpoints_at = told, now
        return told

    def _must_be_its_own(self, told: Endpoints) -> None:
        """Refuse what speaks for another issuer, or sends secrets in the clear."""
        if told.issuer != self.provider.issuer:
            raise IssuerUnreachable(f"`{self.provider.name}` answers as another issuer")
        schemes = {"https", urlsplit(self.provider.issuer).scheme}
        for url in (told.authorization_endpoint, told.token_endpoint, told.jwks_uri):
            if urlsplit(url).scheme not in schemes:
                raise IssuerUnreachable(f"`{self.provider.name}` names an address without TLS")
