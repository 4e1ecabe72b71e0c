"""A worker whose server goes away: its reports lie on the disk and arrive once, in order."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from noetl.api.http import NoAnswer
from noetl.clock import SystemClock
from noetl.worker.outbox import Outbox
from noetl.worker.parcels import Parcels
from noetl.worker.shelf import OutboxFull
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, refusal
from tests.unit.worker.test_outbox import kept

GONE = NoAnswer("gone")


@asynccontextmanager
async def opened(folder, most_bytes=1 << 20, kind=Outbox):
    made = kind(folder, most_bytes, SystemClock())
    await made.open()
    try:
        yield made
    finally:
        await made.close()


class Away(FakeServer):
    """A server that takes no reports until it is told to."""

    def __init__(self, *args):
        super().__init__(*args)
        self.is_back = asyncio.Event()
        self.tries = 0
        self.tried = asyncio.Event()

    async def report(self, body):
        if not self.is_back.is_set():
            self.tries += 1
            self.tried.set()
            raise GONE
        return await super().report(body)


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - the disk has no event
            await asyncio.sleep(0.005)


async def test_reports_lie_on_the_disk_until_the_server_is_back(tmp_path):
    server = Away()
    server.offer(*(server.command(execution_id=str(81 + n % 2)) for n in range(6)))
    async with opened(tmp_path) as outbox, Stage(server, slots=8, outbox=outbox) as stage:
        await until(lambda: outbox.events == 12)
        assert not server.reports
        assert not stage.worker.reporter.quiet.is_set()
        server.is_back.set()
        await server.finals(6)
        await until(lambda: outbox.events == 0)
        server.offer(server.command())
        await server.finals(7)
    ids = [report.event_id for report in server.reports]
    assert len(ids) == len(set(ids)) == 14
    for number in range(6):
        assert server.told(f"c{number + 1}") == ["command.started", "call.done"]


async def test_nothing_is_claimed_while_the_outbox_holds_something(tmp_path):
    async with opened(tmp_path) as outbox:
        await outbox.keep([kept(1), kept(2)])
        server = Away()
        server.offer(server.command())
        async with Stage(server, outbox=outbox):
            await server.tried.wait()
            assert server.claims == []
            server.is_back.set()
            await until(lambda: bool(server.claims))
            told = [report.event_id for report in server.reports]
    assert told[:2] == ["1", "2"]
    assert server.batches[0].free_slots == 0


async def test_a_start_that_must_be_known_waits_for_the_server(tmp_path):
    server, tool = Away(), Scripted({"n": 1})
    server.offer(server.command(idempotent=False))
    async with opened(tmp_path) as outbox, Stage(server, tool, outbox=outbox):
        await until(lambda: outbox.events == 1)
        assert not tool.contexts
        server.is_back.set()
        await server.finals()
    assert server.told("c1") == ["command.started", "call.done"]


async def test_a_denied_worker_keeps_its_reports(tmp_path):
    server = FakeServer()
    server.fail("report", refusal(401, retry_after=0.05))
    server.offer(server.command())
    async with opened(tmp_path) as outbox, Stage(server, outbox=outbox) as stage:
        await server.finals()
        await until(lambda: outbox.events == 0)
        await until(lambda: not stage.worker.reporter.is_denied)


class FullDisk(Outbox):
    """A disk that is full while a test says so."""

    is_full = True

    async def keep(self, items):
        if self.is_full:
            raise OutboxFull("no space left")
        await super().keep(items)


async def test_a_full_disk_leaves_reports_in_memory_and_says_so(tmp_path):
    server = Away()
    server.offer(server.command())
    async with opened(tmp_path, kind=FullDisk) as outbox, Stage(server, outbox=outbox) as stage:
        await server.tried.wait()
        await until(lambda: "outbox_full" in stage.worker.reasons)
        assert outbox.events == 0
        outbox.is_full = False
        await until(lambda: outbox.events == 2)
        await until(lambda: "outbox_full" not in stage.worker.reasons)
        server.is_back.set()
        await server.finals()


async def test_reports_of_a_full_disk_still_arrive(tmp_path):
    server = Away()
    server.offer(server.command())
    async with opened(tmp_path, kind=FullDisk) as outbox, Stage(server, outbox=outbox) as stage:
        await until(lambda: "outbox_full" in stage.worker.reasons)
        server.is_back.set()
        await server.finals()
        await until(lambda: "outbox_full" not in stage.worker.reasons)
    assert server.told("c1") == ["command.started", "call.done"]


async def test_an_outbox_that_overflows_cancels_what_runs(tmp_path):
    server = Away()
    tool = Scripted("x" * 2000, lambda _: asyncio.sleep(60))
    server.offer(server.command(), server.command())
    async with opened(tmp_path, most_bytes=3000) as outbox, Stage(server, tool, outbox=outbox) as s:
        await until(lambda: outbox.share >= 0.9)
        await until(lambda: s.worker.running == 0)
        server.is_back.set()
        await server.finals()
    assert server.told("c2") in ([], ["command.started"])


async def test_a_file_that_breaks_is_told_and_the_worker_goes_on(tmp_path, caplog):
    server = Away()
    server.offer(server.command())
    async with opened(tmp_path) as outbox, Stage(server, outbox=outbox) as stage:
        await until(lambda: outbox.events == 2)
        outbox._database.execute("UPDATE report SET body = 'x'")  # noqa: SLF001 - the damage
        stage.worker.reporter._batch = None  # noqa: SLF001 - as after a start
        server.is_back.set()
        await until(lambda: stage.worker.reporter.spill.lost == 2)
        server.offer(server.command())
        await server.finals()
    assert "the outbox is damaged" in caplog.text


async def test_a_refused_report_on_the_disk_is_found_and_told(tmp_path):
    server = Away()
    server.offer(*(server.command() for _ in range(4)))
    async with opened(tmp_path) as outbox, Stage(server, outbox=outbox):
        await until(lambda: outbox.events == 8)
        server.fail("report", refusal(422), refusal(422), refusal(422), refusal(422))
        server.is_back.set()
        await until(lambda: outbox.events == 0)
        await server.until(lambda: len(server.ended) >= 4)
    assert sorted({report.command_id for report in server.ended}) == ["c1", "c2", "c3", "c4"]


async def test_what_is_unsent_at_the_end_is_on_the_disk(tmp_path):
    server = FakeServer()
    server.gate = asyncio.Event()  # it never answers
    server.offer(server.command())
    async with opened(tmp_path) as outbox:
        async with Stage(server, outbox=outbox) as stage:
            await server.until(lambda: bool(server.batches))
            stage.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stage.task
        assert outbox.events == 2


LARGE = "x" * 200_000


class Unstored(Away):
    """A server that is away for large values too."""

    async def put_result(self, *args, **wishes):
        if not self.is_back.is_set():
            raise GONE
        return await super().put_result(*args, **wishes)


async def test_a_large_result_lies_beside_the_outbox_until_the_server_is_back(tmp_path):
    server, folder = Unstored(), tmp_path / "results"
    server.offer(server.command())
    parcels = Parcels(folder, server)
    async with (
        opened(tmp_path) as outbox,
        Stage(server, Scripted(LARGE), outbox=outbox, parcels=parcels) as stage,
    ):
        await until(lambda: outbox.events == 2)
        modes = [file.stat().st_mode & 0o777 for file in folder.iterdir()]
        running = stage.worker.running
        server.is_back.set()
        (report,) = await server.finals()
        await until(lambda: not list(folder.iterdir()))
    assert (modes, running) == ([0o600], 0)
    reference = report.payload["reference"]
    assert msgspec.json.decode(server.objects[reference["ref"]]) == LARGE


WISHES = """- step: s
  tool: {kind: noop}
  output:
    scope: permanent
    preview_max_bytes: 7
    as: report
    store: {kind: object, ttl: "{{ workload.days }}d", compression: zstd}
"""


@pytest.mark.parametrize("is_away", [True, False])
async def test_what_the_author_wishes_goes_with_a_result_also_when_it_waits(tmp_path, is_away):
    server = Unstored(WISHES)
    server.offer(server.command(bindings={"workload": {"days": 2}}))
    if not is_away:
        server.is_back.set()
    parcels = Parcels(tmp_path / "results", server)
    async with (
        opened(tmp_path) as outbox,
        Stage(server, Scripted(LARGE), outbox=outbox, parcels=parcels),
    ):
        if is_away:
            await until(lambda: outbox.events == 2)
            server.is_back.set()
        await server.finals()
    (wishes,) = server.wishes
    assert wishes == {
        "scope": "permanent", "preview": 7, "ttl": 172_800, "store": "object",
        "compression": "zstd", "name": "report",
    }  # fmt: skip


@pytest.mark.parametrize("damage", [b"", b"other bytes"])
async def test_a_large_result_that_is_lost_here_fails_its_command(tmp_path, damage):
    server, folder = Unstored(), tmp_path / "results"
    server.offer(server.command())
    parcels = Parcels(folder, server)
    async with (
        opened(tmp_path) as outbox,
        Stage(server, Scripted(LARGE), outbox=outbox, parcels=parcels),
    ):
        await until(lambda: outbox.events == 2)
        (file,) = folder.iterdir()
        file.write_bytes(damage) if damage else file.unlink()
        server.is_back.set()
        (report,) = await server.finals()
        await until(lambda: outbox.events == 0)
    assert (report.event_type, report.payload["error"]["code"]) == ("call.error", "report_rejected")


def test_files_that_no_report_names_are_cleared(tmp_path):
    (tmp_path / "x").touch()
    Parcels(tmp_path, FakeServer).clear()
    Parcels(tmp_path / "nowhere", FakeServer).clear()
    assert list(tmp_path.iterdir()) == []
