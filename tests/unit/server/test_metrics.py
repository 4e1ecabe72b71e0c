"""The numbers of a server."""

from __future__ import annotations

import asyncio
import re

from noetl.api.executions import Control
from noetl.api.http import AsgiTransport
from noetl.engine.events import KINDS
from noetl.server.metrics import ServerMetrics
from noetl.store.errors import DatabaseGone
from tests.unit.server.rig import ONE_STEP, TWO_STEPS, rig, virtually

NAMES = """
events_ingested_total event_ingest_duration_seconds event_ingest_phase_seconds ingest_batch_events
ingest_queue_depth ingest_conflicts_total write_requests_total write_request_duration_seconds
execute_outcomes_total execute_batch_size executions_active executions_finished_total
execution_duration_seconds commit_duration_seconds commands_processed_total
command_claim_duration_seconds commands_pending command_publish_total command_dispatch_seconds
command_late_total lease_lost_total sweeper_republished_total stalled_total timer_lag_seconds
timers_due timers_fired_total schedule_fires_total outbox_pending outbox_oldest_seconds
outbox_published_total outbox_failed_total engine_fold_seconds engine_decide_seconds
engine_decisions_total engine_errors_total result_store_put_total result_store_resolve_total
sse_streams auth_total db_pool_size db_pool_in_use db_pool_waiting partition_default_rows shard_up
log_lines_total
"""


async def shown(r) -> str:
    return (await AsgiTransport(r.server.asgi).request("GET", "/metrics")).body.decode()


@virtually
async def test_a_fresh_server_shows_every_series_at_zero() -> None:
    async with rig() as r:
        text = await shown(r)
        for name in NAMES.split():
            assert re.search(rf"^noetl_{name}(_bucket|_count|{{| )", text, re.MULTILINE), name
        for kind in KINDS:
            assert f'noetl_events_ingested_total{{event_type="{kind}",status="late"}} 0.0' in text
        assert 'noetl_server_build_info{version="' in text
        assert 'noetl_write_requests_total{code="2xx",endpoint="/api/execute"} 0.0' in text
        assert 'noetl_executions_active{status="RUNNING"} 0.0' in text
        assert "process_resident_memory_bytes" in text


@virtually
async def test_runs_and_writes_are_counted_and_ids_never_named() -> None:
    async with rig() as r:
        execution_id = await r.start(ONE_STEP)
        await r.client.cancel(execution_id, Control())
        text = await shown(r)
        assert 'noetl_write_requests_total{code="2xx",endpoint="/api/execute"} 1.0' in text
        cancel = 'endpoint="/api/executions/{execution_id}/cancel"'
        assert f'noetl_write_requests_total{{code="2xx",{cancel}}} 1.0' in text
        assert execution_id not in text
        assert "noetl_shard_up" in text


@virtually
async def test_what_the_store_counts_is_asked_once_in_five_seconds() -> None:
    async with rig() as r:
        await shown(r)
        await r.start(ONE_STEP)
        assert 'noetl_commands_pending{pool="shared"} 0.0' in await shown(r)
        await asyncio.sleep(5)
        text = await shown(r)
        assert 'noetl_commands_pending{pool="shared"} 1.0' in text
        assert 'noetl_executions_active{status="RUNNING"} 1.0' in text


@virtually
async def test_a_store_that_is_away_is_a_number_too() -> None:
    async with rig() as r:

        async def away() -> dict[str, int]:
            raise DatabaseGone("away")

        r.store.executions.counted = away
        assert 'noetl_shard_up{shard="0"} 0.0' in await shown(r)


def test_classes_of_answers_and_ends_of_runs_are_counted() -> None:
    metrics = ServerMetrics()
    metrics.wrote("/api/x", 503, 0.1)
    metrics.commit_duration.observe(0.002)
    metrics.finished("FAILED", 12.0)
    assert metrics.write_requests.value("/api/x", "5xx") == 1
    assert metrics.executions_finished.value("FAILED") == 1
    assert metrics.commit_duration.count() == 1


@virtually
async def test_a_run_is_counted_at_every_place_that_it_passes() -> None:
    async with rig() as r:
        waiting = asyncio.create_task(r.claim(wait_seconds=20))
        await asyncio.sleep(1)
        await r.start(TWO_STEPS)
        (first,) = await waiting
        (second,) = (await r.done(first, slots=1)).claimed
        event = r.event(second, "call.done", result=1)
        for _ in range(2):
            await r.report(event)
        m = r.plane.metrics
        assert m.events_ingested.value("call.done", "stored") == 2
        assert m.events_ingested.value("call.done", "duplicate") == 1
        assert m.execute_outcomes.value("api", "started") == 1
        assert m.command_publish.value("parked", "shared") == 1
        assert m.command_publish.value("reply", "shared") == 1
        assert m.command_dispatch.count("shared") == 2
        assert m.commands_processed.value("shared", "COMPLETED") == 2
        assert m.executions_finished.value("COMPLETED") == 1
        assert m.engine_decisions.value("command.issued") == 2
        assert m.engine_decide.count() == m.engine_fold.count() == 4
        assert m.event_ingest_phase.count("commit") == m.commit_duration.count() == 3
        assert m.ingest_batch_events.count() == 3
        assert m.event_ingest_duration.count() > 3


@virtually
async def test_a_command_that_waited_is_counted_with_its_time() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        await asyncio.sleep(40)
        await r.claim()
        m = r.plane.metrics
        assert m.command_dispatch.quantile(0.5, "shared") >= 10
        assert m.command_claim_duration.count() == 1
