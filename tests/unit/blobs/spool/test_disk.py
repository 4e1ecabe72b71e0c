"""Files of a spool: who may read them, what a crash leaves, and what a full disk does."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from noetl.blobs.spool.base import Listed, Size, SpoolError, SpoolLocked
from noetl.blobs.spool.disk import DiskStore
from noetl.blobs.spool.item import Item
from tests.reliability.volumes import Lacking, disk, small
from tests.unit.blobs.spool.samples import PLACE, Hands, item, spool_of

KEY = PLACE.waiting + item(1).name
ROOT = Path(__file__).parents[4]
CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from noetl.blobs.spool.disk import DiskStore
from tests.unit.blobs.spool.samples import PLACE, item

async def main(folder, step, group):
    async def reached(now):
        if now == step and is_last:
            os.kill(os.getpid(), signal.SIGKILL)
    is_last = False
    store = DiskStore(Path(folder), reached)
    await store.hold(PLACE.folder)
    for number in range(1, 4):
        await store.put_new(PLACE.waiting + item(number).name, item(number).encode())
        print(number, flush=True)
    is_last = True
    await asyncio.gather(*(
        store.put_new(PLACE.waiting + item(n).name, item(n).encode()) for n in range(4, 4 + group)
    ))
    print("all", flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def test_files_are_for_their_owner_only(tmp_path):
    store = DiskStore(tmp_path / "spool")
    await store.hold(PLACE.folder)
    await store.put_new(KEY, b"x")
    await store.put(PLACE.dead + "a.json", b"x")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "spool").rglob("*")}
    files = [path for path in (tmp_path / "spool").rglob("*") if path.is_file()]
    assert modes == {0o600, 0o700}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    await store.close()


async def test_a_folder_is_used_by_one_at_a_time(tmp_path):
    first, second = DiskStore(tmp_path), DiskStore(tmp_path)
    await first.hold(PLACE.folder)
    with pytest.raises(SpoolLocked) as caught:
        await second.hold(PLACE.folder)
    assert caught.value.code == "spool_locked"
    await second.hold("default/subscriptions/others/")
    await first.close()
    await second.hold(PLACE.folder)
    await second.close()


async def test_unfinished_files_are_not_listed_and_are_removed_at_the_start(tmp_path):
    store = DiskStore(tmp_path)
    await store.put_new(KEY, b"x")
    left = tmp_path / PLACE.waiting / "left.tmp"
    left.write_bytes(b"hal")
    assert await store.list(PLACE.waiting) == [Listed(KEY, 1)]
    assert await store.size(PLACE.waiting) == Size(1, 1)
    await store.hold(PLACE.folder)
    assert not left.exists()
    assert await store.get(KEY) == b"x"
    await store.close()


@pytest.mark.parametrize("step", ["begun", "synced", "placed", "kept"])
@pytest.mark.parametrize("group", [1, 40])
async def test_24_a_torn_file_never_exists_after_sigkill(tmp_path, step, group):
    child = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CHILD, str(tmp_path), step, str(group)],
        cwd=ROOT,
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert (child.returncode, child.stderr) == (-signal.SIGKILL, b"")
    assert child.stdout.split() == [b"1", b"2", b"3"]
    store = DiskStore(tmp_path)
    await store.hold(PLACE.folder)
    there = [one.key for one in await store.list(PLACE.waiting)]
    stored = [Item.decode(await store.get(key)) for key in there]
    written = range(1, 4) if step in {"begun", "synced"} else range(1, 4 + group)
    assert stored == [item(number) for number in written]
    assert list(tmp_path.rglob("*.tmp")) == []
    spool, _ = spool_of(store)
    assert await spool.recover() == len(stored)
    await store.close()


async def test_25_a_disk_that_refuses_stores_nothing_and_is_used_again_unaided(
    tmp_path, monkeypatch
):
    store = DiskStore(tmp_path)
    spool, told = spool_of(store)
    await spool.put(item(1))
    real = os.fsync

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    outcomes = await asyncio.gather(
        *(spool.put(item(number)) for number in (2, 3)), return_exceptions=True
    )
    assert [(type(fault), str(fault)) for fault in outcomes] == [
        (SpoolError, "the disk of the spool is full")
    ] * 2
    monkeypatch.setattr(os, "fsync", real)
    assert [path.name for path in (tmp_path / PLACE.waiting).iterdir()] == [item(1).name]
    await spool.put(item(2))
    assert (spool.pending(), len(told)) == (2, 2)


async def test_25_a_folder_that_cannot_be_synced_keeps_no_new_file(tmp_path, monkeypatch):
    store = DiskStore(tmp_path)
    await store.put_new(KEY, b"x")
    real = os.fsync

    def full(handle):
        if _kind(handle) == "folder":
            raise OSError(errno.EIO, "Input/output error")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    other = PLACE.waiting + item(2).name
    for put in (store.put_new(KEY, b"x"), store.put(KEY, b"x"), store.put_new(other, b"y")):
        with pytest.raises(SpoolError, match="Input/output error"):
            await put
    assert (await store.get(KEY), await store.get(other)) == (b"x", None)


async def test_25_on_a_volume_that_is_full_nothing_is_half_written(tmp_path):
    async with AsyncExitStack() as stack:
        try:
            volume = await stack.enter_async_context(small(tmp_path / "volume", 1))
        except Lacking as lack:
            pytest.skip(f"no volume can be mounted here: {lack}")
        store = DiskStore(volume.folder / "spool")
        await store.hold(PLACE.folder)
        spool, _ = spool_of(store)
        await spool.put(item(1))
        volume.fill()
        with pytest.raises(SpoolError, match="full"):
            await spool.put(item(2))
        assert spool.pending() == 1
        assert [path.name for path in (volume.folder / "spool" / PLACE.waiting).iterdir()] == [
            item(1).name
        ]
        volume.free()
        await spool.put(item(2))
        assert [one.key[-8:] for one in await store.list(PLACE.waiting)] == [
            item(n).name[-8:] for n in (1, 2)
        ]
        await store.close()


async def test_what_was_stored_survives_a_power_cut(tmp_path):
    (tmp_path / "disk").mkdir()
    async with disk(tmp_path / "disk", 24) as made:
        store = DiskStore(tmp_path / "disk" / "spool")
        await asyncio.gather(
            *(store.put_new(PLACE.waiting + item(n).name, item(n).encode()) for n in range(1, 51))
        )
        await made.back(await made.cut())
        found = [one.key for one in await store.list(PLACE.waiting)]
        assert found == [PLACE.waiting + item(number).name for number in range(1, 51)]
        for number, key in enumerate(found, 1):
            assert Item.decode(await store.get(key)) == item(number)


async def test_writers_at_once_share_the_syncs_of_their_folder(tmp_path, monkeypatch):
    store = DiskStore(tmp_path)
    await store.put_new(KEY, b"x")
    real, synced = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(_kind(handle)), real(handle)))
    puts = (store.put_new(PLACE.waiting + item(n).name, b"x") for n in range(2, 102))
    await asyncio.gather(*puts)
    assert synced.count("file") == 100
    assert synced.count("folder") <= 2


def _kind(handle):
    return "folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file"  # noqa: PTH112 - a link of the kernel


async def test_who_goes_away_while_it_is_written_leaves_it_whole_or_not_there(tmp_path):
    store = DiskStore(tmp_path)
    writing = asyncio.create_task(store.put_new(KEY, b"x" * 1000))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await store.close()
    assert await store.get(KEY) in {None, b"x" * 1000}
    await store.put(KEY, b"y")
    assert await store.get(KEY) == b"y"


async def test_many_names_are_listed_in_order_over_many_looks(tmp_path, monkeypatch):
    monkeypatch.setattr("noetl.blobs.spool.names.MOST_KEPT", 7)
    folder = tmp_path / PLACE.waiting
    folder.mkdir(parents=True)
    for number in range(50):
        (folder / f"{number * 7919 % 50:020d}-x.json").write_bytes(b"1")
    store, found, after = DiskStore(tmp_path), [], ""
    while page := await store.list(PLACE.waiting, after, 3):
        found += [one.key for one in page]
        after = page[-1].key
    assert found == [f"{PLACE.waiting}{number:020d}-x.json" for number in range(50)]


async def test_a_link_to_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / PLACE.waiting).mkdir(parents=True)
    (tmp_path / KEY).symlink_to(tmp_path / "secret")
    store = DiskStore(tmp_path)
    with pytest.raises(SpoolError):
        await store.get(KEY)
    assert list(await store.list(PLACE.waiting)) == []


async def test_the_clock_of_a_spool_may_be_turned(tmp_path):
    clock = Hands()
    spool, _ = spool_of(DiskStore(tmp_path), clock, max_age_s=3600.0)
    await spool.put(item(1))
    clock.turn(3660)
    await spool.tidy()
    assert (spool.pending(), spool.dead_letters.size.items) == (0, 1)
