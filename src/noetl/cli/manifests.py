"""Kubernetes manifests of listeners and worker pools, as `noetl deploy render` prints them.

Pure: documents and a few words about a cluster go in, objects come out. Names of streams and
consumers are those that the processes use themselves.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from noetl.bus import subjects
from noetl.cli.cluster import (
    ACTIVATION,
    HOME,
    Process,
    ambient,
    claim,
    deployment,
    jetstream,
    scaled,
)
from noetl.dsl.subscription.sections import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.cli.cluster import Cluster, Manifest
    from noetl.dsl.subscription.document import Keda, Subscription, SubscriptionSpec

LAG: Final = 10
LEAST: Final = 1
MOST: Final = 20
MOST_SYSTEM: Final = 5
MONITOR_PORT: Final = 8222
_LONGEST: Final = 39
"""Of the part of a name that is made of a path: prefixes of ours and of KEDA come before it."""
_FOREIGN: Final = re.compile(r"[^a-z0-9]+")
_PATH: Final = re.compile(r"[a-z0-9]+(/[a-z0-9]+)*")
_POOL: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class CannotRender(Exception):
    """A document says too little, or what no cluster can do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def of_subscription(document: Subscription, cluster: Cluster) -> list[Manifest]:
    """What listens, what scales it, and what scales the pools of its runs."""
    spec = document.spec
    found = list(_listener(document, cluster)) if listens_here(spec) else []
    return [*found, *(_scaled_pool(pool, cluster) for pool in pools_of(spec))]


def of_pool(pool: str, cluster: Cluster) -> list[Manifest]:
    """The workers of a pool, and what scales them."""
    process = Process(
        name=worker_name(pool),
        part="worker",
        words=("worker", "--pool", pool),
        token="NOETL_INTERNAL_API_TOKEN" if pool == SYSTEM else "NOETL_WORKER_TOKEN",
        server_url=cluster.server_url,
        about={"noetl.io/pool": pool},
    )
    return [deployment(process, cluster), _scaled_pool(pool, cluster)]


def listens_here(spec: SubscriptionSpec) -> bool:
    """Whether a process of the cluster listens: no schedule, no gateway, not Cloud Run."""
    is_pulled = spec.mode == "pull" and spec.activation != "scheduled"
    return is_pulled and spec.runtime.target == "dedicated-pool"


def pools_of(spec: SubscriptionSpec) -> list[str]:
    """Every pool that its runs may go to, and the one of its drains."""
    found = [spec.dispatch.execution_pool or spec.runtime.pool]
    if spec.activation == "scheduled":
        found.append(spec.runtime.pool)
    for directive in spec.headers.directives:
        if directive.controls == "dispatch.execution_pool":
            found += directive.allowed or ()
        elif directive.controls == "priority":
            found += (directive.map or {}).values()
    return list(dict.fromkeys(found))


def listener_name(path: str) -> str:
    """The name of what listens for a subscription."""
    return f"noetl-listen-{_slug(path, _PATH)}"


def worker_name(pool: str) -> str:
    """The name of the workers of a pool."""
    return f"noetl-worker-{_slug(pool, _POOL)}"


def _slug(text: str, even: re.Pattern[str]) -> str:
    """A text as a name of Kubernetes; what is not even, or long, is marked to be no other's."""
    plain = _FOREIGN.sub("-", text.lower()).strip("-")
    if even.fullmatch(text) and len(plain) <= _LONGEST:
        return plain
    mark = sha256(text.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST - len(mark) - 1].strip('-')}-{mark}".lstrip("-")


def _scaled_pool(pool: str, cluster: Cluster) -> Manifest:
    """Scales the workers of a pool by the commands that wait for them."""
    stream, consumer = subjects.COMMANDS_STREAM, subjects.consumer(pool)
    trigger = jetstream(cluster.monitor, cluster.account, stream, consumer, LAG)
    most = MOST_SYSTEM if pool == SYSTEM else MOST
    return scaled(worker_name(pool), trigger, LEAST, most, cluster)


def _listener(document: Subscription, cluster: Cluster) -> Iterator[Manifest]:
    spec, path = document.spec, document.metadata.path
    name, disk = listener_name(path), _disk(spec)
    keda = spec.scaling.keda if spec.scaling else None
    if disk:
        if keda is not None and keda.max > 1:
            raise CannotRender(
                f"{path}: a spool on local_disk is for one listener, `scaling.keda.max` for more",
                "write `max: 1`, or keep the spool in nats_object, s3 or gcs",
            )
        yield claim(name, _storage(spec), cluster)
    yield deployment(
        Process(
            name=name,
            part="listener",
            words=("worker", "--mode", "subscription", "--subscription", path),
            token="NOETL_INTERNAL_API_TOKEN",  # noqa: S106 - the name of a variable
            server_url=spec.runtime.server_url or cluster.server_url,
            about={"noetl.io/subscription": path},
            is_single=bool(disk) or (spec.spool is not None and spec.spool.ordering == "global"),
            disk=disk,
        ),
        cluster,
    )
    if keda is None:
        return
    trigger = _source(document, keda, cluster)
    if "authenticationRef" in trigger and spec.auth is None:
        yield ambient(name, cluster)
    yield scaled(name, trigger, keda.min, keda.max, cluster)


def _disk(spec: SubscriptionSpec) -> str:
    """Where a spool on disk lies: it has to outlive its pod."""
    spool = spec.spool
    if spool is None or spool.backend != "local_disk" or spool.mode in {None, "off"}:
        return ""
    return spool.path if spool.path and spool.path.startswith("/") else HOME


def _storage(spec: SubscriptionSpec) -> int:
    """Bytes for messages and dead letters at their limits, and some to spare."""
    if spec.spool is None:
        return 0
    kept = spec.spool.retention
    most = kept.max_bytes + (kept.dlq_max_bytes or kept.max_bytes)
    return most + most // 4


def _source(document: Subscription, keda: Keda, cluster: Cluster) -> Manifest:
    """Measures what waits at the source."""
    spec, lag = document.spec, keda.lag_threshold
    signed = {"authenticationRef": {"name": listener_name(document.metadata.path)}}
    if keda.trigger == "nats-jetstream":
        host = urlsplit(spec.url.partition(",")[0]).hostname if spec.url else None
        monitor = f"{host}:{MONITOR_PORT}" if host else cluster.monitor
        return jetstream(monitor, cluster.account, spec.stream or "", spec.consumer or "", lag)
    if keda.trigger == "kafka":
        about = {
            "bootstrapServers": _brokers(document, cluster),
            "topic": spec.topic,
            "consumerGroup": spec.group,
            "lagThreshold": str(lag),
            "activationLagThreshold": str(ACTIVATION),
            "offsetResetPolicy": "earliest",
        }
        return {"type": "kafka", "metadata": about} | (signed if spec.auth else {})
    about = {
        "subscriptionName": spec.subscription,
        "mode": "SubscriptionSize",
        "value": str(lag),
        "activationValue": str(ACTIVATION),
    }
    return {"type": "gcp-pubsub", "metadata": about} | signed


def _brokers(document: Subscription, cluster: Cluster) -> str:
    found = ",".join(document.spec.brokers or ()) or cluster.brokers
    if not found:
        path = document.metadata.path
        message = f"{path}: the brokers are in its credential, which nobody reads here"
        raise CannotRender(message, "give `--brokers HOST:9092`")
    return found
