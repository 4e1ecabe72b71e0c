"""The keys that an issuer signs with: remembered for a while, and asked for again at a pace."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from noetl.gateway.oidc.errors import IssuerUnreachable
from noetl.gateway.oidc.tokens import key_of
from noetl.secrets.fetch import Ask, Unreached

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from joserfc.jwk import Key

    from noetl.clock import Clock
    from noetl.secrets.fetch import Answer, Fetch

T = TypeVar("T")

FRESH_S: Final = 3600.0
STALE_S: Final = 24 * 3600.0
AGAIN_S: Final = 60.0
"""How often keys are asked for because of a name that is not known."""
ASK_S: Final = 5.0
MOST_KEYS: Final = 100
REFRESHED: Final = "refreshed"
FAILED: Final = "failed"
_log: Final = logging.getLogger(__name__)


class _KeySet(msgspec.Struct, frozen=True, kw_only=True):
    keys: list[dict[str, Any]]


class Door:
    """The way to one issuer; all that leaves for it passes the guard of `fetch`."""

    def __init__(self, who: str, fetch: Fetch) -> None:
        self.who = who
        self._fetch = fetch

    async def ask(self, ask: Ask) -> Answer:
        """One request to the issuer."""
        try:
            return await self._fetch(ask)
        except Unreached as fault:
            raise IssuerUnreachable(
                f"the issuer of `{self.who}` does not answer", hint=fault.hint
            ) from fault

    async def told(self, url: str, kind: type[T]) -> T:
        """What the issuer tells at an address."""
        answer = await self.ask(Ask(method="GET", url=url, timeout_s=ASK_S))
        if not answer.is_ok:
            raise IssuerUnreachable(
                f"the issuer of `{self.who}` answers with status {answer.status}"
            )
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise IssuerUnreachable(
                f"the issuer of `{self.who}` answers what nobody can read"
            ) from None


class Keyring:
    """The keys of one issuer."""

    def __init__(
        self,
        door: Door,
        locate: Callable[[], Awaitable[str]],
        clock: Clock,
        *,
        away_s: float = 0.0,
        noted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`locate` tells where the keys are; `noted` hears how each refresh went.

        An issuer that never answered is left alone for `away_s` before the next question.
        """
        self._door = door
        self._locate = locate
        self._clock = clock
        self._away_s = away_s
        self._noted = noted
        self._lock = asyncio.Lock()
        self._keys: dict[str | None, Key] = {}
        self._keys_at: float | None = None
        self._again_at = float("-inf")
        """When a key that is not known was asked for last."""
        self._wait_until = float("-inf")
        """An issuer that is away is left alone until then."""

    async def key(self, kid: object) -> Key | None:
        """The key of a name; none when the issuer has none of that name."""
        name = kid if isinstance(kid, str) else None
        found = self._keys.get(name)
        if found is not None and self._is_fresh(self._clock.monotonic()):
            return found  # whoever asks for an unknown one holds up nobody
        async with self._lock:
            now = self._clock.monotonic()
            if not self._is_fresh(now):
                await self._renew(now)
            elif name not in self._keys and now - self._again_at >= AGAIN_S:
                self._again_at = now
                await self._renew(now)
            return self._keys.get(name)

    def _is_fresh(self, now: float) -> bool:
        return self._keys_at is not None and now - self._keys_at < FRESH_S

    async def _renew(self, now: float) -> None:
        """Ask for the keys; those known before serve for a day while nobody answers."""
        is_known = self._keys_at is not None and now - self._keys_at < STALE_S
        if now < self._wait_until:
            if is_known:
                return
            raise IssuerUnreachable(f"the issuer of `{self._door.who}` does not answer")
        try:
            told = await self._door.told(await self._locate(), _KeySet)
        except IssuerUnreachable as fault:
            self._noted(FAILED)
            self._wait_until = self._clock.monotonic() + (AGAIN_S if is_known else self._away_s)
            if not is_known:
                raise
            _log.warning(
                "the keys of an issuer could not be renewed",
                extra={"provider": self._door.who, "hint": fault.hint},
            )
            return
        made = [(one.get("kid"), key_of(one)) for one in told.keys[:MOST_KEYS]]
        keys: dict[str | None, Key] = {
            kid: key for kid, key in made if isinstance(kid, str) and key is not None
        }
        usable = [key for _, key in made if key is not None]
        if len(usable) == 1:  # a token that names none can mean only this one
            keys[None] = usable[0]
        self._keys, self._keys_at = keys, now
        self._noted(REFRESHED)
