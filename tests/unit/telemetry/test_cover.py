"""Secrets in bytes are covered wherever the pieces of them end."""

from __future__ import annotations

import random

import pytest

from noetl.telemetry.cover import Cover
from noetl.telemetry.redact import MOST, Redactor

SECRET = "s3cret/of-it"  # noqa: S105 - not one
TEXT = f"a {SECRET} b{SECRET}{SECRET} 42 142 42nd \xe9 s3cret/of-i x42 " + "y" * 30 + f"42 {SECRET}"


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", range(1, 40))
def test_pieces_are_covered_as_the_whole_is(size: int) -> None:
    redactor = Redactor([SECRET, "42"])
    cover = redactor.cover()
    assert cover is not None
    made = b"".join(cover.covered(pieces(TEXT.encode(), size)))
    assert made.decode() == redactor.redact(TEXT)
    assert cover.is_in(pieces(TEXT.encode(), size))


def test_any_bytes_in_any_pieces_are_covered_as_the_whole_is() -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    parts = [SECRET, SECRET[:5], SECRET[5:], " 42 ", "142x", "an/other+secret", "\u20ac"]
    redactor = Redactor([SECRET, "42", "an/other+secret"])
    cover = redactor.cover()
    assert cover is not None
    for _ in range(300):
        text = "".join(chance.choices(parts, k=40))
        made = b"".join(cover.covered(pieces(text.encode(), chance.randint(1, 60))))
        assert made.decode() == redactor.redact(text), f"seed {seed}"


@pytest.mark.parametrize("length", [6, 14, 15, 16, 40])
def test_a_secret_of_any_length_is_found_anywhere(length: int) -> None:
    secret = "".join(chr(ord("a") + at % 26) for at in range(length))
    cover = Cover([secret], [])
    for at in range(20):
        data = b" " * at + secret.encode() + b" " * (20 - at)
        assert cover.is_in([data])
        assert b"".join(cover.covered([data])) == b" " * at + b"***" + b" " * (20 - at)


def test_other_bytes_pass_as_they_are() -> None:
    cover = Cover([SECRET], [])
    data = bytes(range(256)) * 40 + SECRET[:-1].encode()
    assert not cover.is_in(pieces(data, 100))
    assert b"".join(cover.covered(pieces(data, 100))) == data


def test_without_a_secret_there_is_nothing_to_look_for() -> None:
    assert Redactor().cover() is None
    redactor = Redactor(["42"])
    redactor.release("42")
    assert redactor.cover() is None


def test_the_secrets_that_were_used_last_are_looked_for() -> None:
    secrets = [f"secret-number-{n:05}" for n in range(MOST + 1)]
    cover = Redactor(secrets).cover()
    assert cover is not None
    assert [cover.is_in([secret.encode()]) for secret in secrets] == [False] + [True] * MOST


def test_secrets_that_overlap_without_end_are_not_held_for_ever() -> None:
    cover = Cover(["a" * 8], [])
    data = [b"before ", *[b"a" * (1 << 20)] * 3, b" after"]
    made = b"".join(cover.covered(data))
    assert (made[:10], made[-6:]) == (b"before ***", b" after")
    assert b"a" * 8 not in made
