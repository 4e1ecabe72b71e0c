"""Snowflakes: 41 bits of milliseconds since 2024, 10 bits of machine, 12 bits of sequence."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.clock import Clock

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
MACHINES = 1 << 10
_PER_MS = 1 << 12
_LARGEST = (1 << 63) - 1

SHARD_HASH: Final = "xxh64-le-i64"
SHARD_SEED: Final = 0
MOST_SHARDS: Final = 1_024
_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


class InvalidId(NoetlError):
    """A value that is no id."""

    code = "invalid_id"
    status = 422


class Ids:
    """Makes ids that only grow, also when the clock steps back."""

    def __init__(self, clock: Clock, machine: int | None = None) -> None:
        self._clock = clock
        self._machine = secrets.randbelow(MACHINES) if machine is None else machine % MACHINES
        self._last_ms = 0
        self._sequence = 0

    def new(self) -> str:
        """The next id, as the text that every answer shows."""
        ms = int((self._clock.now() - EPOCH).total_seconds() * 1000)
        if ms > self._last_ms:
            self._last_ms, self._sequence = ms, 0
        else:
            self._sequence += 1
            if self._sequence == _PER_MS:
                self._last_ms, self._sequence = self._last_ms + 1, 0
        return str(self._last_ms << 22 | self._machine << 12 | self._sequence)


class LeasedIds(Ids):
    """Ids whose machine number is told later, by the server."""

    def lease(self, machine: int) -> None:
        """Make ids of this machine from now on."""
        self._machine = machine % MACHINES


def parse(value: object) -> str:
    """An id in its one form; text of digits or a whole number is taken."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise InvalidId(f"{value!r} is not an id", hint="an id is a whole number, or its digits")
    if not 1 <= number <= _LARGEST:
        raise InvalidId(f"{value!r} is not an id", hint="an id is in 1..2^63-1")
    return str(number)


def made_at(number: int) -> datetime:
    """When an id was made."""
    return EPOCH + timedelta(milliseconds=number >> 22)


def random_key() -> str:
    """128 random bits as text, for what only its holder may use."""
    return secrets.token_hex(16)


def random_uuid() -> str:
    """122 random bits as a UUID of version 4, where that is the form of a name."""
    return str(UUID(bytes=secrets.token_bytes(16), version=4))


def shard_of(execution_id: str | int, count: int) -> int:
    """The shard of a run among so many: XXH64 of its id as eight bytes, little-endian."""
    return _xxh64(int(execution_id)) % count if count > 1 else 0


def _xxh64(number: int) -> int:
    """XXH64 of exactly eight bytes."""
    hashed = (SHARD_SEED + _P5 + 8) & _MASK
    lane = _turned(number * _P2 & _MASK, 31) * _P1 & _MASK
    hashed = (_turned(hashed ^ lane, 27) * _P1 + _P4) & _MASK
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK
