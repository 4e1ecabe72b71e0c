"""Manifests as `noetl deploy render` prints them."""

import json

import pytest
import yaml

from noetl import __version__
from noetl.bus import subjects
from noetl.cli.manifests import listener_name, worker_name

SUBSCRIPTION = """\
apiVersion: noetl.io/v2
kind: Subscription
metadata: {{name: readings, path: {path}}}
spec:
  {source}
  mode: pull
  runtime: {{pool: iot{runtime}}}
  dispatch: {{playbook: plant/store}}
  {more}
"""
NATS = 'source: nats\n  url: "nats://a:4222"\n  stream: PLANT\n  consumer: noetl'
KAFKA = "source: kafka\n  auth: plant\n  topic: plant.meters\n  group: noetl"
PUBSUB = "source: pubsub\n  subscription: projects/p1/subscriptions/s"
AMBIENT = f"{PUBSUB}\n  endpoint: https://pubsub.googleapis.com"


@pytest.fixture
def rendered(noetl, tmp_path):
    """Render one document; its objects and what was said."""

    def render(*words, source=NATS, path="plant/readings", runtime="", more="x-free: 1"):
        text = SUBSCRIPTION.format(source=source, path=path, runtime=runtime, more=more)
        (tmp_path / "readings.yaml").write_text(text)
        code, out, err = noetl("deploy", "render", "--subscription", "readings.yaml", *words)
        assert code == 0, err
        return list(yaml.safe_load_all(out)), err

    return render


def kinds(found):
    return [(item["kind"], item["metadata"]["name"]) for item in found]


def one(found, kind, start="noetl-listen-"):
    return next(
        item for item in found
        if item["kind"] == kind and item["metadata"]["name"].startswith(start)
    )  # fmt: skip


def keda(trigger, **more):
    return f"scaling: {{keda: {json.dumps({'trigger': trigger, 'max': 8} | more)}}}"


def test_a_subscription_is_a_listener_and_what_scales_the_pool_of_its_runs(rendered):
    found, err = rendered()

    assert (kinds(found), err) == (
        [("Deployment", "noetl-listen-plant-readings"), ("ScaledObject", "noetl-worker-iot")],
        "",
    )
    listener, pool = found
    container = listener["spec"]["template"]["spec"]["containers"][0]
    words = ["worker", "--mode", "subscription", "--subscription", "plant/readings"]
    assert (container["args"], container["image"]) == (words, f"noetl:{__version__}")
    assert listener["spec"]["strategy"] == {"type": "RollingUpdate"}
    spec = pool["spec"]
    assert spec["triggers"][0]["metadata"] == {
        "natsServerMonitoringEndpoint": "nats.nats.svc.cluster.local:8222",
        "account": "$G",
        "stream": subjects.COMMANDS_STREAM,
        "consumer": subjects.consumer("iot"),
        "lagThreshold": "10",
        "activationLagThreshold": "1",
    }
    figures = ("pollingInterval", "cooldownPeriod", "minReplicaCount", "maxReplicaCount")
    assert [spec[name] for name in figures] == [10, 30, 1, 20]


def test_an_object_that_scales_names_the_one_that_is_scaled(rendered):
    found, _ = rendered("--pool", "iot", more=keda("nats-jetstream"))

    deployed = {name for kind, name in kinds(found) if kind == "Deployment"}
    scaled = [item for item in found if item["kind"] == "ScaledObject"]
    assert {item["spec"]["scaleTargetRef"]["name"] for item in scaled} == deployed
    assert len(kinds(found)) == len(set(kinds(found))) == 4


@pytest.mark.parametrize(
    ("source", "trigger", "metadata", "is_signed"),
    [
        (
            NATS,
            "nats-jetstream",
            {"natsServerMonitoringEndpoint": "a:8222", "stream": "PLANT", "consumer": "noetl"},
            False,
        ),
        (
            KAFKA,
            "kafka",
            {"bootstrapServers": "k:9092", "topic": "plant.meters", "consumerGroup": "noetl"},
            True,
        ),
        (AMBIENT, "pubsub", {"subscriptionName": "projects/p1/subscriptions/s"}, True),
    ],
    ids=["nats", "kafka", "pubsub"],
)
def test_a_listener_is_scaled_by_the_lag_of_its_source(
    rendered, source, trigger, metadata, is_signed
):
    more = keda(trigger, min=2, lag_threshold=50)
    found, _ = rendered("--brokers", "k:9092", source=source, more=more)

    spec = one(found, "ScaledObject")["spec"]
    shown = spec["triggers"][0]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 8)
    assert metadata.items() <= shown["metadata"].items()
    assert shown["metadata"].get("lagThreshold", shown["metadata"].get("value")) == "50"
    assert ("authenticationRef" in shown) == is_signed


def test_pubsub_is_asked_as_keda_itself_where_a_listener_has_no_credential_either(rendered):
    found, err = rendered(source=AMBIENT, more=keda("pubsub"))

    assert one(found, "TriggerAuthentication")["spec"] == {"podIdentity": {"provider": "gcp"}}
    assert err == ""


def test_what_a_person_has_to_see_to_is_said(rendered):
    spool = "spool: {mode: hybrid, backend: gcs, bucket: b}"
    found, err = rendered(source=f"{PUBSUB}\n  auth: g", more=f"{keda('pubsub', min=0)}\n  {spool}")

    name = listener_name("plant/readings")
    assert ("TriggerAuthentication", name) not in kinds(found)
    assert err.splitlines() == [
        f"plant/readings: KEDA needs a TriggerAuthentication `{name}`, with what it asks with",
        "plant/readings: with `min: 0` what waits in the spool waits until a message comes",
    ]


def test_a_global_order_has_one_listener_at_a_time(rendered):
    found, _ = rendered(
        more="spool: {mode: hybrid, backend: nats_object, bucket: b, ordering: global}"
    )

    assert one(found, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("path", "mounted"), [("spool", "/var/lib/noetl"), ("/srv/spool", "/srv/spool")]
)
def test_a_spool_on_disk_outlives_its_pod_and_has_one_listener(rendered, path, mounted):
    found, _ = rendered(
        more=f"spool: {{mode: buffer_and_ack, backend: local_disk, path: {path}, "
        "retention: {max_bytes: 4Gi}}"
    )

    claim, listener = found[:2]
    assert claim["kind"] == "PersistentVolumeClaim"
    assert claim["spec"]["resources"]["requests"] == {"storage": str(10 << 30)}
    pod = listener["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
    assert volumes[mounts[mounted]]["persistentVolumeClaim"] == {
        "claimName": claim["metadata"]["name"]
    }
    assert listener["spec"]["strategy"] == {"type": "Recreate"}


def test_several_listeners_cannot_share_a_disk(noetl, tmp_path):
    more = f"{keda('nats-jetstream')}\n  spool: {{mode: hybrid, backend: local_disk, path: s}}"
    text = SUBSCRIPTION.format(source=NATS, path="plant/readings", runtime="", more=more)
    (tmp_path / "readings.yaml").write_text(text)

    code, out, err = noetl("deploy", "render", "--subscription", "readings.yaml")

    assert (code, out) == (2, "")
    assert err.startswith("error[usage]: plant/readings: a spool on local_disk is for one listener")


def test_brokers_that_only_a_credential_knows_are_asked_for(noetl, tmp_path):
    text = SUBSCRIPTION.format(source=KAFKA, path="plant/readings", runtime="", more=keda("kafka"))
    (tmp_path / "readings.yaml").write_text(text)

    code, out, err = noetl("deploy", "render", "--subscription", "readings.yaml")

    assert (code, out) == (2, "")
    assert err.endswith("hint: give `--brokers HOST:9092`\n")


def test_every_pool_that_a_header_may_choose_is_scaled(rendered):
    directives = [
        {"header": "x-pool", "controls": "dispatch.execution_pool", "allowed": ["a", "iot"]},
        {"header": "x-priority", "controls": "priority", "map": {"high": "fast"}},
    ]
    found, _ = rendered(more=f"headers: {{directives: {json.dumps(directives)}}}")

    names = [name for kind, name in kinds(found) if kind == "ScaledObject"]
    assert names == [worker_name(pool) for pool in ("iot", "a", "fast")]


@pytest.mark.parametrize(
    ("source", "runtime", "said"),
    [
        (AMBIENT, ", target: cloud-run", "Cloud Run listens: see deploy/cloud-run"),
        (NATS, ", target: local", "it is listened for by hand: `runtime.target` is local"),
        (
            f"{NATS}\n  activation: scheduled\n  cadence: 30s",
            "",
            "the server drains it, on the pool iot",
        ),
    ],
    ids=["cloud-run", "local", "scheduled"],
)
def test_what_is_listened_for_elsewhere_has_no_listener_here(rendered, source, runtime, said):
    found, err = rendered(source=source, runtime=runtime)

    assert kinds(found) == [("ScaledObject", "noetl-worker-iot")]
    assert err == f"plant/readings: {said}\n"


def test_the_workers_of_a_pool(noetl):
    code, out, err = noetl("deploy", "render", "--pool", "iot", "-o", "json", "--image", "here/n:1")

    found = json.loads(out)
    workers, scaled = found["items"]
    container = workers["spec"]["template"]["spec"]["containers"][0]
    assert (code, err, found["kind"], scaled["kind"]) == (0, "", "List", "ScaledObject")
    assert (container["args"], container["image"]) == (["worker", "--pool", "iot"], "here/n:1")
    secrets = {
        each["name"]: each["valueFrom"]["secretKeyRef"]
        for each in container["env"] if "valueFrom" in each
    }  # fmt: skip
    assert secrets == {
        "NOETL_NATS_URL": {"name": "noetl-nats", "key": "url"},
        "NOETL_WORKER_TOKEN": {"name": "noetl-worker-iot", "key": "token"},
    }


def test_the_system_pool_is_small_and_has_the_internal_token(noetl):
    workers, scaled = json.loads(noetl("deploy", "render", "--pool", "system", "--json").out)[
        "items"
    ]

    names = [each["name"] for each in workers["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert "NOETL_INTERNAL_API_TOKEN" in names
    assert scaled["spec"]["maxReplicaCount"] == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing was named to render"),
        (("--pool", "A.b"), "`A.b` is not the name of a pool"),
    ],
)
def test_what_cannot_be_rendered_is_a_usage_error(noetl, words, message):
    code, out, err = noetl("deploy", "render", *words)

    assert (code, out) == (2, "")
    assert err.startswith(f"error[usage]: {message}\n")


def test_a_document_of_another_kind_or_with_faults_is_refused(noetl, hello, tmp_path):
    assert noetl("deploy", "render", "--subscription", hello).err.startswith(
        "error[invalid_playbook]: hello.yaml is a Playbook, not a Subscription\n"
    )
    text = SUBSCRIPTION.format(source="source: nat", path="a/b", runtime="", more="x-free: 1")
    (tmp_path / "bad.yaml").write_text(text)
    code, out, err = noetl("deploy", "render", "--subscription", "bad.yaml")
    assert (code, out) == (7, "")
    assert "source_invalid" in err


def test_a_path_of_the_catalog_is_rendered(remote, tmp_path):
    text = SUBSCRIPTION.format(source=NATS, path="plant/there", runtime="", more="x-free: 1")
    (tmp_path / "there.yaml").write_text(text)
    assert remote("register", "there.yaml").code == 0

    code, out, err = remote("deploy", "render", "--subscription", "plant/there")

    assert (code, err) == (0, "")
    assert kinds(yaml.safe_load_all(out))[0] == ("Deployment", "noetl-listen-plant-there")
    assert remote("deploy", "render", "--subscription", "plant/nowhere").code == 5


@pytest.mark.parametrize(
    ("one", "other"), [("a/b", "a-b"), ("a_b", "a-b"), ("a/B", "a/b"), ("x" * 90, "x" * 91)]
)
def test_no_two_paths_have_one_name(one, other):
    names = {listener_name(one), listener_name(other)}

    assert len(names) == 2
    assert max(map(len, names)) <= 52


def test_a_pool_keeps_its_name_where_kubernetes_takes_it():
    assert worker_name("iot-fast") == "noetl-worker-iot-fast"
    assert worker_name("iot_fast") not in {"noetl-worker-iot-fast", "noetl-worker-iot_fast"}
