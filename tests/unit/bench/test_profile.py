import os
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest

from bench.install import install_mb
from bench.processes import cpu_us, moved_bytes
from bench.profile import SUBJECTS, told
from bench.statements import Cost, costs_of
from bench.timers import Timers, between, timers_of
from noetl.dsl.parse import parse

TEXT = """\
# HELP noetl_commit_duration_seconds One commit of the store.
noetl_commit_duration_seconds_bucket{le="0.001"} 7.0
noetl_commit_duration_seconds_sum 0.5
noetl_commit_duration_seconds_count 100.0
noetl_event_ingest_phase_seconds_sum{phase="queue"} 0.1
noetl_event_ingest_phase_seconds_count{phase="queue"} 50.0
noetl_write_request_duration_seconds_sum{endpoint="/api/worker/pool/heartbeat"} 9.0
noetl_write_request_duration_seconds_count{endpoint="/api/worker/pool/heartbeat"} 9.0
noetl_ingest_batch_events_sum 900.0
noetl_ingest_batch_events_count 9.0
"""


def test_timers_are_read_and_requests_by_the_clock_are_left_out():
    found = timers_of(TEXT)
    assert found.counts == {"commit_duration": 100.0, 'event_ingest_phase{phase="queue"}': 50.0}
    assert found.sums == {"commit_duration": 0.5, 'event_ingest_phase{phase="queue"}': 0.1}


def test_timers_are_told_for_each_unit():
    before = Timers({"commit_duration": 0.1}, {"commit_duration": 20.0})
    found = between(before, timers_of(TEXT), 40)
    assert found["commit_duration"] == {"often": 2.0, "us": 5000.0}
    assert between(before, before, 40) == {}


LOG = """\
2026-11-15 21:54:00.2 UTC [7] LOG:  duration: 0.100 ms  bind __asyncpg_stmt_1__: with won as (
\t    select 1)
\tselect * from won
2026-11-15 21:54:00.2 UTC [7] LOG:  duration: 0.300 ms  execute __asyncpg_stmt_1__: with won as (
\t    select 1)
\tselect * from won
2026-11-15 21:54:00.2 UTC [9] LOG:  duration: 5.000 ms  statement: select 'mine'
2026-11-15 21:54:00.2 UTC [8] LOG:  received SIGHUP, reloading configuration files
2026-11-15 21:54:00.2 UTC [8] LOG:  duration: 0.050 ms  statement: select 2
"""


def test_statements_are_read_from_the_log_of_the_database():
    assert costs_of(LOG, {9}) == {
        "with won as ( select 1) select * from won": Cost(often=1, us=pytest.approx(400.0)),
        "select 2": Cost(often=1, us=pytest.approx(50.0)),
    }


def test_the_time_and_bytes_of_a_process_grow_and_a_gone_one_has_none():
    assert cpu_us(os.getpid()) > 0
    assert min(moved_bytes(os.getpid())) > 0
    assert cpu_us(2**22 + 1) == 0
    assert moved_bytes(2**22 + 1) == (0, 0)


def test_the_time_of_a_process_whose_threads_come_and_go_is_told_all_the_same():
    with ThreadPoolExecutor(1) as kept:
        is_done = Event()
        kept.submit(_short_threads, is_done)
        found = [cpu_us(os.getpid()) for _ in range(200)]
        is_done.set()
    assert min(found) > 0


def _short_threads(is_done):
    while not is_done.is_set():
        short = [Thread(target=int) for _ in range(8)]
        for thread in short:
            thread.start()
        for thread in short:
            thread.join()


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_what_is_looked_into_is_a_playbook_without_a_finding(name):
    assert parse(SUBJECTS[name].text).diagnostics == ()


def test_figures_are_told_by_process_by_count_and_by_timer():
    text = told(
        {
            "name": "chain",
            "unit": "step",
            "units": 80,
            "wall_us": 2_100.0,
            "cpu_us": {"server": 900.0, "worker-shared": 400.5},
            "bytes_in": {"server": 1_200, "worker-shared": 10},
            "bytes_out": {"server": 3_400, "worker-shared": 20},
            "counted": {
                "commits_per_step": 1.04,
                "requests": {"/api/events/batch": 80},
                "of": {"step": 80},
            },
            "timers": {"commit_duration": {"often": 1.04, "us": 310.0}},
            "statements": {"select 1": {"often": 0.5, "us": 90.0}},
            "stacks": ["build/profile/chain-server.txt"],
        }
    )
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines == [
        "chain: 2,100.0 us for each step, 80 of them",
        "process cpu us bytes in bytes out",
        "server 900.0 1,200 3,400",
        "worker-shared 400.5 10 20",
        "all 1,300.5",
        "counted for each step:",
        "commits 1.040",
        "requests for each step:",
        "/api/events/batch 1.000",
        "timers of the server: how often for each step, and us each:",
        "commit_duration 1.040 310.0",
        "SQL statements: how often for each step, and us each:",
        "select 1 0.500 90.0",
        "stacks: build/profile/chain-server.txt",
    ]


def test_the_base_install_is_what_the_product_needs_and_no_more():
    sizes = install_mb()
    assert sizes["noetl"] > 0
    assert {"asyncpg", "nats-py", "uvloop"} <= set(sizes)
    assert not {"pytest", "ruff", "mypy"} & set(sizes)
