"""What every store of large bytes does; a backend is the fixture `blobs`."""

import asyncio
from hashlib import sha256

import pytest

from noetl.blobs.base import CHUNK_BYTES, BlobGone, InvalidKey, Stat
from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.objects import ObjectBlobs, open_blobs, open_store
from noetl.blobs.postgres import PostgresBlobs
from noetl.blobs.tiered import TieredBlobs
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.store.postgres.database import Database

KEY = "execution/7/result/load/0123abcd"
BIG = bytes(range(256)) * (CHUNK_BYTES // 256) * 2 + b"end"
HUGE = BIG * 3
"""More than the database of tiers takes."""


@pytest.fixture(scope="module")
def shared_url(postgres_server):
    """One database for all tests here: making one costs more than any of them."""
    name = postgres_server.make()
    yield postgres_server.url_of(name)
    postgres_server.drop(name)


PLACED = {"rows": ("row", "none"), "zstd": ("object", "zstd"), "gzip": ("object", "gzip")}
"""Tiers of which one is chosen."""


@pytest.fixture(
    params=["file", "memory", "postgres", "objects", "s3", "gcs", "tiers", "rows", "zstd", "gzip"]
)
async def blobs(request, tmp_path):
    if request.param == "file":
        yield open_blobs(f"file://{tmp_path}/blobs")
    elif request.param == "objects":
        yield open_blobs("memory:")
    elif request.param == "s3":
        server = request.getfixturevalue("s3_server")
        store = open_store(f"s3://{server.bucket()}", server.fields)
        yield ObjectBlobs(store, "some/prefix", "s3")
    elif request.param == "gcs":
        server = request.getfixturevalue("gcs_server")
        yield ObjectBlobs(open_store(f"gs://{server.bucket()}", server.fields), "", "gcs")
    elif request.param == "memory":
        yield MemoryBlobs()
    else:
        database = await Database.open(request.getfixturevalue("shared_url"))
        await database.execute("delete from noetl.result")
        if request.param == "tiers":
            large = MemoryBlobs()
            yield TieredBlobs(database, large, Ids(SystemClock()), "test")
        elif request.param in PLACED:
            tiers = TieredBlobs(database, MemoryBlobs(), Ids(SystemClock()), "test")
            yield tiers.placing(*PLACED[request.param])
        else:
            yield PostgresBlobs(database)
        await database.close()


async def parts(*chunks):
    for chunk in chunks:
        yield chunk


async def joined(stream):
    return b"".join([chunk async for chunk in stream])


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x00\xff\n", BIG, HUGE], ids=["none", "json", "raw", "big", "huge"]
)
async def test_what_was_put_comes_back(blobs, data):
    await blobs.put(KEY, data, media_type="text/x; charset=utf-8")
    assert await blobs.get(KEY) == data
    assert await joined(blobs.get_stream(KEY)) == data
    assert await blobs.head(KEY) == Stat(
        key=KEY,
        size=len(data),
        sha256=sha256(data).hexdigest(),
        media_type="text/x; charset=utf-8",
    )


async def test_a_stream_is_kept_like_any_bytes(blobs):
    stat = await blobs.put_stream(KEY, parts(b"ab", b"", b"c"), media_type="text/csv")
    digest = sha256(b"abc").hexdigest()
    assert stat == Stat(key=KEY, size=3, sha256=digest, media_type="text/csv")
    assert await blobs.get(KEY) == b"abc"
    assert await blobs.head(KEY) == stat


async def test_a_long_object_comes_in_chunks(blobs):
    await blobs.put(KEY, BIG)
    sizes = [len(chunk) async for chunk in blobs.get_stream(KEY)]
    assert sizes == [CHUNK_BYTES, CHUNK_BYTES, 3]


async def test_a_source_that_fails_leaves_what_was_there(blobs):
    async def failing():
        yield b"half"
        message = "source"
        raise OSError(message)

    with pytest.raises(OSError, match="source"):
        await blobs.put_stream(KEY, failing())
    assert await blobs.head(KEY) is None
    await blobs.put(KEY, b"old")
    with pytest.raises(OSError, match="source"):
        await blobs.put_stream(KEY, failing())
    assert await blobs.get(KEY) == b"old"
    assert await blobs.listed() == [KEY]


async def test_a_writer_that_goes_away_leaves_nothing(blobs):
    begun = asyncio.Event()

    async def endless():
        yield b"half"
        begun.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(blobs.put_stream(KEY, endless()))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await blobs.head(KEY) is None
    assert await blobs.listed() == []


async def test_a_second_put_replaces_the_first(blobs):
    await blobs.put(KEY, b"a longer one")
    await blobs.put(KEY, b"b", media_type="text/plain")
    assert await blobs.get(KEY) == b"b"
    assert (await blobs.head(KEY)).media_type == "text/plain"


async def test_puts_at_once_leave_one_of_them_whole(blobs):
    values = [str(n).encode() * 10_000 for n in range(5)]
    await asyncio.gather(*(blobs.put(KEY, value) for value in values))
    assert await blobs.get(KEY) in values
    assert await blobs.listed() == [KEY]


async def test_what_is_not_there_is_gone(blobs):
    with pytest.raises(BlobGone) as caught:
        await blobs.get(KEY)
    assert (caught.value.code, caught.value.status) == ("result_gone", 404)
    with pytest.raises(BlobGone):
        await joined(blobs.get_stream(KEY))
    assert await blobs.head(KEY) is None
    assert await blobs.listed() == []
    await blobs.delete(KEY)


async def test_what_was_deleted_is_gone(blobs):
    await blobs.put(KEY, b"x")
    await blobs.delete(KEY)
    await blobs.delete(KEY)
    with pytest.raises(BlobGone):
        await blobs.get(KEY)
    assert await blobs.listed() == []


async def test_keys_are_listed_by_their_beginning_in_order(blobs):
    for key in ("b/2", "a/1/x", "a/10/x", "b/1", "a"):
        await blobs.put(key, b"")
    assert await blobs.listed() == ["a", "a/1/x", "a/10/x", "b/1", "b/2"]
    assert await blobs.listed("a/1") == ["a/1/x", "a/10/x"]
    assert await blobs.listed("a/1/") == ["a/1/x"]
    assert await blobs.listed("c") == []


async def test_a_key_may_be_the_beginning_of_another(blobs):
    await blobs.put("a/b", b"1")
    await blobs.put("a/b/c", b"2")
    await blobs.put("a", b"3")
    assert [await blobs.get(key) for key in ("a/b", "a/b/c", "a")] == [b"1", b"2", b"3"]
    with pytest.raises(BlobGone):
        await blobs.get("a/b/c/d")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/../b",
        "a/./b",
        ".hidden",
        "a/.hidden",
        "a\\b",
        "a b",
        "a\n",
        "a\0b",
        "a+",
        "é",
        "x" * 201,
        "/".join(["x" * 100] * 11),
    ],
)
async def test_a_key_that_could_lead_elsewhere_is_refused_by_every_call(blobs, key):
    for call in (
        blobs.put(key, b""),
        blobs.get(key),
        blobs.head(key),
        blobs.delete(key),
        blobs.put_stream(key, parts()),
        joined(blobs.get_stream(key)),
    ):
        with pytest.raises(InvalidKey):
            await call
    assert await blobs.listed() == []


@pytest.mark.parametrize("media_type", ["", "text/plain\n", "x" * 101, "é"])
async def test_a_media_type_that_is_none_is_refused(blobs, media_type):
    with pytest.raises(InvalidKey):
        await blobs.put(KEY, b"", media_type=media_type)
    with pytest.raises(InvalidKey):
        await blobs.put_stream(KEY, parts(), media_type=media_type)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (0, 0),
        (5, 9),
        (CHUNK_BYTES - 1, CHUNK_BYTES),
        (3, None),
        (len(BIG) - 1, None),
        (0, len(BIG) * 2),
    ],
)
async def test_a_part_is_read_alone(blobs, first, last):
    await blobs.put(KEY, BIG)
    end = None if last is None else last + 1
    assert await joined(blobs.get_stream(KEY, first, last)) == BIG[first:end]


async def test_nothing_is_read_behind_the_end(blobs):
    await blobs.put(KEY, b"abc")
    assert await joined(blobs.get_stream(KEY, 3, 9)) == b""


async def test_keys_are_listed_in_pages(blobs):
    keys = [f"execution/7/result/{name}/x" for name in ("B", "a", "a.b", "b", "é".encode().hex())]
    others = ["execution/71/result/a/x", "execution/8/result/a/x", "objects/a"]
    for key in (*keys, *others):
        await blobs.put(key, b"1")
    assert await blobs.listed("execution/7/") == sorted(keys)
    assert await blobs.listed("execution/7/", limit=2) == sorted(keys)[:2]
    assert await blobs.listed("execution/7/", after=sorted(keys)[1], limit=2) == sorted(keys)[2:4]
    assert await blobs.listed("execution/", after=max(keys)) == others[:2]
    assert await blobs.listed(limit=100) == sorted([*keys, *others])
    assert await blobs.listed("execution/7", limit=0) == []
