"""The outbox alone: order, limits, modes of files, damage."""

import sqlite3

import pytest

from noetl.api.events import Report
from noetl.clock import SystemClock
from noetl.worker.outbox import Kept, Outbox
from noetl.worker.shelf import OutboxDamaged, OutboxFull


def kept(number, size=10, **more):
    report = Report(
        execution_id="81", event_id=str(number), event_type="call.done", step="s",
        command_id=f"c{number}", attempt=1, payload={"result": {"n": number}},
    )  # fmt: skip
    return Kept(report=report, size_bytes=size, **more)


@pytest.fixture
async def outbox(tmp_path):
    made = Outbox(tmp_path / "w", 1000, SystemClock())
    await made.open()
    yield made
    await made.close()


async def numbers(outbox, most=256, most_bytes=1 << 20):
    return [int(item.report.event_id) for item in await outbox.oldest(most, most_bytes)]


async def test_reports_come_back_in_order_and_as_they_were(outbox):
    await outbox.keep([kept(3), kept(1)])
    await outbox.keep([kept(2, is_last_word=True)])
    found = await outbox.oldest(10, 1 << 20)
    assert found == [kept(3), kept(1), kept(2, is_last_word=True)]
    assert (outbox.events, outbox.size_bytes, outbox.share) == (3, 30, 0.03)
    await outbox.drop(["3", "1"])
    assert await numbers(outbox) == [2]


async def test_a_report_is_kept_once(outbox):
    await outbox.keep([kept(1)])
    await outbox.keep([kept(1), kept(2)])
    assert await numbers(outbox) == [1, 2]


async def test_what_is_asked_for_is_bounded_but_never_nothing(outbox):
    await outbox.keep([kept(1, size=100), kept(2, size=100), kept(3)])
    assert await numbers(outbox, most_bytes=10) == [1]
    assert await numbers(outbox, most_bytes=200) == [1, 2]
    assert await numbers(outbox, most=1) == [1]


async def test_the_next_run_finds_what_the_last_one_left(tmp_path):
    first = Outbox(tmp_path, 1000, SystemClock())
    await first.open()
    await first.keep([kept(1)])
    await first.close()
    second = Outbox(tmp_path, 1000, SystemClock())
    await second.open()
    assert (second.events, await numbers(second)) == (1, [1])
    await second.close()


async def test_only_its_owner_reads_it(outbox, tmp_path):
    await outbox.keep([kept(1)])
    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "w").iterdir()}
    assert modes == {0o600}


async def test_a_damaged_file_is_set_aside_and_a_new_one_is_there(tmp_path):
    (tmp_path / "outbox.db").write_bytes(b"this is no database" * 100)
    outbox = Outbox(tmp_path, 1000, SystemClock())
    with pytest.raises(OutboxDamaged):
        await outbox.open()
    assert (outbox.damaged, outbox.events) == (1, 0)
    await outbox.keep([kept(1)])
    assert await numbers(outbox) == [1]
    assert len(list(tmp_path.glob("outbox.corrupt-2*"))) == 1
    await outbox.close()


async def test_a_row_that_makes_no_sense_is_damage(outbox, tmp_path):
    await outbox.keep([kept(1), kept(2)])
    with sqlite3.connect(tmp_path / "w" / "outbox.db") as other:
        other.execute("UPDATE report SET body = 'x'")
    other.close()
    with pytest.raises(OutboxDamaged) as caught:
        await outbox.oldest(10, 10)
    assert (caught.value.events, outbox.events) == (2, 0)


async def test_a_full_disk_takes_all_or_nothing(outbox):
    await outbox.keep([kept(1)])
    pages = outbox._database.execute("PRAGMA page_count").fetchone()[0]  # noqa: SLF001 - the disk of this test
    outbox._database.execute(f"PRAGMA max_page_count={pages}")  # noqa: SLF001 - as above
    large = [kept(number) for number in range(2, 500)]
    with pytest.raises(OutboxFull):
        await outbox.keep(large)
    assert await numbers(outbox) == [1]
    outbox._database.execute("PRAGMA max_page_count=100000")  # noqa: SLF001 - as above
    await outbox.keep(large)
    assert outbox.events == 499
