"""Counting, and the text that is made of it."""

from __future__ import annotations

from noetl.telemetry.metrics import MOST_SETS, Metrics


def lines(metrics: Metrics, name: str) -> list[str]:
    text = metrics.render().decode()
    return [line for line in text.splitlines() if line.startswith(f"noetl_{name}")]


def test_closed_label_sets_stand_at_zero_and_count_up() -> None:
    metrics = Metrics("thing", "1.2.3")
    counter = metrics.counter("seen_total", "Seen.", {"kind": ("a", "b"), "way": ("x",)})
    counter.inc("a", "x")
    counter.inc("a", "x", by=2)
    assert lines(metrics, "seen") == [
        'noetl_seen_total{kind="a",way="x"} 3.0', 'noetl_seen_total{kind="b",way="x"} 0.0',
    ]  # fmt: skip
    assert lines(metrics, "thing") == ['noetl_thing_build_info{version="1.2.3"} 1.0']
    assert metrics.names == ("noetl_seen_total",)


def test_a_gauge_shows_what_it_was_told_or_what_its_source_says() -> None:
    metrics = Metrics("thing", "1")
    metrics.gauge("depth", "Depth.").set(4)
    metrics.gauge("open", "Open.", {"s": ("a",)}, source=lambda: {("b",): 2.0})
    assert lines(metrics, "depth") == ["noetl_depth 4.0"]
    assert lines(metrics, "open") == ['noetl_open{s="a"} 0.0', 'noetl_open{s="b"} 2.0']


def test_a_histogram_counts_by_size() -> None:
    metrics = Metrics("thing", "1")
    took = metrics.histogram("took_seconds", "Took.", bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        took.observe(value)
    assert lines(metrics, "took") == [
        'noetl_took_seconds_bucket{le="0.1"} 2.0', 'noetl_took_seconds_bucket{le="1"} 3.0',
        'noetl_took_seconds_bucket{le="+Inf"} 4.0', "noetl_took_seconds_count 4.0",
        "noetl_took_seconds_sum 7.65",
    ]  # fmt: skip
    assert (took.quantile(0.5), took.quantile(0.7), took.quantile(1.0)) == (0.1, 1.0, 1.0)
    assert metrics.histogram("idle_seconds", "Idle.").quantile(0.5) == 0.0


def test_a_flood_of_labels_becomes_others() -> None:
    metrics = Metrics("thing", "1")
    counter = metrics.counter("seen_total", "Seen.", {"pool": ()})
    gauge = metrics.gauge("open", "Open.", {"pool": ()})
    took = metrics.histogram("took_seconds", "Took.", {"pool": ()})
    for number in range(MOST_SETS + 5):
        counter.inc(f"p{number}")
        gauge.set(1, f"p{number}")
        took.observe(1, f"p{number}")
    assert counter.value("other") == 5
    assert gauge.value("other") == 1
    assert took.count("other") == 5
    assert counter.value("p1004") == 0


def test_two_processes_share_nothing() -> None:
    first, second = Metrics("thing", "1"), Metrics("thing", "1")
    first.counter("seen_total", "Seen.").inc()
    second.counter("seen_total", "Seen.")
    assert lines(second, "seen") == ["noetl_seen_total 0.0"]
