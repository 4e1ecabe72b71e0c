"""What every store does with the versions of a document; a backend is the fixture `store`."""

import asyncio
from hashlib import sha256

import pytest

from noetl.store.base import CatalogEntry, CatalogListing
from noetl.store.errors import NotNewest
from noetl.store.versions import Removed
from tests.conformance.store_suite import Run, at

ONE, OTHER = "default", "acme"
PATH = "a/b"


def entry(number, path=PATH, tenant_id=ONE, text=None, **fields):
    known = {
        "catalog_id": str(number),
        "path": path,
        "version": 0,
        "kind": "playbook",
        "content": text or f"text {number}",
        "digest": sha256((text or str(number)).encode()).hexdigest(),
        "created_at": at(number),
        "created_by": "anna",
        "message": f"why {number}",
        "tenant_id": tenant_id,
    }
    return CatalogEntry(**(known | fields))


async def filled(store, count=3, **fields):
    return [await store.catalog.add(entry(n, **fields)) for n in range(1, count + 1)]


async def meaning(store, path=PATH, tenant_id=ONE):
    found = await store.catalog.resolve(tenant_id, path)
    return None if found is None else found.version


async def used(store, catalog_id, count=1, first=900):
    for number in range(count):
        run = Run(f"{first + number}")
        await run.write(store, row={"catalog_id": catalog_id})


class VersionsSuite:
    async def test_versions_are_told_newest_first_with_their_runs(self, store):
        await filled(store)
        await used(store, "1", 2)
        await used(store, "3", 1, first=950)
        rows = await store.versions.page(ONE, PATH)
        assert [(row.version, row.execution_count, row.active) for row in rows] == [
            (3, 1, True), (2, 0, False), (1, 2, False),
        ]  # fmt: skip
        first = rows[-1]
        assert (first.catalog_id, first.kind, first.created_by) == ("1", "playbook", "anna")
        assert (first.message, first.created_at, first.archived_at) == ("why 1", at(1), None)
        assert first.digest == entry(1).digest

    async def test_versions_come_in_pages(self, store):
        await filled(store, 5)
        pages, before = [], None
        while page := await store.versions.page(ONE, PATH, 2, before):
            pages.append([row.version for row in page])
            before = page[-1].version
        assert pages == [[5, 4], [3, 2], [1]]

    async def test_a_version_may_come_without_becoming_the_meaning(self, store):
        await store.catalog.add(entry(1), activate=False)
        assert await meaning(store) is None
        await store.catalog.add(entry(2))
        await store.catalog.add(entry(3), activate=False)
        assert await meaning(store) == 2
        assert await store.catalog.listed(ONE, CatalogListing()) == [await store.catalog.get("2")]
        rows = await store.versions.page(ONE, PATH)
        assert [row.active for row in rows] == [False, True, False]

    async def test_promoting_rolls_back_and_forward(self, store):
        await filled(store)
        assert await store.versions.promote(ONE, PATH, 1)
        assert await meaning(store) == 1
        assert (await store.catalog.resolve(ONE, PATH, 3)).catalog_id == "3"
        assert await store.versions.promote(ONE, PATH, 3)
        assert await meaning(store) == 3
        again = await store.catalog.add(entry(9, text="3"))
        assert (again.version, again.catalog_id) == (3, "3")

    async def test_the_newest_text_again_does_not_undo_a_rollback(self, store):
        await filled(store)
        await store.versions.promote(ONE, PATH, 1)
        await store.catalog.add(entry(9, text="3"))
        assert await meaning(store) == 1

    @pytest.mark.parametrize("version", [0, -1, 4, 1 << 40])
    async def test_what_is_not_there_is_not_promoted(self, store, version):
        await filled(store)
        assert not await store.versions.promote(ONE, PATH, version)
        assert not await store.versions.promote(ONE, "nowhere", 1)
        assert not await store.versions.promote(OTHER, PATH, 1)
        assert await meaning(store) == 3

    async def test_an_archived_version_is_found_by_its_id_only(self, store):
        rows = await filled(store)
        assert await store.versions.archive(ONE, PATH, 3, at(50)) == (3,)
        assert await store.catalog.resolve(ONE, PATH, 3) is None
        assert (await store.catalog.get("3")).archived_at == at(50)
        assert (await store.catalog.get("3")).content == rows[2].content
        assert not await store.versions.promote(ONE, PATH, 3)
        assert await store.versions.archive(ONE, PATH, 3, at(60)) == ()

    async def test_the_path_means_again_what_it_meant_before(self, store):
        await filled(store)
        await store.versions.promote(ONE, PATH, 1)
        await store.versions.archive(ONE, PATH, 1, at(50))
        assert await meaning(store) == 3
        assert await store.versions.restore(ONE, PATH, 1) == (1,)
        assert await meaning(store) == 1
        assert await store.versions.restore(ONE, PATH, 1) == ()

    async def test_a_version_that_never_was_the_meaning_does_not_become_it(self, store):
        await store.catalog.add(entry(1))
        await store.catalog.add(entry(2), activate=False)
        await store.versions.archive(ONE, PATH, 1, at(50))
        assert await meaning(store) is None
        await store.versions.restore(ONE, PATH, None)
        assert await meaning(store) == 1

    async def test_all_versions_are_put_away_and_brought_back(self, store):
        await filled(store)
        assert await store.versions.archive(ONE, PATH, None, at(50)) == (1, 2, 3)
        assert await meaning(store) is None
        assert await store.catalog.listed(ONE, CatalogListing()) == []
        shown = await store.catalog.listed(ONE, CatalogListing(include_archived=True))
        assert [row.version for row in shown] == [3]
        every = CatalogListing(include_archived=True, all_versions=True)
        assert len(await store.catalog.listed(ONE, every)) == 3
        assert await store.versions.restore(ONE, PATH, None) == (1, 2, 3)
        assert await meaning(store) == 3

    async def test_the_text_of_an_archived_version_is_registered_anew(self, store):
        await filled(store, 2)
        await store.versions.archive(ONE, PATH, None, at(50))
        again = await store.catalog.add(entry(9, text="2"))
        assert (again.version, again.catalog_id, await meaning(store)) == (3, "9", 3)

    async def test_versions_with_runs_are_archived_and_others_removed(self, store):
        await filled(store)
        await used(store, "2")
        gone = await store.versions.remove(ONE, PATH, None, at(50))
        assert gone == Removed(deleted=(1, 3), archived=(2,))
        assert [row.version for row in await store.versions.page(ONE, PATH)] == [2]
        assert (await store.catalog.get("2")).archived_at == at(50)
        assert (await store.catalog.get("3")).removed_at == at(50)
        assert await store.versions.remove(ONE, PATH, None, at(60)) == Removed()
        assert await store.versions.restore(ONE, PATH, None) == (2,)
        assert await meaning(store) == 2

    async def test_one_version_is_removed(self, store):
        await filled(store)
        assert await store.versions.remove(ONE, PATH, 3, at(50)) == Removed(deleted=(3,))
        assert await meaning(store) == 2
        assert await store.catalog.resolve(ONE, PATH, 3) is None
        assert not await store.versions.promote(ONE, PATH, 3)
        assert await store.versions.remove(ONE, PATH, 7, at(50)) == Removed()
        assert await store.versions.remove(ONE, PATH, 1 << 40, at(50)) == Removed()
        assert await store.versions.remove(ONE, "nowhere", None, at(50)) == Removed()

    async def test_the_number_of_a_removed_version_is_not_given_again(self, store):
        await filled(store)
        await store.versions.remove(ONE, PATH, None, at(50))
        again = await store.catalog.add(entry(9, text="3"))
        assert (again.version, await meaning(store)) == (4, 4)

    async def test_a_document_is_written_on_top_of_the_newest_only(self, store):
        await store.catalog.add(entry(1), if_version=0)
        with pytest.raises(NotNewest, match="is 1, not 0"):
            await store.catalog.add(entry(2), if_version=0)
        with pytest.raises(NotNewest):
            await store.catalog.add(entry(2, text="1"), if_version=7)
        second = await store.catalog.add(entry(2), if_version=1)
        assert second.version == 2

    async def test_of_writers_at_once_one_is_first(self, store):
        await store.catalog.add(entry(1))
        writers = (store.catalog.add(entry(n), if_version=1) for n in range(2, 9))
        ended = await asyncio.gather(*writers, return_exceptions=True)
        kept = [one for one in ended if isinstance(one, CatalogEntry)]
        assert [one.version for one in kept] == [2]
        assert all(isinstance(one, NotNewest) for one in ended if one not in kept)

    async def test_promotions_at_once_leave_one_meaning(self, store):
        await filled(store, 6)
        await asyncio.gather(*(store.versions.promote(ONE, PATH, n) for n in range(1, 7)))
        rows = await store.versions.page(ONE, PATH)
        assert sum(row.active for row in rows) == 1


class TenantsSuite:
    async def test_each_tenant_has_paths_of_its_own(self, store):
        ours = await store.catalog.add(entry(1))
        theirs = await store.catalog.add(entry(2, tenant_id=OTHER))
        assert (ours.version, theirs.version) == (1, 1)
        assert await store.catalog.resolve(ONE, PATH) == ours
        assert await store.catalog.resolve(OTHER, PATH) == theirs
        assert await store.catalog.resolve("nobody", PATH) is None
        assert await store.catalog.listed(OTHER, CatalogListing()) == [theirs]
        assert await store.versions.archive(OTHER, PATH, None, at(5)) == (1,)
        assert await meaning(store) == 1
        assert (await store.catalog.get("2")).tenant_id == OTHER


class SearchSuite:
    @staticmethod
    async def filled(store):
        about = [
            ("etl/orders", {"name": "Orders", "tags": ["Nightly", "sales"]}),
            ("etl/parts", {"name": "parts", "description": "What the NIGHT shift needs"}),
            ("tests/orders", {"name": "t", "tests": "etl/orders", "gate": True}),
            ("zoo", {}),
        ]
        for number, (path, meta) in enumerate(about, 1):
            kind = "playbook_test" if "tests" in meta else "playbook"
            await store.catalog.add(entry(number, path, meta=meta, kind=kind))

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ({"q": "night"}, ["etl/orders", "etl/parts"]),
            ({"q": "ORDERS"}, ["etl/orders", "tests/orders"]),
            ({"q": "sales", "path_prefix": "etl/"}, ["etl/orders"]),
            ({"q": "gate"}, []),
            ({"path_prefix": "etl"}, ["etl/orders", "etl/parts"]),
            ({"path_prefix": "z"}, ["zoo"]),
            ({"tests": "etl/orders", "kind": "playbook_test"}, ["tests/orders"]),
            ({"tests": "etl/parts"}, []),
        ],
    )
    @pytest.mark.parametrize("all_versions", [False, True])
    @pytest.mark.parametrize("include_archived", [False, True])
    async def test_words_are_looked_for(self, store, wanted, found, all_versions, include_archived):
        await self.filled(store)
        listing = CatalogListing(
            all_versions=all_versions, include_archived=include_archived, **wanted
        )
        rows = await store.catalog.listed(ONE, listing)
        assert [row.path for row in rows] == found

    async def test_the_text_is_told_only_when_it_is_wanted(self, store):
        await self.filled(store)
        rows = await store.catalog.listed(ONE, CatalogListing(with_content=False))
        assert {row.content for row in rows} == {""}

    @pytest.mark.parametrize("all_versions", [False, True])
    async def test_pages_with_archived_ones_have_no_gap(self, store, all_versions):
        await self.filled(store)
        await store.catalog.add(entry(9, "etl/orders"))
        await store.versions.archive(ONE, "etl/orders", None, at(50))
        await store.versions.archive(ONE, "zoo", None, at(50))

        def listing(**more):
            return CatalogListing(include_archived=True, all_versions=all_versions, **more)

        whole = await store.catalog.listed(ONE, listing())
        pages, after = [], None
        while page := await store.catalog.listed(ONE, listing(limit=1, after=after)):
            pages += page
            after = (page[-1].path, page[-1].version)
        assert pages == whole
        assert len(whole) == (5 if all_versions else 4)
