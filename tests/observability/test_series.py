"""Every series of the contract is there from the start, at 0, with the labels that it names."""

from __future__ import annotations

import re

import pytest

from noetl.api.http import AsgiTransport
from noetl.dsl.tasks.errors import ERROR_KINDS
from noetl.intake.metrics import IntakeMetrics
from noetl.server.metrics import ServerMetrics
from noetl.telemetry.metrics import Histogram, Metrics
from noetl.worker.metrics import WorkerMetrics
from tests.unit.server.rig import TWO_STEPS, rig, virtually

# As spec/server.md 3.4 and spec/quality.md 7 write them.
SERVER = """
events_ingested_total{event_type,status} event_ingest_duration_seconds
event_ingest_phase_seconds{phase} ingest_batch_events ingest_queue_depth ingest_conflicts_total
write_requests_total{endpoint,code} write_request_duration_seconds{endpoint}
execute_outcomes_total{entry,outcome} execute_batch_size executions_active{status}
executions_finished_total{status} execution_duration_seconds{status} commit_duration_seconds
commands_processed_total{pool,outcome} command_claim_duration_seconds commands_pending{pool}
command_publish_total{route,pool} command_dispatch_seconds{pool} command_late_total
lease_lost_total{pool} sweeper_republished_total stalled_total timer_lag_seconds timers_due
timers_fired_total{kind} schedule_fires_total{outcome} outbox_pending{shard}
outbox_oldest_seconds{shard} outbox_published_total{outcome} outbox_failed_total
engine_fold_seconds engine_decide_seconds engine_decisions_total{event_type} engine_errors_total
dsl_diagnostics_total{code} events_projected_total events_projected_duplicates_total
container_callback_total{state} container_callback_stale_total{state}
result_store_put_total{store} result_store_resolve_total{outcome} sse_streams
credentials_sealed_total{outcome} secret_resolve_total{provider,outcome} secret_audit_writes_total
wallet_rotate_total{table,status} auth_total{outcome} db_pool_size{pool} db_pool_in_use{pool}
db_pool_waiting{pool} partition_default_rows cleanup_rows_purged_total{table}
nats_consumer_lag{pool} shard_up{shard} log_lines_total{level}
"""
# As spec/worker.md A10 and spec/quality.md 7 write them.
WORKER = """
worker_pulls_total{outcome} worker_pull_duration_seconds worker_claim_succeeded_total{via}
worker_claim_failed_total{code} worker_claim_dead_lettered_total worker_claim_to_start_seconds
worker_concurrent_dispatches worker_slots{pool} worker_dispatch_duration_seconds{tool_kind}
worker_dispatch_errors_total{tool_kind,error_kind} worker_event_emit_duration_seconds{event_type}
worker_event_emit_retries_total worker_event_emit_failed_total worker_report_batch_size
worker_outbox_events worker_outbox_bytes worker_lease_lost_total worker_cancelled_total{via}
worker_cancel_overrun_total worker_parked_total{reason}
worker_command_loop_reconnect_total{reason} worker_result_store_put_total{outcome}
worker_result_store_put_bytes worker_children{state} worker_child_recycled_total{reason}
worker_sandbox_level worker_log_dropped_total worker_plugin_load_seconds{phase}
worker_plugin_warm_total{outcome} worker_tool_result_error_total{tool_kind}
worker_redactions_total{sink} worker_ready worker_foreign_pool_total
subscription_messages_fetched_total{source} container_jobs_total{runtime,state}
http_requests_total{status_class} http_blocked_total{reason} log_lines_total{level}
"""
# As spec/subscriptions.md 8.2 and 10 write them; every one has the label `subscription`.
LISTENER = """
subscription_messages_received_total{subscription}
subscription_executions_total{subscription,outcome}
subscription_acked_total{subscription} subscription_nacked_total{subscription}
subscription_directives_applied_total{subscription,controls}
subscription_directives_refused_total{subscription,reason}
subscription_spooled_total{subscription,reason} subscription_replayed_total{subscription}
subscription_dead_lettered_total{subscription,reason} subscription_spool_bytes{subscription}
subscription_spool_items{subscription} subscription_spool_oldest_seconds{subscription}
subscription_spool_foreign_total{subscription} subscription_circuit{subscription,downstream}
subscription_circuit_transitions_total{subscription,downstream,to}
subscription_batch_dispatch_total{subscription} subscription_batch_messages_total{subscription}
subscription_rate_limited_total{subscription} subscription_in_flight{subscription}
subscription_source_backlog{subscription} subscription_audit_dropped_total{subscription}
"""
# What only says something where a server has a store and a bus of its own.
NOT_ZERO = ("noetl_shard_up", "noetl_auth_total")
SAMPLE = re.compile(r"^(noetl_\w+)(\{.*\})? (\S+)$", re.MULTILINE)
ID = re.compile(r"\d{15,}")


def wanted(text: str) -> dict[str, tuple[str, ...]]:
    """Names and labels of a list of the contract."""
    found = re.findall(r"([a-z_]+)(?:\{([a-z_,]+)\})?(?=\s)", text)
    return {f"noetl_{name}": tuple(filter(None, labels.split(","))) for name, labels in found}


def worker() -> WorkerMetrics:
    return WorkerMetrics("shared", ("http", "python"))


def listener() -> Metrics:
    made = Metrics("subscription", "1")
    for series in IntakeMetrics(("a/b",)).series:
        made.add(series)
    return made


@pytest.mark.parametrize(
    ("metrics", "contract"),
    [(ServerMetrics().all, SERVER), (worker()._metrics, WORKER), (listener(), LISTENER)],  # noqa: SLF001 - every series
    ids=["server", "worker", "listener"],
)
def test_every_series_of_the_contract_has_its_labels(metrics, contract) -> None:
    made = {name: set(one.labels) for name, one in metrics._series.items()}  # noqa: SLF001 - every series
    told = {name: made.get(name) for name in wanted(contract)}
    assert told == {name: set(labels) for name, labels in wanted(contract).items()}


@virtually
async def test_a_fresh_server_shows_every_label_set_at_zero() -> None:
    async with rig() as r:
        text = (await AsgiTransport(r.server.asgi).request("GET", "/metrics")).body.decode()
    assert re.search(r'^noetl_server_build_info\{version="\d', text, re.MULTILINE)
    shown = SAMPLE.findall(text)
    bare = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _, _ in shown}
    assert set(wanted(SERVER)) - bare - {name for name, _, _ in shown} == set()
    counted = [
        (name, labels, value) for name, labels, value in shown
        if float(value) and not name.startswith(("noetl_server_build", *NOT_ZERO))
    ]  # fmt: skip
    assert counted == []


def test_a_fresh_worker_shows_every_label_set_at_zero() -> None:
    text = worker().render().decode()
    assert re.search(r'^noetl_worker_build_info\{version="\d', text, re.MULTILINE)
    shown = SAMPLE.findall(text)
    bare = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _, _ in shown}
    assert set(wanted(WORKER)) - bare - {name for name, _, _ in shown} == set()
    counted = [row for row in shown if float(row[2]) and "build_info" not in row[0]]
    assert counted == []
    for kind in ERROR_KINDS:
        sample = f'{{error_kind="{kind}",tool_kind="http"}} 0.0'
        assert f"noetl_worker_dispatch_errors_total{sample}" in text


def test_a_fresh_listener_shows_every_label_set_at_zero() -> None:
    text = listener().render().decode()
    shown = SAMPLE.findall(text)
    assert set(wanted(LISTENER)) - {name for name, _, _ in shown} == set()
    assert [row for row in shown if float(row[2]) and "build_info" not in row[0]] == []


@virtually
async def test_no_label_is_an_id_after_a_run() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (command,) = await r.claim()
        (second,) = (await r.done(command, slots=1)).claimed
        await r.done(second)
        text = (await AsgiTransport(r.server.asgi).request("GET", "/metrics")).body.decode()
    assert run not in text
    assert [row for row in SAMPLE.findall(text) if ID.search(row[1])] == []


def test_every_histogram_ends_with_a_bound_that_nothing_passes_unseen() -> None:
    for one in ServerMetrics().all._series.values():  # noqa: SLF001 - every series
        if isinstance(one, Histogram):
            assert list(one._bounds) == sorted(one._bounds), one.name  # noqa: SLF001 - as above
