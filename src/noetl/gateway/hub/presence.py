"""Whose a client is and where it is connected, known to every gateway.

A client belongs to the user who first used its id. Each connection has a generation; whoever finds
a newer one has been superseded, and changes nothing any more.
"""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.bus.keys import KeyChanged
from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable
from noetl.gateway.errors import ClientNotYours, TooManyClients

if TYPE_CHECKING:
    from noetl.bus.keys import Keys
    from noetl.clock import Clock
    from noetl.gateway.person import Person

KEPT_S: Final = 1800.0
"""How long a client is remembered after it has left."""
RENEW_S: Final = 300.0
"""How often a connected client is written again."""
ALIVE_S: Final = 30.0
"""How long a replica counts as there after its last word."""
MOST_OF_SESSION: Final = 20
MOST_OF_USER: Final = 50
_TRIES: Final = 5
_CLIENT: Final = re.compile(r"[A-Za-z0-9_-]{8,64}\Z")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class Present(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client, connected or remembered."""

    session_id: str
    user_id: str
    tenant: str = "default"
    replica: str = ""
    """Which gateway holds its connection; empty when none does."""
    generation: int = 0
    seen_at: str = ""

    @property
    def owner(self) -> tuple[str, str]:
        """Whose it is, whichever his session."""
        return self.user_id, self.tenant


_decode: Final = msgspec.json.Decoder(Present).decode
_encode: Final = msgspec.json.Encoder().encode


def is_client_id(text: str) -> bool:
    """Whether a text may be the id of a client."""
    return _CLIENT.match(text) is not None


class Presence:
    """The clients of all gateways."""

    def __init__(self, keys: Keys, clock: Clock, replica: str) -> None:
        self.replica = replica
        self._keys = keys
        self._clock = clock
        self._alive: tuple[float, frozenset[str]] = (-ALIVE_S, frozenset())

    async def of(self, client_id: str) -> Present | None:
        """What is known of a client."""
        found = await self._keys.get(_key(client_id))
        return None if found is None or not found.value else _decode(found.value)

    async def claim(self, person: Person, client_id: str) -> tuple[Present | None, Present, int]:
        """Connect a client here: what it was, what it is now, and the revision of that."""
        if not is_client_id(client_id):
            raise Unacceptable("`client_id` is not 8..64 of [A-Za-z0-9_-]", code="bad_value")
        for _ in range(_TRIES):
            entry = await self._keys.get(_key(client_id))
            known = None if entry is None else _decode(entry.value)
            if known is not None and known.owner != person.owner:
                raise ClientNotYours("the client belongs to somebody else")
            if known is None or known.session_id != person.session_id:
                await self._make_room(person, client_id)
            now = self.here(person, 1 if known is None else known.generation + 1)
            try:
                revision = await self._keys.update(
                    _key(client_id), _encode(now), entry.revision if entry else 0, 2 * KEPT_S
                )
            except KeyChanged:
                continue
            if known is None or known.session_id != person.session_id:
                await self._index(person, client_id)
            return known, now, revision
        raise TooManyClients("the client connects in too many places at once")

    async def renew(self, person: Person, client_id: str, now: Present, revision: int) -> int:
        """Say that a client is still here; `KeyChanged` when it is elsewhere."""
        renewed = self.here(person, now.generation)
        revision = await self._keys.update(_key(client_id), _encode(renewed), revision, 2 * KEPT_S)
        await self._index(person, client_id)
        return revision

    async def leave(self, person: Person, client_id: str, now: Present, revision: int) -> None:
        """Say that a client has left; nothing changes when it is elsewhere by now."""
        left = self.here(person, now.generation, replica="")
        with suppress(KeyChanged):
            await self._keys.update(_key(client_id), _encode(left), revision, KEPT_S)

    async def clients_of(self, *, session_id: str = "", user_id: str = "") -> list[str]:
        """The clients of a session or a user, connected or remembered."""
        prefix = f"cs.{_word(session_id)}" if session_id else f"cu.{_word(user_id)}"
        return [name.rpartition(".")[2] for name in await self._keys.names(prefix)]

    async def is_live(self, known: Present) -> bool:
        """Whether a gateway that is there holds a connection of a client."""
        if not known.replica or known.replica == self.replica:
            return bool(known.replica)
        made_at, alive = self._alive
        now = self._clock.monotonic()
        if now - made_at > ALIVE_S / 6:
            names = await self._keys.names("g")
            alive = frozenset(name.rpartition(".")[2] for name in names)
            self._alive = now, alive
        return _word(known.replica) in alive

    async def beat(self) -> None:
        """Say that this gateway is there."""
        await self._keys.put(f"g.{_word(self.replica)}", b"1", ALIVE_S)

    async def stop(self) -> None:
        """Say that this gateway is there no more."""
        await self._keys.delete(f"g.{_word(self.replica)}")

    async def _make_room(self, person: Person, client_id: str) -> None:
        """Let one more client in; of those who have left, the oldest make room for it."""
        for most, clients in (
            (MOST_OF_SESSION, await self.clients_of(session_id=person.session_id)),
            (MOST_OF_USER, await self.clients_of(user_id=person.user_id)),
        ):
            others = [one for one in clients if one != client_id]
            over = len(others) + 1 - most
            if over <= 0:
                continue
            left = []
            for one in others:
                known = await self.of(one)
                if known is None or not await self.is_live(known):
                    left.append(("" if known is None else known.seen_at, one))
            if len(left) < over:
                raise TooManyClients(
                    "there are too many clients",
                    hint=f"at most {MOST_OF_SESSION} of a session and {MOST_OF_USER} of a user",
                )
            for _, one in sorted(left)[:over]:
                await self._forget(person, one)

    async def _forget(self, person: Person, client_id: str) -> None:
        known = await self.of(client_id)
        session_id = person.session_id if known is None else known.session_id
        for key in (
            f"cs.{_word(session_id)}.{client_id}",
            f"cs.{_word(person.session_id)}.{client_id}",
            f"cu.{_word(person.user_id)}.{client_id}",
            _key(client_id),
        ):
            await self._keys.delete(key)

    async def _index(self, person: Person, client_id: str) -> None:
        """Let a client be found; whoever is remembered is found at least as long."""
        for key in (
            f"cs.{_word(person.session_id)}.{client_id}",
            f"cu.{_word(person.user_id)}.{client_id}",
        ):
            await self._keys.put(key, b"1", 2 * KEPT_S)

    def here(self, person: Person, generation: int = 1, replica: str | None = None) -> Present:
        """A client of somebody, at this gateway unless it has left."""
        return Present(
            session_id=person.session_id,
            user_id=person.user_id,
            tenant=person.tenant,
            replica=self.replica if replica is None else replica,
            generation=generation,
            seen_at=rfc3339(self._clock.now()),
        )


def _key(client_id: str) -> str:
    return f"c.{client_id}"


def _word(text: str) -> str:
    """A text as one token of a key; another text never has the same."""
    return text if _WORD.match(text) else f"={sha256(text.encode()).hexdigest()}"
