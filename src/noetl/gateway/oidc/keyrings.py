"""The keys of every issuer whose tokens deliveries carry, by where they are published."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from noetl.gateway.oidc.bearer import unavailable
from noetl.gateway.oidc.errors import IssuerUnreachable
from noetl.gateway.oidc.issuer import WELL_KNOWN
from noetl.gateway.oidc.keyring import FRESH_S, Door, Keyring

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.clock import Clock
    from noetl.gateway.oidc.bearer import Keys
    from noetl.secrets.fetch import Fetch

MOST_ISSUERS: Final = 256
AWAY_S: Final = 5.0
"""How long an issuer that never answered is left alone: strangers may not wear it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Where an issuer publishes its keys: at an address, or where its discovery says."""

    issuer: str
    jwks_url: str = ""


class _Discovery(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str
    jwks_uri: str


class Keyrings:
    """One keyring for each place; those that were not used for longest are let go."""

    def __init__(
        self, fetch: Fetch, clock: Clock, noted: Callable[[str], None] = lambda _: None
    ) -> None:
        """`noted` hears how each refresh went: `refreshed` or `failed`."""
        self._fetch = fetch
        self._clock = clock
        self._noted = noted
        self._rings: OrderedDict[Published, Keyring] = OrderedDict()

    async def keys(self, place: Published, kid: str | None) -> Keys:
        """What is known of this key, for a check that asks nobody itself."""
        try:
            found = await self._ring(place).key(kid)
        except IssuerUnreachable:
            return unavailable
        return lambda asked: found if asked == kid else None

    def _ring(self, place: Published) -> Keyring:
        if place not in self._rings:
            who = urlsplit(place.jwks_url or place.issuer).hostname or "?"
            door = Door(who, self._fetch)
            self._rings[place] = Keyring(
                door,
                _located(door, place, self._clock),
                self._clock,
                away_s=AWAY_S,
                noted=self._noted,
            )
            while len(self._rings) > MOST_ISSUERS:
                self._rings.popitem(last=False)
        self._rings.move_to_end(place)
        return self._rings[place]


def _located(door: Door, place: Published, clock: Clock) -> Callable[[], Awaitable[str]]:
    """Tells where the keys are; what discovery said counts for an hour."""
    known: list[tuple[float, str]] = []

    async def locate() -> str:
        if place.jwks_url:
            return place.jwks_url
        now = clock.monotonic()
        if known and now - known[-1][0] < FRESH_S:
            return known[-1][1]
        told = await door.told(place.issuer.rstrip("/") + WELL_KNOWN, _Discovery)
        is_safe = urlsplit(told.jwks_uri).scheme in {"https", urlsplit(place.issuer).scheme}
        if told.issuer != place.issuer or not is_safe:
            raise IssuerUnreachable(f"`{door.who}` answers as another issuer, or without TLS")
        known[:] = [(now, told.jwks_uri)]
        return told.jwks_uri

    return locate
