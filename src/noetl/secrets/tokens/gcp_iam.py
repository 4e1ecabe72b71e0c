"""Tokens of another service account of Google, for one that may act for it (`gcp-iam`)."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.secrets.fetch import Ask
from noetl.secrets.source import SourceRefused, text_in, told
from noetl.secrets.tokens.base import Token, left_of, seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.clock import Clock
    from noetl.secrets.fetch import Fetch

BASE: Final = "https://iamcredentials.googleapis.com/v1"
_WHO: Final = "the IAM service of Google"
_EMAIL: Final = re.compile(r"[A-Za-z0-9._-]{1,100}@[A-Za-z0-9.-]{1,150}\Z")
_HOUR: Final = "3600s"


class Impersonation:
    """Asks for tokens of one service account with the token of another."""

    def __init__(
        self,
        fetch: Fetch,
        clock: Clock,
        *,
        bearer: Callable[[], Awaitable[str]],
        email: str,
        base: str = BASE,
    ) -> None:
        if not _EMAIL.match(email):
            raise SourceRefused(
                f"{email[:200]!r} is not the address of a service account",
                hint="use name@project.iam.gserviceaccount.com",
            )
        self._fetch = fetch
        self._clock = clock
        self._bearer = bearer
        self._url = f"{base.rstrip('/')}/projects/-/serviceAccounts/{email}"

    async def mint(self, scope: str) -> Token:
        """An access token: fields `access_token`, `token`, `token_type`."""
        body = {"scope": scope.split(), "lifetime": _HOUR}
        found = await self._told("generateAccessToken", body)
        token = text_in(found, "accessToken", _WHO)
        try:
            until = datetime.fromisoformat(text_in(found, "expireTime", _WHO))
            left = seconds((until - self._clock.now()).total_seconds())
        except (TypeError, ValueError):
            raise SourceRefused(f"{_WHO} answered no time of expiry") from None
        fields = {"access_token": token, "token": token, "token_type": "Bearer"}
        return Token(fields=fields, expires_in=left)

    async def mint_id_token(self, audience: str) -> Token:
        """An identity token: fields `id_token`, `token`, `token_type`."""
        body = {"audience": audience, "includeEmail": True}
        token = text_in(await self._told("generateIdToken", body), "token", _WHO)
        fields = {"id_token": token, "token": token, "token_type": "Bearer"}
        return Token(fields=fields, expires_in=left_of(token, self._clock.now()))

    async def _told(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        ask = Ask(
            method="POST",
            url=f"{self._url}:{action}",
            headers={
                "authorization": f"Bearer {await self._bearer()}",
                "content-type": "application/json",
            },
            body=msgspec.json.encode(body),
        )
        return await told(self._fetch, ask, _WHO)
