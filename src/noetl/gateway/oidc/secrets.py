"""Secrets that the gateway has at sign-in providers: asked of the server, kept in memory alone."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.errors import NoetlError
from noetl.gateway.errors import AuthUnavailable
from noetl.secrets.sealed import Sealed, about_delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.api.client import Client
    from noetl.api.credentials import SealedAnswer
    from noetl.clock import Clock
    from noetl.gateway.oidc.provider import Provider
    from noetl.gateway.parts import GatewayParts
    from noetl.secrets.sealed import KeyPair
    from noetl.telemetry.fingerprints import Fingerprints

ASK_S: Final = 5.0
AGAIN_S: Final = 10.0
"""How long a secret that an issuer refuses, and that the server still gives, is not asked for."""
_log: Final = logging.getLogger(__name__)


class _Fields(msgspec.Struct, frozen=True, kw_only=True):
    client_secret: str
    client_id: str = ""


class _Inside(msgspec.Struct, frozen=True, kw_only=True):
    data: _Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A secret as it is held."""

    secret: str = field(repr=False)
    until: datetime
    confirmed_at: float = float("-inf")
    """When the server gave it again although the issuer had refused it."""


class ClientSecrets:
    """Tells the secrets of providers that name them by an alias."""

    def __init__(
        self,
        client: Callable[[], Client],
        *,
        name: str,
        keys: KeyPair,
        seen: Fingerprints,
        clock: Clock,
    ) -> None:
        """`name` is that of this gateway, and `keys` what secrets are sealed to."""
        self._client = client
        self._name = name
        self._keys = keys
        self._seen = seen
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._lock = asyncio.Lock()

    @classmethod
    def of_parts(cls, parts: GatewayParts) -> ClientSecrets:
        """Those of a gateway."""
        return cls(
            parts.upstream.service,
            name=parts.name,
            keys=parts.keys,
            seen=parts.seen,
            clock=parts.clock,
        )

    async def of(self, provider: Provider, refused: str = "") -> str:
        """The secret of a provider; another one than the `refused`, if the server has another."""
        async with self._lock:
            kept = self._kept.get(provider.name)
            if kept is not None and self._counts(kept, refused):
                return kept.secret
            made = await self._asked(provider)
            if made.secret == refused:
                made = _confirmed(made, self._clock.monotonic())
            self._kept[provider.name] = made
            return made.secret

    def _counts(self, kept: _Kept, refused: str) -> bool:
        if self._clock.now() >= kept.until:
            return False
        is_confirmed = self._clock.monotonic() - kept.confirmed_at < AGAIN_S
        return kept.secret != refused or is_confirmed

    async def _asked(self, provider: Provider) -> _Kept:
        alias = provider.client_secret_alias
        told = {"provider": provider.name, "alias": alias}
        try:
            async with asyncio.timeout(ASK_S):
                answer = await self._client().sign_in_secret(alias, self._name, provider.name)
            inside = self._opened(provider, answer)
        except (NoetlError, TimeoutError) as fault:
            code = getattr(fault, "code", "timeout")
            _log.warning("the server gives no secret for sign-in", extra={**told, "code": code})
            raise _unavailable() from fault
        except msgspec.ValidationError:  # which names no value
            _log.error("a secret for sign-in cannot be read", extra=told)
            raise _unavailable() from None
        self._seen.add(inside.client_secret)
        if inside.client_id and inside.client_id != provider.client_id:
            _log.error("a secret for sign-in is that of another client", extra=told)
            raise _unavailable()
        until = datetime.fromisoformat(answer.expires_at)
        return _Kept(secret=inside.client_secret, until=until)

    def _opened(self, provider: Provider, answer: SealedAnswer) -> _Fields:
        sealed = Sealed(
            alg=answer.alg, v=answer.v, eph_pub=answer.eph_pub, ciphertext=answer.ciphertext
        )
        alias = provider.client_secret_alias
        about = about_delivery(self._name, f"sign-in:{provider.name}", alias)
        return msgspec.json.decode(self._keys.open(sealed, about), type=_Inside).data


def _confirmed(kept: _Kept, now: float) -> _Kept:
    return _Kept(secret=kept.secret, until=kept.until, confirmed_at=now)


def _unavailable() -> AuthUnavailable:
    return AuthUnavailable("the gateway cannot prove itself to the issuer now")
