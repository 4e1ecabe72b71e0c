"""What `noetl deploy render` writes fits Kubernetes, KEDA, and the processes that it starts."""

import asyncio
import copy
import re

import pytest
import yaml

from noetl.bus import subjects
from noetl.cli.app import main
from noetl.cli.cluster import GRACE_S, PORT
from noetl.dsl.subscription.sections import POOL_PATTERN
from noetl.edge.health import Health
from noetl.settings import SubscriptionSettings, WorkerSettings
from noetl.subscription.ports import Ports
from tests.deploy.shapes import ROOT, faults

SPOOLS = {
    "no spool": "",
    "disk": "spool: {mode: buffer_and_ack, backend: local_disk, path: spool}",
    "bucket": "spool: {mode: hybrid, backend: s3, bucket: plant/x, auth: s3, ordering: global}",
}
SOURCES = {
    "nats": (
        'url: "nats://me@nats.plant:4222,nats://b:4222", stream: PLANT, consumer: noetl',
        "nats-jetstream",
    ),
    "kafka": ("brokers: [a:9092, b:9092], topic: plant.meters, group: noetl", "kafka"),
    "pubsub": (
        'subscription: projects/p1/subscriptions/s, endpoint: "https://pubsub.googleapis.com"',
        "pubsub",
    ),
}
TEXT = """\
apiVersion: noetl.io/v2
kind: Subscription
metadata: {{name: readings, path: {path}}}
spec: {{source: {source}, mode: pull, {fields}, runtime: {{pool: iot_fast}},
  dispatch: {{playbook: plant/store}}, scaling: {{keda: {{trigger: {trigger}, min: 1, max: 1}}}},
  headers: {{directives: [{{header: x-p, controls: priority, map: {{high: iot-1}}}}]}},
  {spool}}}
"""


@pytest.fixture
def rendered(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def render(source, spool, path="plant/readings"):
        fields, trigger = SOURCES[source]
        text = TEXT.format(
            path=path, source=source, fields=fields, trigger=trigger, spool=SPOOLS[spool]
        )
        (tmp_path / "one.yaml").write_text(text)
        words = ["deploy", "render", "--subscription", "one.yaml", "--pool", "iot_fast"]
        assert main([*words, "--pool", "system"]) == 0
        return list(yaml.safe_load_all(capsys.readouterr().out))

    return render


@pytest.mark.parametrize("spool", SPOOLS)
@pytest.mark.parametrize("source", SOURCES)
def test_every_object_is_what_the_cluster_takes(rendered, source, spool):
    found = rendered(source, spool)

    kinds = {item["kind"] for item in found}
    assert {"Deployment", "ScaledObject"} <= kinds
    assert {item["metadata"]["name"]: faults(item) for item in found if faults(item)} == {}


@pytest.mark.parametrize("path", ["a", "Plant.A/b_c", "x/" + "very-long-name/" * 12 + "end"])
def test_every_path_gives_names_that_the_cluster_takes(rendered, path):
    assert [fault for item in rendered("nats", "disk", path) for fault in faults(item)] == []


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("ScaledObject", lambda it: it["spec"].update(polling=10)),
        ("ScaledObject", lambda it: it["spec"].update(triggers=[])),
        ("ScaledObject", lambda it: it["spec"]["triggers"][0]["metadata"].update(lagThreshold=10)),
        ("ScaledObject", lambda it: it["spec"]["triggers"][0]["metadata"].pop("consumer")),
        ("Deployment", lambda it: it["metadata"].update(name="A_b")),
        ("Deployment", lambda it: it["spec"]["strategy"].update(type="Replace")),
        ("Deployment", lambda it: it["spec"]["template"]["spec"].update(securityContext={})),
    ],
    ids=["key", "no trigger", "number", "no consumer", "name", "strategy", "root"],
)
def test_an_object_that_is_wrong_is_found(rendered, kind, spoil):
    item = next(item for item in rendered("nats", "no spool") if item["kind"] == kind)
    spoilt = copy.deepcopy(item)
    spoil(spoilt)

    assert faults(item) == []
    assert faults(spoilt) != []


def test_names_on_the_bus_are_those_of_the_processes(rendered):
    triggers = [
        trigger["metadata"]
        for item in rendered("kafka", "no spool") if item["kind"] == "ScaledObject"
        for trigger in item["spec"]["triggers"] if trigger["type"] == "nats-jetstream"
    ]  # fmt: skip

    assert {each["stream"] for each in triggers} == {subjects.COMMANDS_STREAM}
    pools = ("iot_fast", "iot-1", "system")
    assert {each["consumer"] for each in triggers} == {subjects.consumer(pool) for pool in pools}
    assert all(re.fullmatch(POOL_PATTERN, pool) for pool in pools)


def test_a_selector_finds_its_pods_and_no_others(rendered):
    deployed = [item["spec"] for item in rendered("nats", "disk") if item["kind"] == "Deployment"]

    selectors = [spec["selector"]["matchLabels"] for spec in deployed]
    assert selectors == [spec["template"]["metadata"]["labels"] for spec in deployed]
    assert len({tuple(sorted(each.items())) for each in selectors}) == len(deployed) == 3


def test_what_a_pod_is_told_is_what_its_process_reads(rendered):
    for item in rendered("nats", "disk"):
        if item["kind"] != "Deployment":
            continue
        container = item["spec"]["template"]["spec"]["containers"][0]
        told = {each["name"]: each.get("value", "nats://n:4222") for each in container["env"]}
        words = container["args"]
        if "--subscription" in words:
            settings = SubscriptionSettings.read(told, paths=(words[-1],))
            assert settings.paths == ("plant/readings",)
        else:
            settings = WorkerSettings.read(told, pool=words[-1])
        assert settings.metrics_bind.endswith(f":{PORT}")
        assert settings.env == "production"
        mounted = [each["mountPath"] for each in container["volumeMounts"]]
        assert str(settings.home) in mounted


def test_probes_ask_for_pages_that_there_are(rendered):
    health = Health(lambda: (), lambda: b"", {})

    async def asked():
        return {path: health.page(path)[0] for path in paths}

    probes = [
        container[name]["httpGet"]["path"]
        for item in rendered("nats", "no spool") if item["kind"] == "Deployment"
        for container in item["spec"]["template"]["spec"]["containers"]
        for name in ("livenessProbe", "readinessProbe")
    ]  # fmt: skip
    paths = sorted(set(probes))
    assert 404 not in asyncio.run(asked()).values()


def test_a_pod_has_longer_to_end_than_its_process_takes():
    worker = WorkerSettings.read({}, pool="shared")

    assert worker.drain_s + 10 <= GRACE_S
    assert Ports.__dataclass_fields__["grace_s"].default + 10 <= GRACE_S


def test_no_object_holds_a_secret(rendered):
    for item in rendered("pubsub", "bucket"):
        text = yaml.safe_dump(item)
        assert not re.search(r"(password|token|secret)\w*: *[\"']?[A-Za-z0-9+/=_-]{20,}", text)
        assert item["kind"] != "Secret"


def test_examples_of_subscriptions_can_be_rendered(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = sorted(
        path for path in (ROOT / "examples").rglob("*.yaml")
        if "\nkind: Subscription\n" in path.read_text(encoding="utf-8")
    )  # fmt: skip

    assert found
    for path in found:
        assert main(["deploy", "render", "--subscription", str(path)]) == 0
        items = list(yaml.safe_load_all(capsys.readouterr().out))
        assert [fault for item in items for fault in faults(item)] == []
