"""Bytes that tools leave behind: text without secrets, and all else as it is."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from noetl.blobs.file import FileBlobs
from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.refs import key_of
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext
from noetl.tools.stored import CHUNK, Spool, is_text, put_bytes, put_file

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.blobs.base import Blobs

SECRET = "st0red-Canary-4410"  # noqa: S105 - looked for where it must not be
TEXT = f'{{"said": "{SECRET}"}}'.encode()
CLEAN = b'{"said": "***"}'


def context(blobs: Blobs | None = None, *secrets: str) -> ToolContext:
    return ToolContext(
        execution_id="7", step="s", command_id="c", idempotency_key="k",
        blobs=blobs or MemoryBlobs(), redactor=Redactor(secrets),
    )  # fmt: skip


async def kept(ctx: ToolContext, stored: dict[str, Any]) -> bytes:
    """What lies there, which is what is told of it."""
    found = await ctx.blobs.get(key_of(stored["ref"]))
    assert (stored["bytes"], stored["sha256"]) == (len(found), sha256(found).hexdigest())
    return bytes(found)


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        ("application/json", CLEAN),
        ("text/csv; charset=utf-8", CLEAN),
        ("application/x-ndjson", CLEAN),
        ("application/octet-stream", CLEAN),
        ("binary/octet-stream", CLEAN),
        ("no type\n", CLEAN),
        ("image/png", TEXT),
        ("application/vnd.apache.parquet", TEXT),
    ],
)
async def test_a_secret_in_stored_text_is_covered(
    media_type: str, expected: bytes, tmp_path: Path
) -> None:
    ctx = context(None, SECRET)
    assert await kept(ctx, await put_bytes(TEXT, media_type, ctx)) == expected
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    assert await kept(ctx, await put_file(path, media_type, ctx)) == expected
    async with Spool(ctx) as spool:
        for at in range(len(TEXT)):
            await spool.write(TEXT[at : at + 1])
        assert await kept(ctx, await spool.store(media_type)) == expected
    assert path.read_bytes() == TEXT
    assert ctx.redactor.covered["result"] == (3 if expected == CLEAN else 0)


async def test_bytes_that_are_no_text_and_text_without_secrets_pass_as_they_are() -> None:
    ctx = context(None, SECRET)
    for data in (TEXT + b"\0", TEXT + b"\xff", b"", b"nothing"):
        assert await kept(ctx, await put_bytes(data, "application/octet-stream", ctx)) == data
    ctx = context()
    assert await kept(ctx, await put_bytes(TEXT, "application/json", ctx)) == TEXT


async def test_a_large_text_is_covered_in_little_memory(tmp_path: Path) -> None:
    ctx, size = context(FileBlobs(tmp_path), SECRET), 64
    line = f"{'x' * 997} {SECRET}\n".encode()
    tracemalloc.start()
    try:
        async with Spool(ctx) as spool:
            for _ in range(size * CHUNK // len(line)):
                await spool.write(line)
            stored = await spool.store("text/plain")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stored["bytes"] == size * CHUNK // len(line) * (len(line) - len(SECRET) + 3)
    assert peak < 16 * CHUNK


@pytest.mark.parametrize(
    ("media", "is_one"),
    [
        ("text/plain", True),
        ("application/ld+json", True),
        ("application/x-yaml", True),
        ("application/x-www-form-urlencoded", True),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", False),
        ("application/zip", False),
    ],
)
def test_types_of_text(media: str, *, is_one: bool) -> None:
    assert is_text(media) is is_one
