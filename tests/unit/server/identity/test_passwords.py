"""Passwords: how they are kept, and how long they are."""

from __future__ import annotations

import asyncio

import pytest

from noetl.errors import NoetlError
from noetl.server.identity.passwords import Passwords
from tests.unit.server.identity.people import CHEAP, PASSWORD


def test_a_password_is_kept_as_argon2id_with_its_own_salt() -> None:
    async def test() -> None:
        passwords = Passwords(CHEAP)
        first, second = await passwords.hashed(PASSWORD), await passwords.hashed(PASSWORD)
        assert first.startswith("$argon2id$v=19$m=64,t=3,p=4$")
        assert first != second
        assert await passwords.fits(PASSWORD, first)
        assert not await passwords.fits(PASSWORD + "!", first)
        assert not await passwords.fits(PASSWORD, None)
        assert not await passwords.fits(PASSWORD, "no hash")

    asyncio.run(test())


def test_one_check_takes_64_mib_unless_told_otherwise() -> None:
    hashed = asyncio.run(Passwords().hashed(PASSWORD))
    assert hashed.startswith("$argon2id$v=19$m=65536,t=3,p=4$")


def test_a_password_has_12_to_256_characters() -> None:
    async def test() -> None:
        passwords = Passwords(CHEAP)
        for length in (12, 256):
            long = await passwords.hashed("é" * length)
            assert await passwords.fits("é" * length, long)
            assert not await passwords.fits("é" * (length + 1), long)
        for length in (0, 11, 257):
            with pytest.raises(NoetlError) as caught:
                await passwords.hashed("x" * length)
            assert caught.value.code == "validation_failed"

    asyncio.run(test())
