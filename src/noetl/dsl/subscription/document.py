"""Models of `kind: Subscription`: a message source and the playbook that each message starts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.cron import cron_fault, timezone_fault
from noetl.dsl.metadata import Metadata, PathShape
from noetl.dsl.shape import (
    Definitions,
    Flag,
    JsonSchema,
    ListOf,
    MapOf,
    Model,
    Number,
    Of,
    Shape,
    Text,
    key,
    model,
    whole,
)
from noetl.dsl.shape.units import seconds
from noetl.dsl.subscription.ingress import Ingress
from noetl.dsl.subscription.sections import Alias, Coded, Header, Pool, Section, word
from noetl.dsl.subscription.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.yaml import Place

MAX_IN_FLIGHT = 1000
MOST_DIRECTIVES = 32
MOST_INTERVAL = 86_400
CONTROLS = (
    "dispatch.playbook", "dispatch.execution_pool", "priority", "idempotency_key", "content_type",
    "schema_hint",
)  # fmt: skip
_IN_FLIGHT = Coded(whole(1, 100_000), "limits_invalid")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """When a scheduled subscription drains: at the times of a schedule, or every so often."""

    cron: str | None = None
    interval_s: float | None = None


class CadenceShape:
    """A schedule of five fields, or an interval of 1 s to 24 h."""

    blank: ClassVar[None] = None

    def read(self, value: Any, place: Place, reader: Reader) -> Cadence | None:  # noqa: ANN401 - see Shape
        """Read either form."""
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            reader.wrong_type(place, value, self.words())
            return None
        interval = seconds(value) if isinstance(value, str) else value
        if interval is None:
            fault = cron_fault(str(value))
            if fault is None:
                return Cadence(cron=str(value))
            hint = "write five fields such as `*/5 * * * *`, or an interval such as 30s"
            reader.report("DSL039", fault, place, hint=hint)
            return None
        if not 1 <= interval <= MOST_INTERVAL:
            reader.report("DSL039", f"{value} is outside 1 s..24 h", place)
        return Cadence(interval_s=interval)

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A text, or a number of seconds."""
        del definitions
        return {
            "anyOf": [
                {"type": "string"},
                {"type": "number", "minimum": 1, "maximum": MOST_INTERVAL},
            ]
        }

    def words(self) -> str:
        """A cadence."""
        return "five-field schedule, or interval such as 30s"


class ZoneShape:
    """The IANA name of a time zone."""

    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read the name of a zone."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, "text")
            return ""
        fault = timezone_fault(value)
        if fault is None:
            return value
        reader.report("DSL039", fault, place, hint="for example Europe/Zurich")
        return ""

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string."""
        del definitions
        return {"type": "string"}

    def words(self) -> str:
        """A time zone."""
        return "IANA time zone"


@model
class Runtime(Model):
    """Who listens, and how much at once."""

    target: str = key(
        word("dedicated-pool", "cloud-run", "local"), "where it listens", default="dedicated-pool"
    )
    pool: str = key(Pool(), "pool of the listener", default="subscription")
    batch: int = key(whole(1, 1000), "messages a poll", default=100)
    timeout_ms: int | None = key(
        whole(0, 30_000), "wait of a poll (2000; pubsub 20000)", default=None
    )
    max_in_flight: int | None = key(_IN_FLIGHT, "same as `limits.max_in_flight`", default=None)
    concurrency: int = key(whole(1, 256), "dispatches at once", default=16)
    max_instances: int = key(whole(1, 1000), "listeners at most", default=1)
    server_url: str | None = key(
        Coded(Text(pattern=r"^https?://[^\s{}]+$"), "server_url_invalid"),
        "the server (NOETL_SERVER_URL)",
        default=None,
    )


@model
class Dispatch(Model):
    """What each message starts."""

    playbook: str = key(
        Coded(PathShape(), "dispatch_playbook_missing"),
        "playbook that each message starts",
        code="dispatch_playbook_missing",
    )
    payload_from: str = key(
        Coded(word("message.json", "message.body", "message.attributes"), "payload_from_invalid"),
        "what becomes the payload",
        default="message.json",
    )
    execution_pool: str | None = key(Pool(), "pool of the runs (`runtime.pool`)", default=None)
    batch_dispatch: bool = key(Flag(), "start many runs in one request", default=False)
    batch_max: int | None = key(whole(1, 1000), "runs a request (`runtime.batch`)", default=None)
    ack_after: str = key(
        word("accepted", "completed"), "when a message is acknowledged", default="accepted"
    )


@model
class Dedup(Model):
    """Starts one run for messages that are the same."""

    enabled: bool = key(Flag(), "on or off", default=False)
    window_secs: int = key(whole(1, 2_592_000), "how long an id is remembered", default=300)


@model
class Limits(Model):
    """How fast messages become runs."""

    max_dispatch_per_sec: float | None = key(Number(above=0), "runs a second", default=None)
    max_in_flight: int | None = key(
        _IN_FLIGHT, "messages fetched and not settled (1000)", default=None
    )


@model
class Directive(Model):
    """A header that may steer one thing, within the values listed here."""

    header: str = key(Header(), "name of the header")
    controls: str = key(word(*CONTROLS), "what it steers")
    allowed: tuple[str, ...] | None = key(ListOf(Text()), "values that are followed", default=None)
    map: Mapping[str, str] | None = key(
        MapOf(Pool("directive_invalid", "directive_invalid")),
        "value of `priority` to pool",
        default=None,
    )


@model
class Trace(Model):
    """Trace context that crosses into the run."""

    propagate: str = key(word("none", "w3c"), "which form", default="none")
    baggage_allowlist: tuple[str, ...] = key(ListOf(Text()), "baggage that crosses", default=())


@model
class Headers(Model):
    """What the headers of a message may do."""

    normalize: bool = key(Flag(), "false: `message.headers` is empty", default=True)
    directives: tuple[Directive, ...] = key(
        ListOf(Of(Directive), most=MOST_DIRECTIVES), "headers that steer", default=()
    )
    trace: Trace = key(Of(Trace), "trace context", default_factory=Trace)
    passthrough: str = key(word("data", "drop"), "what other headers are", default="data")


@model
class Keda(Model):
    """Scales listeners by lag."""

    trigger: str = key(word("pubsub", "kafka", "nats-jetstream"), "what is measured")
    min: int = key(whole(0, 1000), "listeners at least", default=0)
    max: int = key(whole(1, 1000), "listeners at most", default=1)
    lag_threshold: int = key(whole(1), "messages a listener", default=100)


@model
class Scaling(Model):
    """How many listeners there are."""

    keda: Keda | None = key(Of(Keda), "scale by lag", default=None)


def _source(shape: Shape, doc: str) -> Any:  # noqa: ANN401 - a field, see key()
    return key(Coded(shape, "source_field_missing"), doc, default=None)


def _connection(shape: Shape, doc: str) -> Any:  # noqa: ANN401 - a field, see key()
    return key(Coded(shape, "connection_missing"), doc, default=None)


@model
class SubscriptionSpec(Model):
    """A message source, and what becomes of its messages."""

    source: str = key(
        Coded(word("pubsub", "nats", "kafka", "webhook"), "source_invalid"),
        "pubsub, nats, kafka or webhook",
        code="source_invalid",
    )
    mode: str = key(
        Coded(word("pull", "push"), "mode_invalid"), "pull or push", code="mode_invalid"
    )
    activation: str | None = key(
        Coded(word("continuous", "scheduled"), "activation_invalid"),
        "pull: always, or on a cadence (continuous)",
        default=None,
    )
    cadence: Cadence | None = key(
        Coded(CadenceShape(), "cadence_invalid"), "when a scheduled one drains", default=None
    )
    timezone: str | None = key(
        Coded(ZoneShape(), "timezone_invalid"), "zone of the schedule (UTC)", default=None
    )
    overlap: str = key(
        Coded(word("skip"), "cadence_invalid"), "a tick while one runs", default="skip"
    )
    max_drains_per_tick: int = key(
        Coded(whole(1, 1000), "cadence_invalid"), "batches a tick", default=20
    )
    stream: str | None = _source(Text(), "NATS stream")
    consumer: str | None = _source(Text(), "NATS durable consumer")
    topic: str | None = _source(Text(), "Kafka topic")
    group: str | None = _source(Text(), "Kafka group")
    brokers: tuple[str, ...] | None = _source(
        ListOf(Text(), least=1, lone=True), "Kafka brokers (or from `auth`)"
    )
    subscription: str | None = _source(Text(), "Pub/Sub subscription")
    auth: str | None = _connection(Alias(), "credential of the source")
    url: str | None = _connection(Text(), "address of the source")
    user: str | None = _connection(Text(), "user")
    password: str | None = _connection(Text(), "password")
    token: str | None = _connection(Text(), "token")
    endpoint: str | None = _connection(Text(), "endpoint of the source")
    runtime: Runtime = key(
        Section(Runtime, "runtime_invalid"), "who listens", default_factory=Runtime
    )
    dispatch: Dispatch = key(
        Section(Dispatch, "dispatch_invalid"),
        "what each message starts",
        code="dispatch_playbook_missing",
    )
    dedup: Dedup = key(Section(Dedup, "dedup_invalid"), "same messages", default_factory=Dedup)
    limits: Limits = key(Section(Limits, "limits_invalid"), "how fast", default_factory=Limits)
    headers: Headers = key(
        Section(Headers, "directive_invalid"), "what headers may do", default_factory=Headers
    )
    spool: Spool | None = key(
        Section(Spool, "spool_invalid"), "where messages wait in an outage", default=None
    )
    ingress: Ingress | None = key(
        Section(Ingress, "ingress_invalid"), "push: where it arrives", default=None
    )
    scaling: Scaling | None = key(
        Section(Scaling, "scaling_invalid"), "how many listeners", default=None
    )

    @property
    def max_in_flight(self) -> int:
        """Messages fetched and not yet settled, from either key."""
        return self.limits.max_in_flight or self.runtime.max_in_flight or MAX_IN_FLIGHT


@model
class SubscriptionMetadata(Metadata):
    """Name, path and labels of a subscription."""

    path: str = key(Coded(PathShape(), "path_invalid"), "catalog identity", code="path_invalid")


@model
class Subscription(Model):
    """A message source and the playbook that each message starts."""

    api_version: str = key(
        Coded(Text(), "subscription_api_version"),
        "`noetl.io/v1` or `noetl.io/v2`",
        name="apiVersion",
        code="subscription_api_version",
    )
    kind: str = key(Text(), "`Subscription`", code="DSL021")
    metadata: SubscriptionMetadata = key(Of(SubscriptionMetadata), "name, path, labels")
    spec: SubscriptionSpec = key(
        Section(SubscriptionSpec, "subscription_spec_missing"),
        "the source, and what becomes of its messages",
        code="subscription_spec_missing",
    )
