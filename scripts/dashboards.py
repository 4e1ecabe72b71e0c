"""Writes deploy/grafana, or checks it: what operators look at, board by board.

Long because it is the one table of all panels; how a panel is drawn is in `scripts.panels`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.panels import Board, Panel, drawn, mean, quantile, quantiles, rate, share

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = Path(__file__).resolve().parent.parent / "deploy" / "grafana"
_POOL: Final = 'pool=~"$pool"'
_SLOTS: Final = f"noetl_worker_slots{{{_POOL}}}"
_BUSY: Final = (
    "sum by (pool) (noetl_worker_concurrent_dispatches"
    f" * on (job, instance) group_left (pool) ({_SLOTS} > bool 0))"
)
_ERRORS: Final = rate("noetl_worker_dispatch_errors_total", "tool_kind, error_kind")
_CIRCUIT: Final = "increase(noetl_subscription_circuit_transitions_total[1h])"
_CONNECTIONS: Final = "clamp_min(sum by (pool) (noetl_db_pool_size), 1)"
_ENDED: Final = rate("noetl_executions_finished_total")
_FAILED: Final = rate("noetl_executions_finished_total", more='status="FAILED"')
_WRITES: Final = rate("noetl_write_requests_total")
_BROKEN: Final = rate("noetl_write_requests_total", more='code="5xx"')

OVERVIEW: Final = Board(
    "overview",
    "NoETL / Overview",
    "Is the platform well? One look: runs, queue, latency, errors, and what holds work back.",
    (
        ("Now", (
            Panel("Active runs", "short", "Runs that have not ended.",
                  (("sum(max by (status) (noetl_executions_active))", "active"),), "stat", 4, 5),
            Panel("Runs a second", "ops", "Runs that have ended, a second.",
                  ((_ENDED, "ended"),), "stat", 4, 5),
            Panel("Failed runs", "percentunit", "Share of the ended runs that have failed.",
                  ((share(_FAILED, _ENDED), "failed"),), "stat", 4, 5, red_above=0.05),
            Panel("Workers ready", "short", "Workers that take work now.",
                  (("sum(noetl_worker_ready)", "ready"),), "stat", 4, 5),
            Panel("Waiting commands", "short", "Commands that nobody has claimed, in all pools.",
                  (("sum(max by (pool) (noetl_commands_pending))", "pending"),), "stat", 4, 5),
            Panel("Store answers", "short", "1 while every shard answers the servers.",
                  (("min(noetl_shard_up)", "up"),), "stat", 4, 5),
        )),
        ("Runs", (
            Panel("Active runs by status", "short", "PENDING ones wait for a limit or their time.",
                  (("max by (status) (noetl_executions_active)", "{{status}}"),), is_stacked=True),
            Panel("Ended runs by status", "ops", "Ends of runs, a second.",
                  ((rate("noetl_executions_finished_total", "status"), "{{status}}"),)),
            Panel("Failed runs", "percentunit", "Share of the ended runs that have failed.",
                  ((share(_FAILED, _ENDED), "failed"),), red_above=0.05),
        )),
        ("Latency", (
            Panel("Queue by pool", "short", "Commands that nobody has claimed; growing means too "
                  "few workers.", (("max by (pool) (noetl_commands_pending)", "{{pool}}"),)),
            Panel("From issue to claim, p95", "s", "What a step waits for a worker.",
                  ((quantile(0.95, "noetl_command_dispatch_seconds", "pool"), "{{pool}}"),)),
            Panel("Commit", "s", "One commit of the store; it is the floor of every step.",
                  quantiles("noetl_commit_duration_seconds"), red_above=0.25),
            Panel("Write to answer", "s", "From the arrival of a write to its answer.",
                  quantiles("noetl_event_ingest_duration_seconds")),
            Panel("Where that time goes, p95", "s", "Waiting in the queue, deciding, committing.",
                  ((quantile(0.95, "noetl_event_ingest_phase_seconds", "phase"), "{{phase}}"),)),
            Panel("Ingest queue", "short", "Writes that wait; it is refused above 4096.",
                  (("max(noetl_ingest_queue_depth)", "queued"),), red_above=2048),
        )),
        ("Errors", (
            Panel("Writes by class", "reqps", "Answers to writes, a second.",
                  ((rate("noetl_write_requests_total", "code"), "{{code}}"),), is_stacked=True),
            Panel("Failed writes", "percentunit", "Share of writes answered with 5xx.",
                  ((share(_BROKEN, _WRITES), "5xx"),), red_above=0.01),
            Panel("Warnings and errors logged", "cps", "Lines of the logs, a second.",
                  ((rate("noetl_log_lines_total", "job, level", 'level=~"warning|error"'),
                    "{{job}} {{level}}"),)),
        )),
        ("What holds work back", (
            Panel("Timers late, p99", "s", "How late timers fire; above 30 s is an alarm.",
                  ((quantile(0.99, "noetl_timer_lag_seconds"), "p99"),), red_above=30),
            Panel("Oldest message of the outbox", "s", "Above 60 s the bus or a reader is away.",
                  (("max by (shard) (noetl_outbox_oldest_seconds)", "shard {{shard}}"),),
                  red_above=60),
            Panel("Leases lost", "cps", "Attempts whose worker was not heard of in time.",
                  ((rate("noetl_lease_lost_total", "pool"), "{{pool}}"),)),
        )),
        ("Processes", (
            Panel("Processor", "percentunit", "Share of one core, by process.",
                  (("rate(process_cpu_seconds_total[$__rate_interval])", "{{job}} {{instance}}"),)),
            Panel("Memory", "bytes", "Resident memory, by process.",
                  (("process_resident_memory_bytes", "{{job}} {{instance}}"),)),
            Panel("Builds", "short", "How many processes of each version run.",
                  (("sum by (version) (noetl_server_build_info)", "server {{version}}"),
                   ("sum by (version) (noetl_worker_build_info)", "worker {{version}}"),
                   ("sum by (version) (noetl_gateway_build_info)", "gateway {{version}}"))),
        )),
    ),
)  # fmt: skip

EXECUTIONS: Final = Board(
    "executions",
    "NoETL / Executions",
    "Runs in detail: how they start, what they wait for, what the engine does, how they end.",
    (
        ("Starts and ends", (
            Panel("Starts", "ops", "Runs that were asked for, by how and what became of it.",
                  ((rate("noetl_execute_outcomes_total", "entry, outcome"),
                    "{{entry}} {{outcome}}"),)),
            Panel("Duration of runs, p95", "s", "From the start of a run to its end.",
                  ((quantile(0.95, "noetl_execution_duration_seconds", "status"), "{{status}}"),)),
            Panel("Items of one batch", "short", "Runs that one execute/batch asks for.",
                  ((mean("noetl_execute_batch_size"), "mean"),
                   (quantile(0.95, "noetl_execute_batch_size"), "p95"))),
            Panel("Execute, p95", "s", "How long a start takes, seen from the API.",
                  ((quantile(0.95, "noetl_write_request_duration_seconds", "endpoint",
                             'endpoint=~"/api/execute.*"'), "{{endpoint}}"),)),
            Panel("Refused callers", "cps", "Requests by what was said of their token.",
                  ((rate("noetl_auth_total", "outcome"), "{{outcome}}"),)),
            Panel("Event streams", "short", "Readers that follow runs.",
                  (("sum(noetl_sse_streams)", "open"),)),
        )),
        ("Ingest", (
            Panel("Events stored", "cps", "The ten most frequent events of reports.",
                  ((f"topk(10, {rate('noetl_events_ingested_total', 'event_type')})",
                    "{{event_type}}"),)),
            Panel("Events not stored", "cps", "Repeated, too late, or refused.",
                  ((rate("noetl_events_ingested_total", "status",
                         'status=~"duplicate|late|rejected"'), "{{status}}"),)),
            Panel("Events of one commit", "short", "Group commit: it grows with the load.",
                  ((mean("noetl_ingest_batch_events"), "mean"),
                   (quantile(0.95, "noetl_ingest_batch_events"), "p95"))),
            Panel("Races lost", "cps", "Runs that another server had written to first.",
                  ((rate("noetl_ingest_conflicts_total"), "lost"),)),
            Panel("Late reports", "cps", "Reports of attempts that had been given up.",
                  ((rate("noetl_command_late_total"), "late"),)),
            Panel("Commands ended", "ops", "By pool and how they ended.",
                  ((rate("noetl_commands_processed_total", "pool, outcome"),
                    "{{pool}} {{outcome}}"),)),
        )),
        ("Engine", (
            Panel("Deciding", "s", "One turn of one run.",
                  quantiles("noetl_engine_decide_seconds")),
            Panel("Folding", "s", "Events of one turn into the state.",
                  quantiles("noetl_engine_fold_seconds")),
            Panel("Decisions", "cps", "The ten most frequent events that the engine decides.",
                  ((f"topk(10, {rate('noetl_engine_decisions_total', 'event_type')})",
                    "{{event_type}}"),)),
            Panel("Defects", "short", "Turns that failed and runs that stood still, in an hour.",
                  (("sum(increase(noetl_engine_errors_total[1h]))", "engine errors"),
                   ("sum(increase(noetl_stalled_total[1h]))", "stalled")), red_above=1),
            Panel("Findings in documents", "short", "The ten most frequent codes, in an hour.",
                  (("topk(10, sum by (code) (increase(noetl_dsl_diagnostics_total[1h])))",
                    "{{code}}"),)),
            Panel("Claims, p95", "s", "One claim that was not parked.",
                  ((quantile(0.95, "noetl_command_claim_duration_seconds"), "p95"),)),
        )),
        ("Time", (
            Panel("Timers fired", "cps", "By what they are for.",
                  ((rate("noetl_timers_fired_total", "kind"), "{{kind}}"),)),
            Panel("Timers late", "s", "Between the time that was set and the event.",
                  quantiles("noetl_timer_lag_seconds"), red_above=30),
            Panel("Schedules", "cps", "Times of schedules that have come.",
                  ((rate("noetl_schedule_fires_total", "outcome"), "{{outcome}}"),)),
        )),
        ("Values and callbacks", (
            Panel("Large values stored", "ops", "By store.",
                  ((rate("noetl_result_store_put_total", "store"), "{{store}}"),)),
            Panel("Large values read", "ops", "By what was found.",
                  ((rate("noetl_result_store_resolve_total", "outcome"), "{{outcome}}"),)),
            Panel("Ends of containers", "cps", "Told in time, and those that no command waits for.",
                  ((rate("noetl_container_callback_total", "state"), "{{state}}"),
                   (rate("noetl_container_callback_stale_total", "state"), "stale {{state}}"))),
            Panel("Imported events", "cps", "From other installations.",
                  ((rate("noetl_events_projected_total"), "new"),
                   (rate("noetl_events_projected_duplicates_total"), "known"))),
            Panel("Old rows deleted", "cps", "By table.",
                  ((rate("noetl_cleanup_rows_purged_total", "table"), "{{table}}"),)),
            Panel("Secrets", "cps", "Looked up, sealed for a worker, and written to the audit.",
                  ((rate("noetl_secret_resolve_total", "provider, outcome"),
                    "{{provider}} {{outcome}}"),
                   (rate("noetl_credentials_sealed_total", "outcome"), "sealed {{outcome}}"),
                   (rate("noetl_secret_audit_writes_total"), "audited"),
                   (rate("noetl_wallet_rotate_total", "table, status"),
                    "rotated {{table}} {{status}}"))),
        )),
    ),
)  # fmt: skip

WORKERS: Final = Board(
    "workers",
    "NoETL / Workers",
    "Pools and their workers: how busy they are, what their tools take, and what goes wrong.",
    (
        ("Room", (
            Panel("Slots in use", "percentunit", "Share of a pool's slots that run a command.",
                  ((f"{_BUSY} / sum by (pool) ({_SLOTS})", "{{pool}}"),), red_above=0.9),
            Panel("Slots", "short", "Commands that may run at once, by pool.",
                  ((f"sum by (pool) ({_SLOTS})", "{{pool}}"),)),
            Panel("Ready", "short", "1 while a worker takes work.",
                  (("noetl_worker_ready", "{{instance}}"),)),
            Panel("Queue by pool", "short", "Commands that nobody has claimed.",
                  ((f"max by (pool) (noetl_commands_pending{{{_POOL}}})", "{{pool}}"),)),
            Panel("From issue to claim, p95", "s", "What a step waits for a worker.",
                  ((quantile(0.95, "noetl_command_dispatch_seconds", "pool", _POOL),
                    "{{pool}}"),)),
            Panel("From claim to start, p95", "s", "What a command waits inside its worker.",
                  ((quantile(0.95, "noetl_worker_claim_to_start_seconds"), "p95"),)),
        )),
        ("Tools", (
            Panel("Duration by kind, p95", "s", "How long commands take.",
                  ((quantile(0.95, "noetl_worker_dispatch_duration_seconds", "tool_kind"),
                    "{{tool_kind}}"),)),
            Panel("Commands by kind", "ops", "Commands that ended, a second.",
                  ((rate("noetl_worker_dispatch_duration_seconds_count", "tool_kind"),
                    "{{tool_kind}}"),)),
            Panel("Failed commands", "percentunit", "Share of a kind's commands that failed.",
                  ((share(rate("noetl_worker_dispatch_errors_total", "tool_kind"),
                          rate("noetl_worker_dispatch_duration_seconds_count", "tool_kind")),
                    "{{tool_kind}}"),)),
            Panel("Errors by kind", "cps", "The ten most frequent.",
                  ((f"topk(10, {_ERRORS})", "{{tool_kind}} {{error_kind}}"),)),
            Panel("Waiting commands", "cps", "Commands that gave their slot back, by reason.",
                  ((rate("noetl_worker_parked_total", "reason"), "{{reason}}"),)),
            Panel("Requests of http steps", "reqps", "By class of answer, and those refused.",
                  ((rate("noetl_http_requests_total", "status_class"), "{{status_class}}"),
                   (rate("noetl_http_blocked_total", "reason"), "blocked {{reason}}"))),
        )),
        ("Claims", (
            Panel("Claimed", "ops", "By the way that the work came.",
                  ((rate("noetl_worker_claim_succeeded_total", "via"), "{{via}}"),)),
            Panel("Not granted", "cps", "By code.",
                  ((rate("noetl_worker_claim_failed_total", "code"), "{{code}}"),)),
            Panel("Requests for work", "reqps", "With work, empty, failed.",
                  ((rate("noetl_worker_pulls_total", "outcome"), "{{outcome}}"),)),
            Panel("Hints that lead nowhere", "cps", "Unknown, of other pools, of other servers.",
                  ((rate("noetl_worker_claim_dead_lettered_total"), "unknown command"),
                   (rate("noetl_worker_hint_senseless_total"), "senseless"),
                   (rate("noetl_worker_foreign_pool_total"), "other pool"),
                   (rate("noetl_worker_foreign_server_total"), "other server"))),
            Panel("Leases lost", "cps", "Seen by workers.",
                  ((rate("noetl_worker_lease_lost_total"), "lost"),)),
            Panel("Stopped", "cps", "Commands stopped, and tools that ignored it.",
                  ((rate("noetl_worker_cancelled_total", "via"), "{{via}}"),
                   (rate("noetl_worker_cancel_overrun_total"), "overrun"))),
        )),
        ("Reports", (
            Panel("Report to answer, p95", "s", "By event.",
                  ((quantile(0.95, "noetl_worker_event_emit_duration_seconds", "event_type"),
                    "{{event_type}}"),)),
            Panel("Events of one request", "short", "Reports that travel together.",
                  ((mean("noetl_worker_report_batch_size"), "mean"),)),
            Panel("Sent again, lost", "cps", "Lost reports are never silent: look at the log.",
                  ((rate("noetl_worker_event_emit_retries_total"), "again"),
                   (rate("noetl_worker_event_emit_failed_total"), "lost"),
                   (rate("noetl_worker_log_dropped_total"), "lines dropped"))),
            Panel("Reports on disk", "short", "While no server takes them.",
                  (("sum by (instance) (noetl_worker_outbox_events)", "{{instance}}"),)),
            Panel("Bytes on disk", "bytes", "Of those reports.",
                  (("sum by (instance) (noetl_worker_outbox_bytes)", "{{instance}}"),)),
            Panel("Large results", "ops", "Stored, refused, kept until the server is back.",
                  ((rate("noetl_worker_result_store_put_total", "outcome"), "{{outcome}}"),)),
        )),
        ("Children", (
            Panel("Child interpreters", "short", "Alive, by worker.",
                  (("noetl_worker_children", "{{instance}} {{state}}"),)),
            Panel("Ended children", "cps", "By reason; `died` is user code that was killed.",
                  ((rate("noetl_worker_child_recycled_total", "reason"), "{{reason}}"),)),
            Panel("Sandbox", "short", "0 limits, 1 a user of its own, 2 namespaces.",
                  (("min by (instance) (noetl_worker_sandbox_level)", "{{instance}}"),)),
            Panel("Ways to the bus made anew", "cps", "By reason.",
                  ((rate("noetl_worker_command_loop_reconnect_total", "reason"), "{{reason}}"),)),
            Panel("Secrets covered", "cps", "By where they would have gone.",
                  ((rate("noetl_worker_redactions_total", "sink"), "{{sink}}"),)),
            Panel("Spans", "cps", "By what became of them, of servers and workers.",
                  ((rate("noetl_trace_spans_total", "job, outcome"), "{{job}} {{outcome}}"),)),
        )),
    ),
    chosen=(("pool", "label_values(noetl_worker_slots, pool)"),),
)  # fmt: skip

SUBSCRIPTIONS: Final = Board(
    "subscriptions",
    "NoETL / Subscriptions",
    "Messages that become runs: how many come, what is set aside, and which way is closed.",
    (
        ("Messages", (
            Panel("Fetched", "cps", "By source.",
                  ((rate("noetl_subscription_messages_fetched_total", "source"), "{{source}}"),)),
            Panel("Received", "cps", "Messages that the runtime has taken on.",
                  ((rate("noetl_subscription_messages_received_total"), "received"),)),
            Panel("Runs", "ops", "Runs that messages started, by outcome.",
                  ((rate("noetl_subscription_executions_total", "outcome"), "{{outcome}}"),)),
            Panel("Failed starts", "percentunit", "Share of starts that came to no run.",
                  ((share(rate("noetl_subscription_executions_total",
                               more='outcome!~"started|duplicate"'),
                          rate("noetl_subscription_executions_total")), "failed"),),
                  red_above=0.05),
            Panel("Backlog", "short", "Messages at the source, and those fetched and not settled.",
                  (("sum by (subscription) (noetl_subscription_source_backlog)",
                    "{{subscription}}"),
                   ("sum by (subscription) (noetl_subscription_in_flight)",
                    "{{subscription}} in flight"))),
            Panel("Batches and limits", "cps", "Batches sent, and messages held by a rate limit.",
                  ((rate("noetl_subscription_batch_dispatch_total"), "batches"),
                   (rate("noetl_subscription_rate_limited_total"), "rate limited"))),
            Panel("Directives", "cps", "Headers that steered a message.",
                  ((rate("noetl_subscription_directives_applied_total", "controls"),
                    "{{controls}}"),)),
        )),
        ("Spool and circuit", (
            Panel("Spooled", "cps", "Messages set aside, by reason.",
                  ((rate("noetl_subscription_spooled_total", "reason"), "{{reason}}"),)),
            Panel("Bytes in the spool", "bytes", "It is full at `retention.max_bytes` of the "
                  "subscription, 1 GiB unless it says otherwise.",
                  (("sum by (subscription) (noetl_subscription_spool_bytes)",
                    "{{subscription}}"),), red_above=858993459),
            Panel("Oldest in the spool", "s", "Age of the message that waits longest.",
                  (("max by (subscription) (noetl_subscription_spool_oldest_seconds)",
                    "{{subscription}}"),)),
            Panel("Circuit", "short", "0 closed, 1 half open, 2 open.",
                  (("max by (subscription, downstream) (noetl_subscription_circuit)",
                    "{{subscription}} {{downstream}}"),), red_above=2),
            Panel("Circuit changes", "short", "In an hour.",
                  ((f"sum by (downstream, to) ({_CIRCUIT})", "{{downstream}} {{to}}"),)),
            Panel("Dead letters", "cps", "Messages given up, by reason.",
                  ((rate("noetl_subscription_dead_lettered_total", "reason"), "{{reason}}"),)),
        )),
    ),
)  # fmt: skip

GATEWAY: Final = Board(
    "gateway",
    "NoETL / Gateway",
    "The outside world: sign-ins, connections, webhooks, and the feed of events behind them.",
    (
        ("People", (
            Panel("Sign-ins", "cps", "By outcome.",
                  ((rate("noetl_gateway_login_total", "outcome"), "{{outcome}}"),)),
            Panel("Sessions checked", "cps", "By outcome.",
                  ((rate("noetl_gateway_session_check_total", "outcome"), "{{outcome}}"),)),
            Panel("Permissions checked", "cps", "By outcome.",
                  ((rate("noetl_gateway_authz_total", "outcome"), "{{outcome}}"),)),
        )),
        ("Connections", (
            Panel("Open", "short", "By transport.",
                  (("sum by (transport) (noetl_gateway_connections)", "{{transport}}"),)),
            Panel("Slow readers dropped", "cps", "By transport.",
                  ((rate("noetl_gateway_slow_consumer_total", "transport"), "{{transport}}"),)),
            Panel("Feed made anew", "cps", "Ways to the events that were lost, by reason.",
                  ((rate("noetl_gateway_event_feed_reconnect_total", "reason"), "{{reason}}"),)),
            Panel("Answers nobody took", "cps", "Callbacks whose client was gone.",
                  ((rate("noetl_gateway_callback_undelivered_total"), "undelivered"),)),
        )),
        ("Webhooks", (
            Panel("Received", "reqps", "By subscription.",
                  ((rate("noetl_ingress_received_total", "subscription"), "{{subscription}}"),)),
            Panel("Dispatched", "reqps", "Those that became a run.",
                  ((rate("noetl_ingress_dispatched_total", "subscription"), "{{subscription}}"),)),
            Panel("Rejected", "reqps", "By reason.",
                  ((rate("noetl_ingress_rejected_total", "subscription, reason"),
                    "{{subscription}} {{reason}}"),)),
            Panel("Rejected share", "percentunit", "Of all deliveries.",
                  ((share(rate("noetl_ingress_rejected_total"),
                          rate("noetl_ingress_received_total")), "rejected"),), red_above=0.1),
        )),
    ),
)  # fmt: skip

_DATABASE: Final = 'datname=~"$database"'
_HIT: Final = rate("pg_stat_database_blks_hit", more=_DATABASE)
_READ: Final = rate("pg_stat_database_blks_read", more=_DATABASE)
POSTGRES_NATS: Final = Board(
    "postgres-nats",
    "NoETL / PostgreSQL and NATS",
    "What the platform stands on, seen by NoETL itself and by the exporters of both.",
    (
        ("PostgreSQL, seen by NoETL", (
            Panel("Commit", "s", "One commit of the store.",
                  quantiles("noetl_commit_duration_seconds"), red_above=0.25),
            Panel("Connections at work", "percentunit", "Share of the open ones, by pool.",
                  ((f"sum by (pool) (noetl_db_pool_in_use) / {_CONNECTIONS}", "{{pool}}"),),
                  red_above=0.9),
            Panel("Requests for a connection", "short", "Those that wait.",
                  (("sum by (pool) (noetl_db_pool_waiting)", "{{pool}}"),)),
            Panel("Shards", "short", "1 while a shard answers.",
                  (("min by (shard) (noetl_shard_up)", "shard {{shard}}"),)),
            Panel("Rows outside of every month", "short", "Above 0: a month has no table.",
                  (("max(noetl_partition_default_rows)", "rows"),), red_above=1),
            Panel("Old rows deleted", "cps", "By table.",
                  ((rate("noetl_cleanup_rows_purged_total", "table"), "{{table}}"),)),
        )),
        ("PostgreSQL, seen by its exporter", (
            Panel("Transactions", "ops", "Committed and rolled back.",
                  ((rate("pg_stat_database_xact_commit", more=_DATABASE), "commit"),
                   (rate("pg_stat_database_xact_rollback", more=_DATABASE), "rollback"))),
            Panel("Read from memory", "percentunit", "Share of blocks found in shared buffers.",
                  ((share(_HIT, f"{_HIT} + {_READ}"), "hit"),)),
            Panel("Size", "bytes", "Of the databases.",
                  ((f"sum by (datname) (pg_database_size_bytes{{{_DATABASE}}})",
                    "{{datname}}"),)),
            Panel("Backends", "short", "Connections by database.",
                  ((f"sum by (datname) (pg_stat_database_numbackends{{{_DATABASE}}})",
                    "{{datname}}"),)),
            Panel("Dead rows", "short", "The ten tables that need a vacuum most.",
                  (("topk(10, sum by (relname) (pg_stat_user_tables_n_dead_tup))",
                    "{{relname}}"),)),
            Panel("Longest transaction", "s", "An old one keeps rows from being vacuumed.",
                  (("max(pg_stat_activity_max_tx_duration)", "longest"),), red_above=300),
        )),
        ("NATS, seen by NoETL", (
            Panel("Hints not fetched", "short", "By pool; autoscalers look at this.",
                  (("max by (pool) (noetl_nats_consumer_lag)", "{{pool}}"),)),
            Panel("Outbox", "short", "Messages that wait for their delivery.",
                  (("max by (shard) (noetl_outbox_pending)", "shard {{shard}}"),)),
            Panel("Oldest message of the outbox", "s", "Above 60 s is an alarm.",
                  (("max by (shard) (noetl_outbox_oldest_seconds)", "shard {{shard}}"),),
                  red_above=60),
            Panel("Published", "cps", "Messages of the outbox, and those that failed.",
                  ((rate("noetl_outbox_published_total", "outcome"), "{{outcome}}"),
                   (rate("noetl_outbox_failed_total"), "failed"))),
            Panel("Commands made known", "cps", "By the way, all pools.",
                  ((rate("noetl_command_publish_total", "route"), "{{route}}"),)),
            Panel("Hints repeated", "cps", "Commands that waited too long after their hint.",
                  ((rate("noetl_sweeper_republished_total"), "repeated"),)),
        )),
        ("NATS, seen by its exporter", (
            Panel("Connections", "short", "By server.",
                  (("sum by (server_id) (gnatsd_varz_connections)", "{{server_id}}"),)),
            Panel("Slow consumers", "cps", "Cut off by the server.",
                  (("sum by (server_id) (rate(gnatsd_varz_slow_consumers[$__rate_interval]))",
                    "{{server_id}}"),)),
            Panel("Memory", "bytes", "By server.",
                  (("sum by (server_id) (gnatsd_varz_mem)", "{{server_id}}"),)),
            Panel("Messages kept", "short", "By stream.",
                  (("max by (stream_name) (jetstream_stream_total_messages)",
                    "{{stream_name}}"),)),
            Panel("Bytes kept", "bytes", "By stream.",
                  (("max by (stream_name) (jetstream_stream_total_bytes)", "{{stream_name}}"),)),
            Panel("Consumers behind", "short", "Messages that a consumer has not been given.",
                  (("max by (consumer_name) (jetstream_consumer_num_pending)",
                    "{{consumer_name}}"),
                   ("max by (consumer_name) (jetstream_consumer_num_ack_pending)",
                    "{{consumer_name}} unacknowledged"))),
        )),
    ),
    chosen=(("database", "label_values(pg_stat_database_numbackends, datname)"),),
)  # fmt: skip

BOARDS: Final = (OVERVIEW, EXECUTIONS, WORKERS, SUBSCRIPTIONS, GATEWAY, POSTGRES_NATS)


def text(board: Board) -> str:
    """A dashboard as its file has it."""
    return json.dumps(drawn(board), indent=1, ensure_ascii=False) + "\n"


def stale() -> Iterator[str]:
    """Files that are not as they would be written."""
    for board in BOARDS:
        file = FOLDER / f"{board.name}.json"
        if not file.exists() or file.read_text(encoding="utf-8") != text(board):
            yield f"deploy/grafana/{file.name} is stale; run `python -m scripts.dashboards`"


def main(words: list[str]) -> int:
    """Write the files, or check them."""
    if words == ["--check"]:
        found = list(stale())
        print("\n".join(found) or "deploy/grafana is fresh")
        return 1 if found else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(text(board), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
