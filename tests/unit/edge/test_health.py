"""Pages of a worker, its numbers, and its reasons."""

import asyncio
import json
import re

import pytest

from noetl.api.events import LogLine
from noetl.api.http import NoAnswer
from noetl.api.sockets import SocketTransport
from noetl.clock import SystemClock
from noetl.edge.health import Health, serving
from noetl.tools.noop import NoopTool
from noetl.worker.backlog import Backlog
from noetl.worker.metrics import WorkerMetrics
from noetl.worker.shelf import OutboxDamaged
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, refusal

SERIES = (
    "pulls_total", "pull_duration_seconds", "claim_succeeded_total", "claim_failed_total",
    "claim_dead_lettered_total", "claim_to_start_seconds", "concurrent_dispatches", "slots",
    "dispatch_duration_seconds", "dispatch_errors_total", "event_emit_duration_seconds",
    "event_emit_retries_total", "event_emit_failed_total", "report_batch_size", "outbox_events",
    "outbox_bytes", "outbox_lines", "lease_lost_total", "cancelled_total", "cancel_overrun_total",
    "parked_total", "command_loop_reconnect_total", "result_store_put_total",
    "result_store_put_bytes", "children", "child_recycled_total", "sandbox_level",
    "log_dropped_total", "plugin_load_seconds", "plugin_warm_total", "tool_result_error_total",
    "redactions_total", "ready", "build_info", "foreign_pool_total",
)  # fmt: skip


async def page(health, path, method="GET"):
    async with serving(health, "127.0.0.1:0") as port:
        transport = SocketTransport(f"http://127.0.0.1:{port}")
        await transport.request("GET", "/livez")
        answer = await transport.request(method, path)
        await transport.close()
    return answer.status, answer.body


def health(*reasons):
    return Health(lambda: reasons, lambda: b"numbers", {"version": "1"})


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/livez", 200, {"status": "ok"}),
        ("/healthz", 200, {"status": "ok", "version": "1"}),
        ("/readyz", 503, {"ready": False, "reasons": ["draining"]}),
        ("/readyz?x=1", 503, {"ready": False, "reasons": ["draining"]}),
        ("/nowhere", 404, None),
    ],
)
async def test_pages(path, status, body):
    found, raw = await page(health("draining"), path)
    assert found == status
    if body is not None:
        assert json.loads(raw) == body


async def test_a_ready_worker_and_its_numbers():
    assert await page(health(), "/readyz") == (200, b'{"ready":true,"reasons":[]}')
    assert await page(health(), "/metrics") == (200, b"numbers")
    assert (await page(health(), "/metrics", "POST"))[0] == 405


async def test_what_is_no_request_ends_the_connection():
    async with serving(health(), "127.0.0.1:0") as port:
        for told, status in ((b"nonsense\r\n\r\n", b"400"), (b"x" * 20_000, b"431")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(told)
            assert status in await reader.readline()
            writer.close()
            await writer.wait_closed()


async def test_a_page_that_fails_is_an_answer():
    def broken():
        raise ValueError("x")

    assert (await page(Health(tuple, broken, {}), "/metrics"))[0] == 500


def test_every_series_is_there_from_the_start():
    text = WorkerMetrics("shared", ["noop", "python"]).render().decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    for name in SERIES:
        assert f"noetl_worker_{name}" in names, name
        assert re.search(rf"^noetl_worker_{name}\S* ", text, re.MULTILINE), name
    for name in ("noetl_http_requests_total", "noetl_container_jobs_total"):
        assert name in names
    values = {line.rsplit(" ", 1)[1] for line in text.splitlines()
              if line.startswith("noetl_") and "build_info" not in line}  # fmt: skip
    assert values == {"0.0"}
    assert "execution_id" not in text


class Children:
    class counts:  # noqa: N801 - stands for an object
        started = 3
        retired = {"died": 1}  # noqa: RUF012 - as above

    class sandbox:  # noqa: N801 - as above
        level = "namespaces"


async def test_numbers_follow_the_work():
    meters, server = WorkerMetrics("shared", ["noop"]), FakeServer()
    server.fail("claim", refusal(429, "overloaded", retry_after=0.01))
    server.fail("report", refusal(503, retry_after=0.01))
    server.offer(server.command(), server.command())
    async with Stage(server, NoopTool(), meters=meters) as stage:
        meters.follow(stage.worker, "shared", Children)
        await server.finals(2)
        await stage.worker.reporter.flushed()
        text = meters.render().decode()
    for line in (
        'noetl_worker_dispatch_duration_seconds_count{tool_kind="noop"} 2.0',
        'noetl_worker_claim_succeeded_total{via="poll"} 2.0',
        'noetl_worker_claim_failed_total{code="overloaded"} 1.0',
        "noetl_worker_event_emit_retries_total 1.0",
        'noetl_worker_event_emit_duration_seconds_count{event_type="call.done"} 2.0',
        'noetl_worker_slots{pool="shared"} 16.0',
        'noetl_worker_children{state="alive"} 2.0',
        "noetl_worker_sandbox_level 2.0",
        "noetl_worker_ready 1.0",
    ):
        assert line in text, line


async def test_lines_on_the_disk_and_a_file_of_them_that_was_set_aside_are_counted(tmp_path):
    (tmp_path / "logs.db").write_bytes(b"this is no database" * 100)
    meters, server = WorkerMetrics("shared", ["noop"]), FakeServer()
    server.fail("log", *(NoAnswer("gone") for _ in range(100)))
    backlog = Backlog(tmp_path, SystemClock())
    with pytest.raises(OutboxDamaged):
        await backlog.open()
    line = LogLine(execution_id="81", command_id="c1", attempt=1, n=0, ts="", text="x")
    await backlog.keep([(line, 257)])
    async with Stage(server, NoopTool(), meters=meters, backlog=backlog) as stage:
        meters.follow(stage.worker, "shared", Children)
        text = meters.render().decode()
    await backlog.close()
    for told in ("noetl_worker_outbox_lines 1.0", "noetl_worker_outbox_damaged_total 1.0"):
        assert told in text


async def test_reasons_are_named():
    server = FakeServer()
    server.fail("claim", refusal(401, retry_after=0.05))
    async with Stage(server, Scripted()) as stage:
        assert stage.worker.reasons == ("not_registered",)
        await server.until(lambda: bool(server.claims))
        await asyncio.sleep(0)
        assert stage.worker.reasons == ("token_refused", "no_claims")
        await server.until(lambda: len(server.claims) == 2)
        server.offer(server.command())
        await server.finals()
        async with asyncio.timeout(10):
            while stage.worker.reasons:  # noqa: ASYNC110 - the answer is on its way
                await asyncio.sleep(0.01)
        stage.worker.drain()
        assert stage.worker.reasons == ("draining",)
