"""Rotation of the key: resumable, counted by class, and nobody notices."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.credentials import CredentialPut, KeychainPut, RotateKek
from noetl.secrets.kek.local import LocalKek, make_key
from noetl.secrets.wallet import Wallet, version_of
from noetl.store.memory.store import MemoryStore
from tests.servers import ENCRYPTION_KEY
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import CANARY, SystemTime, scene

FLOW = 'workflow:\n  - {step: start, tool: {kind: python, code: "return 1"}}\n'
NEW = make_key()
BOTH = f"{NEW},{ENCRYPTION_KEY}"
ROWS = 40


class Killed(Exception):
    """The process was killed."""


class Fragile:
    """Records of a store whose process is killed after some writes."""

    def __init__(self, records, writes):
        self._records = records
        self._writes = writes
        self.page = records.page

    async def swap(self, table, changes):
        if self._writes == 0:
            raise Killed
        self._writes -= 1
        return await self._records.swap(table, changes)


async def filled(store, rows=ROWS):
    async with scene(store=store) as s:
        for number in range(rows):
            await s.client.put_credential(
                CredentialPut(
                    name=f"c{number}", type="secret", data={"value": f"{CANARY}-{number}"}
                )
            )
        await s.claimed(FLOW)
        document = (await s.client.execution(s.run)).catalog_id
        await s.client.put_keychain(document, "x", KeychainPut(data={"a": CANARY}))
        await s.r.plane.secrets.inputs.keep("default", s.run, {"pin": CANARY})
        return document, s.run


async def readable(s, rows=ROWS):
    for number in range(rows):
        shown = await s.client.credential(f"c{number}", reveal=True)
        assert shown.data == {"value": f"{CANARY}-{number}"}


@virtually
async def test_every_record_comes_under_the_new_key_and_a_second_time_nothing_is_done() -> None:
    store = MemoryStore()
    document, run = await filled(store)
    async with scene(BOTH, store=store) as s:
        before = await s.client.key_status()
        assert [one.is_current for one in before.tables["credential"]] == [False]
        done = await s.client.rotate_kek(RotateKek(batch_size=7))
        assert done.is_done
        assert {name: one.rewrapped for name, one in done.tables.items()} == {
            "credential": ROWS, "keychain": 1, "execution_secret": 1,
        }  # fmt: skip
        again = await s.client.rotate_kek(RotateKek())
        assert {name: one.skipped for name, one in again.tables.items()} == {
            "credential": ROWS, "keychain": 1, "execution_secret": 1,
        }  # fmt: skip
        status = await s.client.key_status()
        assert {one.rows for one in status.tables["credential"]} == {ROWS}
    async with scene(NEW, store=store) as s:
        await readable(s)
        shown = await s.client.keychain_entry(document, "x", include_data="true")
        assert shown.data == {"a": CANARY}
        assert await s.r.plane.secrets.inputs.of("default", run) == {"pin": CANARY}


@virtually
async def test_a_rotation_that_is_killed_halfway_goes_on_and_all_stays_readable() -> None:
    store = MemoryStore()
    await filled(store)
    async with scene(BOTH, store=store) as s:
        rotation = s.r.plane.secrets.rotation
        rotation._records = Fragile(store.records, writes=2)  # noqa: SLF001 - killed in its midst
        with pytest.raises(Killed):
            await rotation.rotate(RotateKek(batch_size=10))
    versions = [version_of(one.record) for one in await store.records.page("credential")]
    assert {versions.count(one) for one in set(versions)} == {20}
    async with scene(BOTH, store=store) as s:
        reading = asyncio.create_task(readable(s))
        done = await s.client.rotate_kek(RotateKek(batch_size=10))
        await reading
        assert done.tables["credential"].rewrapped == 20
        assert done.tables["credential"].skipped == 20
        assert done.is_done
    async with scene(NEW, store=store) as s:
        await readable(s)


@virtually
async def test_batches_are_counted_by_what_they_change_so_that_the_next_call_goes_on() -> None:
    store = MemoryStore()
    await filled(store)
    async with scene(BOTH, store=store) as s:
        for expected in (20, 20, 0):
            done = await s.client.rotate_kek(RotateKek(batch_size=10, max_batches=2))
            assert done.tables["credential"].rewrapped == expected
        assert done.is_done


@virtually
async def test_damaged_records_are_counted_by_class_and_stop_nothing() -> None:
    store = MemoryStore()
    await filled(store, 3)
    rows = store.credentials
    replace = msgspec.structs.replace
    first, second = [await rows.get("default", name) for name in ("c0", "c1")]
    await rows.put(replace(first, data_encrypted="plain text"))
    stranger = Wallet(LocalKek(make_key()), SystemTime())
    await rows.put(replace(second, data_encrypted=await stranger.seal(b"{}", "elsewhere")))
    async with scene(BOTH, store=store) as s:
        done = (await s.client.rotate_kek(RotateKek())).tables["credential"]
        assert (done.processed, done.rewrapped) == (3, 1)
        assert done.failed == {
            "parse_error": 1, "failed_unwrap": 1, "failed_wrap": 0, "failed_write": 0,
        }  # fmt: skip
        assert (await s.client.key_status()).unreadable["credential"] == 1
