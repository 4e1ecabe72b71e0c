"""Manifests of jobs, and what is refused before there is one."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.tools.base import ToolError, read_config
from noetl.tools.container.job import Order, env_of, limits_of, manifests
from noetl.tools.container.quantity import amount
from noetl.tools.container.script import container_request
from noetl.tools.container.ticket import Ticket, output_of
from noetl.tools.container.tool import ContainerTool

TICKET = Ticket(
    name="noetl-container-s-1-ab", runtime="kubernetes", execution_id="1", step="s",
    command_id="12", key="1/s/-/1", timeout_s=90.5, namespace="noetl",
)  # fmt: skip
EVERYTHING = {
    "command": ["python", "-m", "train"],
    "args": ["--epochs", 5, True],
    "env": [{"name": "MODE", "value": 1}],
    "resources": {"requests": {"cpu": "2", "memory": "512Mi"}, "limits": {"gpu": 1}},
    "service_account": "trainer",
    "backoff_limit": 2,
    "restart_policy": "OnFailure",
    "node_selector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "toleration_seconds": 5}],
    "volumes": [
        {"name": "scratch", "empty_dir": {"size_limit": "1Gi"}},
        {"name": "data", "persistent_volume_claim": {"claim_name": "d"}},
    ],
    "volume_mounts": [{"name": "data", "mount_path": "/data", "read_only": True}],
    "image_pull_policy": "IfNotPresent",
    "image_pull_secrets": ["registry"],
    "ttl_seconds_after_finished": 60,
}


def order(**given: Any) -> Order:
    config = read_config(ContainerTool.Config, {"kind": "container", "image": "i:1", **given})
    return Order(ticket=TICKET, config=config, input=b'{"n":1}', env=env_of(config),
                 limits=limits_of(config))  # fmt: skip


def test_a_pod_is_shut_in_whatever_the_author_says() -> None:
    for given in ({}, EVERYTHING):
        job, _ = manifests(order(**given))
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "privileged": False,
            "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert pod["automountServiceAccountToken"] is ("service_account" in given)
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}


def test_everything_that_was_written_is_in_the_job() -> None:
    job, secret = manifests(order(**EVERYTHING))
    spec = job["spec"]
    assert (spec["activeDeadlineSeconds"], spec["backoffLimit"]) == (91, 2)
    assert spec["ttlSecondsAfterFinished"] == 60
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert (container["command"], container["args"]) == (
        ["python", "-m", "train"], ["--epochs", "5", "true"],
    )  # fmt: skip
    assert container["resources"] == {
        "limits": {"gpu": "1", "cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "2", "memory": "512Mi"},
    }
    assert pod["volumes"][1:] == [
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
    ]
    assert container["volumeMounts"][1:] == [
        {"name": "data", "mountPath": "/data", "readOnly": True}
    ]
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}]
    assert (pod["serviceAccountName"], pod["nodeSelector"]) == ("trainer", {"pool": "gpu"})
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["MODE"] == "1"
    assert variables["NOETL_IDEMPOTENCY_KEY"] == TICKET.key
    assert secret["data"] == {"input.json": "eyJuIjoxfQ=="}


def test_a_long_input_is_a_file_alone() -> None:
    made = order()
    long = Order(ticket=made.ticket, config=made.config, input=b"1" * 40_000, env=(),
                 limits=made.limits)  # fmt: skip
    job, secret = manifests(long)
    names = {one["name"] for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert "NOETL_INPUT" not in names
    assert len(secret["data"]["input.json"]) > 40_000


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"env": [{"name": "A", "value": "1", "value_from": {"secret_name": "s"}}]}, "/env/0"),
        ({"env": [{"name": "A", "value_from": {"secret_name": "s"}}]}, "/env/0/value_from"),
        ({"env": {"A=B": 1}}, "/env"),
        ({"env": {"NOETL_STEP": 1}}, "/env"),
        ({"resources": {"limit": {}}}, "/resources/limit"),
        ({"resources": {"limits": {"cpu": "much"}}}, "/resources/limits/cpu"),
        ({"resources": {"limits": {"cpu": 0}}}, "/resources/limits/cpu"),
        ({"resources": {"limits": [1]}}, "/resources/limits"),
        ({"volumes": [{"name": "a", "host_path": {"path": "/"}}]}, "/volumes/0"),
        ({"volumes": [{"name": "a"}]}, "/volumes/0"),
        ({"volumes": [{"name": "noetl-input", "empty_dir": {}}]}, "/volumes/0/name"),
        ({"volume_mounts": [{"name": "a", "mount_path": "/a"}]}, "/volume_mounts/0"),
        (
            {"volumes": [{"name": "a", "empty_dir": {}}],
             "volume_mounts": [{"name": "a", "mount_path": "/noetl/x"}]},
            "/volume_mounts/0/mount_path",
        ),
        (
            {"volumes": [{"name": "a", "empty_dir": {}}],
             "volume_mounts": [{"name": "a", "mount_path": "/x", "mode": 1}]},
            "/volume_mounts/0/mode",
        ),
        ({"privileged": True}, "/privileged"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_names_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ToolError) as refused:
        manifests(order(**given))
    assert (refused.value.kind, refused.value.code) == ("config", "invalid_config")
    assert field in refused.value.message


def test_amounts_are_read_as_kubernetes_writes_them() -> None:
    found = [amount(text, "/x") for text in ("500m", 2, "1.5Gi", "1M", "64Ki")]
    assert found == [0.5, 2.0, 1.5 * 2**30, 1e6, 65536.0]


def test_only_a_short_object_is_a_last_word() -> None:
    assert output_of('{"a": 1}') == {"a": 1}
    assert [output_of(text) for text in (None, "", "[1]", "{", "{" + " " * 5000 + "}")] == [
        None
    ] * 5


def test_a_script_names_what_it_needs() -> None:
    text = "# /// script\n# dependencies = [\n#   'httpx',\n# ]\n# ///\nprint(1)\n"
    config, files = container_request(text, {"install_dependencies": True, "env": {"A": 1}})
    assert config.command[:2] == ("sh", "-c")
    assert config.command[-2:] == ("python", "/noetl/script")
    assert files == {"script": text.encode(), "packages": b"httpx\n"}
    assert config.env["A"] == 1
    config, files = container_request("ls", {"image": "alpine"}, interpreter=["sh"])
    assert (config.image, config.command) == ("alpine", ("sh", "/noetl/script"))
    for job in ({"command": ["x"]}, {"install_dependencies": "httpx"}, {"colour": 1}):
        with pytest.raises(ToolError) as refused:
            container_request("x", job)
        assert refused.value.code == "invalid_config"
