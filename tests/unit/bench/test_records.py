import json
from pathlib import Path

import jsonschema
import pytest

from bench.__main__ import ALL, LONG, QUICK, names_of
from bench.compare import changes
from bench.counters import Counts, per, requests_of
from bench.limits import at_least, at_most, is_met, is_passed
from bench.machine import commit, machine
from bench.report import markdown, table, verdict, written
from bench.sampling import record

BENCH = Path(__file__).resolve().parents[3] / "bench"
SCHEMA = json.loads((BENCH / "record.schema.json").read_text(encoding="utf-8"))


def whole(made, **more):
    about = {
        "scenario": made["name"],
        "version": "1",
        "commit": "c",
        "at": "2026-01-01T00:00:00+00:00",
        "machine": machine(),
    }
    return about | made | more


def test_a_target_that_is_missed_is_told_and_only_a_floor_fails():
    limits = [at_most("p50", 7.0, 20.0), at_most("p99", 30.0, 100.0)]
    made = record("latency", [5.0, 8.0, 9.0], unit="ms", limits=limits)
    assert is_passed(made)
    assert not is_met(made)
    assert verdict(made) == "target not met"
    slow = record("latency", [21.0], unit="ms", limits=limits)
    assert not is_passed(slow)
    assert verdict(slow) == "BEYOND THE FLOOR"


def test_a_rate_is_better_when_it_is_higher():
    samples = [float(n) for n in range(1, 101)]
    made = record("runs", samples, unit="runs/s", better="higher", limits=[at_least("p50", 50, 10)])
    assert (made["best"], made["p99"], made["rate"]) == (100.0, 1.0, 50.5)
    assert verdict(made) == "met"


def test_a_wrong_result_voids_the_figure():
    made = record("x", [1.0], unit="ms", correct=False)
    assert not is_passed(made)
    assert verdict(made) == "WRONG RESULT"


def test_the_limit_of_a_bench_without_a_stack_is_held_by_its_best_run():
    assert is_passed(record("x", [1.0, 9.0, 9.0], unit="ms", limit=2.0))
    assert not is_passed(record("x", [3.0], unit="ms", limit=2.0))


def test_a_figure_may_lie_deeper():
    made = record(
        "x", [1.0], unit="ms", counted={"commits_per_step": 2.0},
        limits=[at_most("counted.commits_per_step", 1.15)],
    )  # fmt: skip
    assert not is_met(made)
    assert is_passed(made)  # it has no floor


def test_counts_are_told_for_each_unit():
    before = Counts(
        xid=10, wal_bytes=100, inserted=1, updated=1, deleted=0, transactions=5,
        requests={"/api/execute": 1},
    )  # fmt: skip
    after = Counts(
        xid=30, wal_bytes=1_100, inserted=41, updated=11, deleted=10, transactions=45,
        requests={"/api/execute": 2, "/api/events/batch": 9},
    )  # fmt: skip
    told = per("step", before, after, 10)
    assert told["commits_per_step"] == 2.0
    assert told["round_trips_per_step"] == 1.0
    assert told["rows_inserted_per_step"] == 4.0
    assert told["wal_bytes_per_step"] == 100.0
    assert told["requests"] == {"/api/execute": 1, "/api/events/batch": 9}


def test_requests_that_come_by_the_clock_are_not_counted():
    text = (
        "# HELP noetl_write_requests_total Writes.\n"
        'noetl_write_requests_total{code="2xx",endpoint="/api/execute"} 3.0\n'
        'noetl_write_requests_total{code="4xx",endpoint="/api/execute"} 1.0\n'
        'noetl_write_requests_total{code="2xx",endpoint="/api/worker/pool/heartbeat"} 9.0\n'
    )
    assert requests_of(text) == {"/api/execute": 3, "/api/execute 4xx": 1}


@pytest.mark.parametrize(
    ("now", "better", "is_worse"),
    [
        (130.0, "lower", True),
        (115.0, "lower", False),
        (130.0, "higher", False),
        (70.0, "higher", True),
    ],
)
def test_worse_by_more_than_a_fifth_is_found(now, better, is_worse):
    before = [whole(record("x", [100.0], unit="u", better=better))]
    [change] = changes(before, [whole(record("x", [now], unit="u", better=better))])
    assert change.is_worse is is_worse


def test_between_machines_only_ratios_to_raw_limits_are_compared():
    other = machine() | {"cpu": "another"}
    plain = [whole(record("x", [100.0], unit="ms"), machine=other)]
    assert changes(plain, [whole(record("x", [900.0], unit="ms"))]) == []
    before = [whole(record("x", [100.0], unit="ms", ratios={"raw_commits": 6.0}), machine=other)]
    now = [whole(record("x", [900.0], unit="ms", ratios={"raw_commits": 6.6}))]
    [change] = changes(before, now)
    assert (change.of, change.is_worse) == ("ratios.raw_commits", False)


def test_another_size_is_another_figure():
    before = [whole(record("x", [1.0], unit="ms", params={"items": 10}))]
    assert changes(before, [whole(record("x", [9.0], unit="ms", params={"items": 20}))]) == []


def test_a_record_is_as_its_schema_says():
    made = record("x", [1.0], unit="items/s", better="higher", limits=[at_least("p50", 2.0, 0.5)])
    jsonschema.validate([whole(made)], SCHEMA)


def test_the_kept_records_are_as_the_schema_says():
    kept = json.loads((BENCH / "baseline.json").read_text(encoding="utf-8"))
    jsonschema.validate(kept, SCHEMA)
    assert {one["name"] for one in kept} >= {"chain", "fanout", "runs", "latency"}
    assert all(one["correct"] for one in kept)


def test_a_table_names_every_record_its_limits_and_the_raw_limits():
    made = record(
        "chain", [324.5], unit="ms", limits=[at_most("ratios.raw_commits", 8.0, 20.0)],
        ratios={"raw_commits": 9.0}, raw={"commits_serial": 3780.0},
        counted={"commits_per_step": 1.05, "requests": {}, "of": {"step": 40}},
    )  # fmt: skip
    for text in (table([made]), markdown([whole(made)])):
        assert "raw_commits 9 <= 8, floor 20 NOT MET" in text
        assert "per step: 1.05 commits" in text
        assert "raw limits of chain, per second: commits_serial 3,780" in text


def test_a_table_tells_how_much_was_measured():
    made = record("scale", [1.0], unit="x", params={"items": 100_000, "path": "a", "is_long": True})
    assert "    items 100,000" in table([made]).splitlines()


def test_a_page_is_written_between_its_marks_and_names_machine_and_commit():
    page = "# Page\n\n<!-- bench -->\nold\n<!-- /bench -->\n\nThe rest.\n"
    slow = record("startup.help", [9.0], unit="ms", params={"line": "noetl b"})
    fast = record("startup.help", [1.0], unit="ms", params={"line": "noetl a"})
    text = written(page, [whole(slow), whole(fast)])
    assert text.startswith("# Page\n\n<!-- bench -->\nMeasured 2026-01-01 at commit c on ")
    assert text.endswith("\n<!-- /bench -->\n\nThe rest.\n")
    assert "| startup.help (noetl b) | 9 ms |" in text
    assert "noetl a" not in text  # of many with one name, the slowest
    assert written(text, [whole(slow)]) == written(page, [whole(slow)])
    with pytest.raises(SystemExit, match="the page has no"):
        written("# Page\n", [whole(slow)])


def test_names_may_have_dashes_and_groups_are_opened_once():
    assert names_of(["scale-loop", "chain_http"]) == ["scale_loop", "chain_http"]
    assert names_of(["quick", "chain"]) == list(QUICK)
    assert set(QUICK) < set(ALL)
    with pytest.raises(SystemExit, match="no such benchmark: nonsense"):
        names_of(["nonsense"])


def test_every_scenario_of_the_contract_is_there_but_those_of_parts_to_come():
    contract = {
        "chain", "chain_http", "fanout", "runs", "latency", "dispatch", "ingest", "sustained",
        "sse", "large", "startup", "footprint", "scale_log", "scale_loop", "scale_history",
        "scale_out", "gateway", "spool", "subscriptions", "ingress", "isolation",
    }  # fmt: skip
    assert contract <= set(ALL)
    assert set(ALL) >= LONG
    assert len(ALL) == len(set(ALL))


def test_every_benchmark_has_a_module():
    assert all((BENCH / f"{name}.py").exists() for name in ALL)


def test_the_commit_is_known():
    assert commit()
