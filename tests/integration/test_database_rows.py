"""What the rows of documents, bearers and large bytes are beside what readers see."""

import asyncio
from hashlib import sha256

import pytest

from noetl.blobs.base import CHUNK_BYTES, BlobDamaged, BlobGone
from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.postgres import LARGEST_BYTES, BlobTooLarge, PostgresBlobs
from noetl.blobs.tiered import TieredBlobs
from noetl.clock import SystemClock, rfc3339
from noetl.ids import Ids
from noetl.store.base import CatalogEntry
from noetl.store.identity import TokenRow
from noetl.store.postgres import migrate
from noetl.store.postgres.catalog import PostgresCatalog
from noetl.store.postgres.database import Database
from noetl.store.postgres.stored import PostgresResults
from noetl.store.postgres.tokens import PostgresTokens
from noetl.store.postgres.upkeep import PostgresUpkeep
from noetl.store.postgres.versions import PostgresVersions

NOW = "2026-01-01T00:00:00.000000Z"
KEY = "execution/331204559102443520/result/load/deep/0123abcd"


@pytest.fixture
async def database(postgres_url):
    database = await Database.open(postgres_url, size=4)
    yield database
    await database.close()


def entry(number):
    return CatalogEntry(
        catalog_id=str(number),
        path="a/b",
        version=0,
        kind="playbook",
        content=str(number),
        digest=sha256(str(number).encode()).hexdigest(),
        created_at=NOW,
    )


async def test_one_version_of_a_path_is_active_whoever_adds(database, postgres_url):
    other = await Database.open(postgres_url, size=4)
    catalogs = [PostgresCatalog(database), PostgresCatalog(other)]
    await asyncio.gather(*(catalogs[n % 2].add(entry(n)) for n in range(1, 21)))
    rows = await database.fetch("select version, active from noetl.catalog order by version")
    assert [tuple(row) for row in rows] == [(n, n == 20) for n in range(1, 21)]
    await other.close()


async def test_versions_of_the_release_before_stay_what_they_were(postgres_server):
    name = postgres_server.make(template="template0")
    url = postgres_server.url_of(name)
    known = [script for script in migrate.scripts() if script.name < "0004"]
    await migrate.migrate(url, known)
    database = await Database.open(url, size=4)
    await database.execute(
        """insert into noetl.catalog (catalog_id, path, version, kind, content, digest, active)
        values (1, 'a/b', 1, 'playbook', '1', '', false), (2, 'a/b', 2, 'playbook', '2', '', true),
            (3, 'a/t', 1, 'playbooktest', '3', '', true)"""
    )
    await migrate.migrate(url)
    catalog, versions = PostgresCatalog(database), PostgresVersions(database)
    assert (await catalog.resolve("default", "a/b")).catalog_id == "2"
    assert await versions.archive("default", "a/b", 2, NOW) == (2,)
    assert (await catalog.resolve("default", "a/b")).catalog_id == "1"
    assert (await catalog.get("3")).kind == "playbook_test"
    await database.close()
    postgres_server.drop(name)


async def test_what_was_removed_is_forgotten_a_day_later_but_not_its_number(database):
    catalog, versions = PostgresCatalog(database), PostgresVersions(database)
    for number in (1, 2, 3):
        await catalog.add(entry(number))
    await versions.remove("default", "a/b", None, NOW)
    later = "2026-01-02T00:00:01.000000Z"
    await versions.remove("default", "a/b", None, later)
    kept = await database.fetch("select version from noetl.catalog order by version")
    assert [row["version"] for row in kept] == [3]
    assert (await catalog.add(entry(4))).version == 4


async def test_the_token_of_an_account_that_was_closed_is_not_known(database):
    tokens = PostgresTokens(database)
    digest = sha256(b"ntk_1").hexdigest()
    row = {"token_id": "1", "sha256": digest, "account": "anna", "roles": ("admin",)}
    await tokens.put(TokenRow(**row))
    await database.execute("update noetl.account set active = false")
    assert await tokens.find(digest) is None


async def test_a_result_knows_its_execution_and_step(database):
    blobs = PostgresBlobs(database)
    await blobs.put(KEY, b"{}")
    await blobs.put("elsewhere/9", b"{}")
    await blobs.put("execution/not-an-id/result/load/0123abcd", b"{}")
    rows = await database.fetch(
        "select execution_id, source_step, scope from noetl.result order by ref"
    )
    assert [tuple(row) for row in rows] == [
        (None, None, "execution"),
        (331204559102443520, "load/deep", "execution"),
        (None, None, "execution"),
    ]


@pytest.mark.parametrize("is_tiered", [False, True], ids=["rows", "tiers"])
async def test_what_is_put_again_while_it_is_collected_stays(database, is_tiered):
    tiers = TieredBlobs(database, MemoryBlobs(), Ids(SystemClock()), "test")
    blobs = tiers.placing("object") if is_tiered else PostgresBlobs(database)
    results, now = PostgresResults(database), rfc3339(SystemClock().now())
    ends = "update noetl.result set expires_at = now() - interval '1 day', scope = 'step'"
    await blobs.put(KEY, b"{}")
    await database.execute(ends)
    await blobs.put(KEY, b"{}")  # of the two wishes of whoever keeps a value, the first
    assert await results.forget_expired(now) == []
    await database.execute(ends)
    async with database.connection() as held, held.transaction():
        await held.execute("update noetl.result set expires_at = null, scope = 'execution'")
        collecting = asyncio.create_task(results.forget_expired(now))
        done, _ = await asyncio.wait([collecting], timeout=0.2)
        assert not done
    assert await collecting == []
    assert await blobs.get(KEY) == b"{}"
    await database.execute(ends)
    (gone,) = await results.forget_expired(now)
    assert (gone.key, gone.object_key is not None) == (KEY, is_tiered)


async def test_a_row_that_is_renewed_while_the_old_are_deleted_stays(database):
    upkeep, now = PostgresUpkeep(database), rfc3339(SystemClock().now())
    for key in ("renewed", "old"):
        await database.execute(
            "insert into noetl.subscription_dedup (scope, dedup_key, execution_id, expires_at)"
            " values ('a', $1, 1, now() - interval '1 day')",
            key,
        )
    async with database.connection() as held, held.transaction():
        await held.execute(
            "update noetl.subscription_dedup set expires_at = now() + interval '1 day'"
            " where dedup_key = 'renewed'"
        )
        purging = asyncio.create_task(upkeep.purge("dedup", now))
        done, _ = await asyncio.wait([purging], timeout=0.2)
        assert not done
    assert await purging == 1
    assert await database.fetchval("select dedup_key from noetl.subscription_dedup") == "renewed"


async def test_bytes_that_changed_are_noticed(database):
    blobs = PostgresBlobs(database)
    await blobs.put(KEY, b"x" * (CHUNK_BYTES + 1))
    for damage in ("overlay(body placing '\\x00' from 9)", "substring(body from 1 for 5)", "''"):
        await blobs.put(KEY, b"x" * (CHUNK_BYTES + 1))
        await database.execute(f"update noetl.result set body = {damage}")  # noqa: S608 - ours
        with pytest.raises(BlobDamaged):
            await blobs.get(KEY)
        with pytest.raises(BlobDamaged):
            async for _ in blobs.get_stream(KEY):
                pass


async def test_bytes_that_are_replaced_while_they_are_read_are_never_mixed(database):
    blobs = PostgresBlobs(database)
    await blobs.put(KEY, b"a" * (5 * CHUNK_BYTES))
    stream = blobs.get_stream(KEY)
    assert await anext(stream) == b"a" * CHUNK_BYTES
    await blobs.put(KEY, b"b" * (5 * CHUNK_BYTES))
    for _ in range(3):  # what was fetched already
        assert await anext(stream) == b"a" * CHUNK_BYTES
    with pytest.raises(BlobGone):
        await anext(stream)


async def test_more_than_a_row_is_meant_for_is_refused(database):
    blobs = PostgresBlobs(database)

    async def endless():
        while True:
            yield bytes(8 * 1024 * 1024)

    with pytest.raises(BlobTooLarge) as caught:
        await blobs.put_stream(KEY, endless())
    assert (caught.value.code, caught.value.status) == ("body_too_large", 413)
    with pytest.raises(BlobTooLarge):
        await blobs.put(KEY, bytes(LARGEST_BYTES + 1))
    assert await blobs.listed() == []
