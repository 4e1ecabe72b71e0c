"""Dashboards, alerts and their pages: every expression parses and names what exists."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from noetl.gateway.ingress.refusals import DISPATCH_FAILED
from noetl.gateway.metrics import GatewayMetrics
from noetl.intake.metrics import DEAD, OUTCOMES, IntakeMetrics
from noetl.server.metrics import ServerMetrics
from noetl.telemetry.metrics import Histogram
from noetl.worker.metrics import WorkerMetrics
from scripts import dashboards
from tests.docs.pages import ROOT
from tests.observability.promql import Malformed, read

BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
SCRAPED = {"job", "instance", "le", "version", "quantile", "mountpoint"}
QUERY = re.compile(r"^```promql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDINGS = ("_bucket", "_count", "_sum")

# Labels of the exporters' metrics that deploy/prometheus/README.md names.
OTHERS = {
    "up": set(), "process_cpu_seconds_total": set(), "process_resident_memory_bytes": set(),
    "pg_stat_database_xact_commit": {"datname"}, "pg_stat_database_xact_rollback": {"datname"},
    "pg_stat_database_blks_hit": {"datname"}, "pg_stat_database_blks_read": {"datname"},
    "pg_stat_database_numbackends": {"datname"}, "pg_database_size_bytes": {"datname"},
    "pg_stat_user_tables_n_dead_tup": {"datname", "relname"},
    "pg_stat_activity_max_tx_duration": {"datname", "state"},
    "gnatsd_varz_connections": {"server_id"}, "gnatsd_varz_slow_consumers": {"server_id"},
    "gnatsd_varz_mem": {"server_id"}, "jetstream_stream_total_messages": {"stream_name"},
    "jetstream_stream_total_bytes": {"stream_name"},
    "jetstream_consumer_num_pending": {"stream_name", "consumer_name"},
    "jetstream_consumer_num_ack_pending": {"stream_name", "consumer_name"},
    "node_filesystem_avail_bytes": {"fstype", "mountpoint"},
    "node_filesystem_size_bytes": {"fstype", "mountpoint"},
    "probe_ssl_earliest_cert_expiry": set(),
}  # fmt: skip
BUILDS = {f"noetl_{process}_build_info": set() for process in ("server", "worker", "gateway")}


def _served() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    served = [*IntakeMetrics(()).series]
    worker = WorkerMetrics("shared", ("http",))._metrics  # noqa: SLF001 - every series
    for metrics in (ServerMetrics().all, worker, GatewayMetrics().all):
        served += metrics._series.values()  # noqa: SLF001 - every series
    for series in served:
        found.setdefault(series.name, set()).update(series.labels)
        if isinstance(series, Histogram):
            for ending in ENDINGS:
                found.setdefault(series.name + ending, set()).update(series.labels)
    return found


SERVED = _served()
KNOWN = {**OTHERS, **BUILDS, **SERVED}


def _panels(board) -> list[dict]:
    shown = json.loads(board.read_text(encoding="utf-8"))["panels"]
    return [panel for panel in shown if panel["type"] != "row"]


def _rules() -> list[dict]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


DRAWN = [
    pytest.param(target["expr"], target["legendFormat"], id=f"{board.stem}: {panel['title']}")
    for board in BOARDS
    for panel in _panels(board)
    for target in panel["targets"]
]
RULES = [pytest.param(rule, id=rule["alert"]) for rule in _rules()]


def _problems(expr: str) -> list[str]:
    """What an expression names and nobody serves."""
    found = read(expr)
    problems = [f"no metric {name}" for name in found.metrics if name not in KNOWN]
    labels: set[str] = set(SCRAPED)
    for name, asked in found.metrics.items():
        known = KNOWN.get(name, set()) | SCRAPED
        labels |= known
        problems += [f"{name} has no label {label}" for label in asked - known]
    return problems + [f"nothing has a label {label}" for label in found.grouped - labels]


def test_the_boards_are_those_that_operators_are_promised() -> None:
    names = ["executions", "gateway", "overview", "postgres-nats", "subscriptions", "workers"]
    assert [board.stem for board in BOARDS] == names
    assert list(dashboards.stale()) == []


@pytest.mark.parametrize(("expr", "legend"), DRAWN)
def test_a_panel_draws_what_exists(expr, legend) -> None:
    assert _problems(expr) == []
    shown = set(re.findall(r"{{(\w+)}}", legend))
    found = read(expr)
    has = set(SCRAPED) | found.grouped
    if not re.search(r"\b(sum|max|min|avg|count|topk)\b", expr):
        has |= {label for name in found.metrics for label in KNOWN[name]}
    assert shown - has == set()


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_every_panel_says_what_it_shows_and_in_which_unit(board) -> None:
    for panel in _panels(board):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_panels_do_not_lie_on_each_other(board) -> None:
    shown = json.loads(board.read_text(encoding="utf-8"))
    taken = set()
    for panel in shown["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    numbers = [panel["id"] for panel in shown["panels"]]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_what_a_reader_may_choose_is_offered_from_what_exists(board) -> None:
    shown = json.loads(board.read_text(encoding="utf-8"))["templating"]["list"]
    asked = set(re.findall(r"\$(\w+)", json.dumps(_panels(board)))) - {"__rate_interval"}
    assert asked <= {one["name"] for one in shown}
    for one in shown:
        if one["type"] == "query":
            name, label = re.fullmatch(
                r"label_values\((\w+), (\w+)\)", one["query"]["query"]
            ).groups()
            assert label in KNOWN[name]


@pytest.mark.parametrize("rule", RULES)
def test_an_alert_asks_for_what_exists(rule) -> None:
    assert _problems(rule["expr"]) == []


@pytest.mark.parametrize("rule", RULES)
def test_an_alert_has_its_page(rule) -> None:
    name, notes = rule["alert"], rule["annotations"]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert notes["runbook_url"] == f"https://noetl.dev/docs/runbooks/{name}"
    assert notes["summary"]
    assert notes["description"].endswith(".")
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert headings == ["Meaning", "Look", "Do"]
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    assert f"]({name}.md)" in index


def test_every_page_belongs_to_an_alert() -> None:
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == {rule["alert"] for rule in _rules()}


def test_the_queries_of_the_pages_parse_and_name_what_exists() -> None:
    for page in RUNBOOKS.glob("*.md"):
        for query in re.findall(
            r"^```promql\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            for line in query.splitlines():
                assert _problems(line) == [], f"{page.name}: {line}"


def test_the_metrics_of_other_programs_are_named_where_people_read() -> None:
    page = (ROOT / "deploy" / "prometheus" / "README.md").read_text(encoding="utf-8")
    assert [name for name in OTHERS if f"`{name}`" not in page] == []


def test_the_example_of_a_configuration_is_one() -> None:
    text = (ROOT / "deploy" / "prometheus" / "scrape.yaml").read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    assert config["rule_files"] == [ALERTS.name]
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    assert {"noetl-server", "noetl-worker", "noetl-gateway"} <= jobs


@pytest.mark.parametrize(
    "expr",
    [
        "sum(", "rate(a)", "rate(a[5m]", "a[5m]", "sum by (a b) (c)", "a +", "a{b=c}", 'a{b="c"',
        "histogram_quantile(sum(a), 0.5)", "nothing(a)", "a b", "topk(sum(a))", "a[5x]", "1 +* 2",
        "a and bool b", "rate(a[5m]) + b[5m]", "a offset", "a offset b", "sum(a) offset 5m",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_found(expr) -> None:
    with pytest.raises(Malformed):
        read(expr)


def test_an_expression_names_its_metrics_and_labels() -> None:
    found = read('sum by (a) (rate(b{c="d", e=~"f"}[5m])) / on (a) group_left (g) h > bool 1e-9')
    assert found.metrics == {"b": {"c", "e"}, "h": set()}
    assert found.grouped == {"a", "g"}


def test_what_a_listener_gives_up_alerts_with_a_spool_and_without_one() -> None:
    asked = {rule["alert"]: rule["expr"] for rule in _rules()}
    assert read(asked["NoetlDeadLetters"]).metrics == {
        "noetl_subscription_dead_lettered_total": set()
    }
    metric = "noetl_ingress_rejected_total"
    assert read(asked["NoetlDispatchFailed"]).metrics == {metric: {"reason"}}
    reasons = re.findall(metric + r'\{reason="(\w+)"\}', asked["NoetlDispatchFailed"])
    assert set(reasons) == {DISPATCH_FAILED}
    page = (RUNBOOKS / "NoetlDeadLetters.md").read_text(encoding="utf-8")
    assert [reason for reason in DEAD if f"`{reason}`" not in page] == []


def test_the_outcomes_that_are_asked_for_are_outcomes_of_a_start():
    texts = [path.read_text(encoding="utf-8") for path in RUNBOOKS.glob("*.md")]
    for panel in (panel for board in BOARDS for panel in _panels(board)):
        texts += [target["expr"] for target in panel["targets"]]
    asked = [
        word
        for text in texts
        for values in re.findall(
            r'noetl_subscription_executions_total\{outcome[!=~]+"([^"]+)"', text
        )
        for word in values.split("|")
    ]

    assert asked
    assert set(asked) <= set(OUTCOMES)
