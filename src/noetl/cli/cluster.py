"""The objects of a Kubernetes cluster that manifests are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTIVATION: Final = 1
POLLING_S: Final = 10
COOLDOWN_S: Final = 30
USER: Final = 10001
PORT: Final = 9090
HOME: Final = "/var/lib/noetl"
GRACE_S: Final = 40
"""Longer than a listener or a worker takes to end what it began."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where the objects go, and what they find there."""

    image: str
    namespace: str = "noetl"
    server_url: str = "http://noetl-server:8082"
    monitor: str = "nats.nats.svc.cluster.local:8222"
    """Where the NATS of the platform tells how its consumers are."""
    account: str = "$G"
    brokers: str = ""
    """Those of Kafka, where a document leaves them to its credential."""
    token_secret: str = ""
    """The secret with the bearer; one of the name of each object without it."""
    nats_secret: str = "noetl-nats"  # noqa: S105 - the name of an object, not what it holds


def jetstream(monitor: str, account: str, stream: str, consumer: str, lag: int) -> Manifest:
    """Measures what waits for a consumer of NATS."""
    return {
        "type": "nats-jetstream",
        "metadata": {
            "natsServerMonitoringEndpoint": monitor,
            "account": account,
            "stream": stream,
            "consumer": consumer,
            "lagThreshold": str(lag),
            "activationLagThreshold": str(ACTIVATION),
        },
    }


def scaled(name: str, trigger: Manifest, least: int, most: int, cluster: Cluster) -> Manifest:
    """Scales the Deployment of the same name."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "pollingInterval": POLLING_S,
            "cooldownPeriod": COOLDOWN_S,
            "minReplicaCount": least,
            "maxReplicaCount": most,
            "triggers": [trigger],
        },
    }


def ambient(name: str, cluster: Cluster) -> Manifest:
    """Lets KEDA ask Google as itself."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {"podIdentity": {"provider": "gcp"}},
    }


def claim(name: str, storage: int, cluster: Cluster) -> Manifest:
    """A disk that outlives the pods which use it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": str(storage)}},
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of NoETL, as many times as somebody wants."""

    name: str
    part: str
    words: tuple[str, ...]
    """Its command line, without `noetl`."""
    token: str
    """The variable of its bearer."""
    server_url: str
    about: Mapping[str, str]
    is_single: bool = False
    """Whether the old one ends before the new one begins."""
    disk: str = ""
    """Where its claim is mounted; nowhere without one."""


def deployment(process: Process, cluster: Cluster) -> Manifest:
    """Keeps a process running: one, unless something scales it."""
    labels = {
        "app.kubernetes.io/name": "noetl",
        "app.kubernetes.io/component": process.part,
        "app.kubernetes.io/instance": process.name,
    }
    volumes: dict[str, Manifest] = {"tmp": {"emptyDir": {}}, "home": {"emptyDir": {}}}
    mounts = {"tmp": "/tmp", "home": HOME}  # noqa: S108 - of the container
    if process.disk:
        where = "home" if process.disk == HOME else "spool"
        volumes[where] = {"persistentVolumeClaim": {"claimName": process.name}}
        mounts[where] = process.disk
    container = _container(process, cluster) | {
        "volumeMounts": [{"name": each, "mountPath": path} for each, path in mounts.items()]
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": process.name,
            "namespace": cluster.namespace,
            "labels": labels,
            "annotations": dict(process.about),
        },
        "spec": {
            "strategy": {"type": "Recreate" if process.is_single else "RollingUpdate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": GRACE_S,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER,
                        "fsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": [{"name": each, **volume} for each, volume in volumes.items()],
                },
            },
        },
    }


def _container(process: Process, cluster: Cluster) -> Manifest:
    secret = cluster.token_secret or process.name
    return {
        "name": process.part,
        "image": cluster.image,
        "args": list(process.words),
        "env": [
            {"name": "NOETL_ENV", "value": "production"},
            {"name": "NOETL_HOME", "value": HOME},
            {"name": "NOETL_SERVER_URL", "value": process.server_url},
            _secret("NOETL_NATS_URL", cluster.nats_secret, "url"),
            _secret(process.token, secret, "token"),
        ],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "livenessProbe": _probe("/livez", every_s=10, failures=6),
        "readinessProbe": _probe("/readyz", every_s=5, failures=3),
        "resources": {
            "requests": {"cpu": "250m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _secret(name: str, secret: str, key: str) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _probe(path: str, *, every_s: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": every_s,
        "failureThreshold": failures,
    }
