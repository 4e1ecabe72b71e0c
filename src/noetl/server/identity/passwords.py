"""Passwords: hashed with argon2id in a thread, and never kept."""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64encode
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from noetl.server.identity.forms import wrong
from noetl.settings.values import PASSWORD

SHORTEST, LONGEST = PASSWORD
_AT_ONCE: Final = 2
"""Each one takes its memory while it lasts."""


class Passwords:
    """Makes and checks hashes, a few at a time."""

    def __init__(self, memory_kib: int = 65_536) -> None:
        self._hasher = PasswordHasher(memory_cost=memory_kib)
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._nobodys = _nobodys(self._hasher)

    async def hashed(self, password: str) -> str:
        """What is kept of a password; refused when it is too short or too long."""
        if not SHORTEST <= len(password) <= LONGEST:
            raise wrong("/password", f"a password has {SHORTEST}..{LONGEST} characters")
        async with self._room:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def fits(self, password: str, hashed: str | None) -> bool:
        """Whether it is the password; where there is none, the answer takes as long."""
        async with self._room:
            return await asyncio.to_thread(self._fits, password, hashed)

    def _fits(self, password: str, hashed: str | None) -> bool:
        try:
            self._hasher.verify(hashed or self._nobodys, password[: LONGEST + 1])
        except (VerifyMismatchError, InvalidHashError):
            return False
        return hashed is not None


def _nobodys(hasher: PasswordHasher) -> str:
    """A hash that no password has, as costly to check as a real one."""
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    salt, body = (
        b64encode(secrets.token_bytes(size)).rstrip(b"=").decode()
        for size in (hasher.salt_len, hasher.hash_len)
    )
    return f"$argon2id$v=19${costs}${salt}${body}"
