"""Snowflakes: 41 bits of milliseconds since 2024, 10 bits of machine, 12 bits of sequence."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.clock import Clock

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
MACHINES = 1 << 10
_PER_MS = 1 << 12
_LARGEST = (1 << 63) - 1


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


def random_key() -> str:
    """128 random bits as text, for what only its holder may use."""
    return secrets.token_hex(16)
