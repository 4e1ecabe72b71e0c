"""What every store does with sealed secrets: credentials, the keychain, inputs, all records."""

import asyncio

import msgspec

from noetl.store.secrets import (
    CredentialListing,
    CredentialRow,
    KeychainRow,
    SealedRecord,
)
from tests.conformance.store_suite import RUN, at

replace = msgspec.structs.replace
TENANT = "default"


def credential(number, name, **more):
    return CredentialRow(
        id=str(number), tenant_id=more.pop("tenant_id", TENANT), name=name, type="postgres",
        data_encrypted=f"record {number}", created_at=at(1), updated_at=at(1), **more,
    )  # fmt: skip


def value(number, name="token", catalog_id="7", **more):
    usual = {"data_encrypted": f"record {number}", "expires_at": at(600), "created_at": at(1)}
    return KeychainRow(
        id=str(number), cache_key=f"{name}:{catalog_id}:global", keychain_name=name,
        catalog_id=catalog_id,
        **(usual | more),
    )  # fmt: skip


class CredentialsSuite:
    async def test_a_credential_comes_back_by_name_and_by_id(self, store):
        row = credential(
            5, "pg/main", meta={"b": 1, "a": [None, 1.5, "é\0"]}, tags=("x", "y"),
            description="the main one", region="eu",
        )  # fmt: skip
        assert await store.credentials.put(row) == row
        assert await store.credentials.get(TENANT, "pg/main") == row
        assert await store.credentials.by_id(TENANT, "5") == row
        assert list((await store.credentials.get(TENANT, "pg/main")).meta) == ["b", "a"]

    async def test_another_tenant_sees_nothing_of_it(self, store):
        await store.credentials.put(credential(5, "pg"))
        assert await store.credentials.get("other", "pg") is None
        assert await store.credentials.by_id("other", "5") is None
        assert await store.credentials.listed("other", CredentialListing(limit=9)) == []
        assert await store.credentials.delete("other", "5") is False
        twin = credential(6, "pg", tenant_id="other")
        assert await store.credentials.put(twin) == twin

    async def test_a_name_belongs_to_one_id(self, store):
        first = credential(5, "pg")
        await store.credentials.put(first)
        assert await store.credentials.put(credential(6, "pg")) is None
        later = replace(first, type="nats", data_encrypted="new", updated_at=at(9))
        kept = await store.credentials.put(replace(later, created_at=at(9)))
        assert kept == later
        assert await store.credentials.get(TENANT, "pg") == later

    async def test_lists_are_by_name_filtered_and_without_records(self, store):
        for number, name in enumerate(("b", "B", "a", "c/x"), 1):
            await store.credentials.put(credential(number, name, description=f"Of {name}"))
        await store.credentials.put(replace(credential(9, "z"), type="nats"))

        async def names(**asked):
            rows = await store.credentials.listed(TENANT, CredentialListing(limit=9, **asked))
            assert {row.data_encrypted for row in rows} <= {""}
            return [row.name for row in rows]

        assert await names() == ["B", "a", "b", "c/x", "z"]
        assert await names(after="a") == ["b", "c/x", "z"]
        assert await names(type="nats") == ["z"]
        assert await names(q="OF B") == ["B", "b"]
        assert await names(q="/") == ["c/x"]
        assert await names(q="%") == []
        rows = await store.credentials.listed(TENANT, CredentialListing(limit=2))
        assert [row.name for row in rows] == ["B", "a"]

    async def test_a_deleted_credential_is_gone_and_its_name_free(self, store):
        await store.credentials.put(credential(5, "pg"))
        assert await store.credentials.delete(TENANT, "5") is True
        assert await store.credentials.delete(TENANT, "5") is False
        assert await store.credentials.get(TENANT, "pg") is None
        assert await store.credentials.put(credential(6, "pg")) == credential(6, "pg")


class KeychainSuite:
    async def test_a_value_comes_back_and_keeps_id_and_counts_when_it_is_new(self, store):
        row = value(5, renew_config={"b": 1, "a": 2}, auto_renew=True, execution_id="33")
        assert await store.keychain.put(row) == row
        assert await store.keychain.get(row.cache_key) == row
        await store.keychain.touch({row.cache_key: 3, "nobody": 1}, at(2))
        counted = replace(row, accessed_at=at(2), access_count=3)
        assert await store.keychain.get(row.cache_key) == counted
        newer = replace(counted, data_encrypted="new", expires_at=at(900), auto_renew=False)
        given = value(8, data_encrypted="new", expires_at=at(900), created_at=at(5),
                      renew_config={"b": 1, "a": 2}, execution_id="33")  # fmt: skip
        assert await store.keychain.put(given) == newer
        assert await store.keychain.get(row.cache_key) == newer

    async def test_values_of_a_document_are_listed_by_key_without_records(self, store):
        for number, name in enumerate(("b", "a", "c"), 1):
            await store.keychain.put(value(number, name))
        await store.keychain.put(value(9, "other", "8"))
        rows = await store.keychain.listed("7")
        assert [(row.keychain_name, row.data_encrypted) for row in rows] == [
            ("a", ""), ("b", ""), ("c", "")
        ]  # fmt: skip
        rows = await store.keychain.listed("7", after="a:7:global", limit=1)
        assert [row.keychain_name for row in rows] == ["b"]

    async def test_what_ends_soon_is_found_in_that_order(self, store):
        await store.keychain.put(value(1, "late", expires_at=at(90)))
        await store.keychain.put(value(2, "soon", expires_at=at(30), auto_renew=True))
        await store.keychain.put(value(3, "first", expires_at=at(10)))
        await store.keychain.put(value(4, "never", expires_at=None, auto_renew=True))

        async def names(**asked):
            return [row.keychain_name for row in await store.keychain.expiring(at(60), **asked)]

        assert await names() == ["first", "soon"]
        assert await names(limit=1) == ["first"]
        assert await names(renews=True) == ["soon"]
        assert await names(after=at(10)) == ["soon"]
        assert await names(after=at(30)) == []

    async def test_a_deleted_value_is_gone(self, store):
        row = await store.keychain.put(value(5))
        assert await store.keychain.delete(row.cache_key) is True
        assert await store.keychain.delete(row.cache_key) is False
        assert await store.keychain.get(row.cache_key) is None

    async def test_retention_takes_what_has_ended_and_is_not_renewed(self, store):
        await store.keychain.put(value(1, "old", expires_at=at(10)))
        await store.keychain.put(value(2, "renewed", expires_at=at(10), auto_renew=True))
        await store.keychain.put(value(3, "live", expires_at=at(90)))
        assert await store.upkeep.purge("keychain", at(60), is_dry=True) == 1
        assert await store.upkeep.purge("keychain", at(60)) == 1
        assert [row.keychain_name for row in await store.keychain.listed("7")] == [
            "live", "renewed",
        ]  # fmt: skip


class TurnsSuite:
    async def test_one_holder_has_the_turn_of_a_key_until_it_is_given_back(self, store):
        turns = store.turns
        assert await turns.take("k", "one", now=at(0), until=at(20))
        assert not await turns.take("k", "two", now=at(10), until=at(30))
        assert await turns.take("k", "one", now=at(10), until=at(25))
        assert await turns.take("other", "two", now=at(10), until=at(30))
        await turns.leave("k", "two")
        assert not await turns.take("k", "two", now=at(24), until=at(40))
        await turns.leave("k", "one")
        assert await turns.take("k", "two", now=at(24), until=at(40))

    async def test_a_turn_ends_by_itself_and_is_then_left_to_the_next(self, store):
        turns = store.turns
        assert await turns.take("k", "one", now=at(0), until=at(20))
        assert await turns.take("k", "two", now=at(20), until=at(40))
        await turns.leave("k", "one")
        assert not await turns.take("k", "one", now=at(30), until=at(50))

    async def test_of_many_who_ask_at_once_one_gets_it(self, store):
        asking = [
            store.turns.take("k", f"h{number}", now=at(0), until=at(20)) for number in range(8)
        ]
        assert sum(await asyncio.gather(*asking)) == 1


class ExecutionSecretsSuite:
    async def test_records_come_back_by_name_and_are_replaced(self, store):
        secrets = store.execution_secrets
        await secrets.put(RUN, {"a": "record a", "b/é": "record b"})
        await secrets.put(RUN, {"a": "newer"})
        await secrets.put(RUN, {})
        assert await secrets.get(RUN) == {"a": "newer", "b/é": "record b"}
        assert await secrets.get("999") == {}


class RecordsSuite:
    @staticmethod
    async def keys(store, table, **asked):
        return [one.key for one in await store.records.page(table, **asked)]

    async def test_pages_go_through_every_table_in_one_order(self, store):
        for number in (30, 4, 100):
            await store.credentials.put(credential(number, f"c{number}"))
            await store.keychain.put(value(number, f"k{number}"))
            await store.execution_secrets.put(str(number), {"b": "r", "a/x": "r"})
        assert await self.keys(store, "credential") == ["4", "30", "100"]
        assert await self.keys(store, "credential", after="4", limit=1) == ["30"]
        assert await self.keys(store, "keychain", limit=2) == ["k100:7:global", "k30:7:global"]
        assert await self.keys(store, "keychain", after="k30:7:global") == ["k4:7:global"]
        assert await self.keys(store, "execution_secret") == [
            "4/a/x", "4/b", "30/a/x", "30/b", "100/a/x", "100/b"
        ]  # fmt: skip
        assert await self.keys(store, "execution_secret", after="4/b", limit=1) == ["30/a/x"]
        assert await self.keys(store, "credential", after="100") == []

    async def test_a_record_is_swapped_only_while_it_is_the_same(self, store):
        for number in (4, 5):
            await store.credentials.put(credential(number, f"c{number}"))
            await store.keychain.put(value(number, f"k{number}"))
            await store.execution_secrets.put(str(number), {"a/x": f"record {number}"})
        for table in ("credential", "keychain", "execution_secret"):
            first, second = await store.records.page(table)
            changed = SealedRecord(key=second.key, record="was changed meanwhile")
            done = await store.records.swap(table, [(first, "new"), (changed, "lost")])
            assert done == [first.key]
            assert await store.records.page(table) == [
                SealedRecord(key=first.key, record="new"), second
            ]  # fmt: skip
