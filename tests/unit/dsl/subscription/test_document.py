from __future__ import annotations

import jsonschema
import pytest
import yaml

from noetl.dsl.parse import parse
from noetl.dsl.schema import schema
from noetl.dsl.shape import Fields
from noetl.dsl.subscription.document import Cadence, Directive, Keda, Subscription, SubscriptionSpec
from noetl.dsl.subscription.ingress import (
    Challenge,
    CustomChallenge,
    Ingress,
    IngressDedup,
    Rate,
    aliases_in,
)
from noetl.dsl.subscription.spool import Downstream, Spool
from noetl.dsl.subscription.verify import (
    VERIFIERS,
    ApiKeyVerify,
    HmacVerify,
    JwtVerify,
    PubsubVerify,
    StripeVerify,
)

FULL = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: { name: meter-readings, path: subscriptions/meter-readings }
spec:
  source: Kafka
  mode: PULL
  activation: Continuous
  auth: kafka_plant
  topic: plant.meters
  group: noetl-meters
  runtime:
    { target: Dedicated-Pool, pool: meters, batch: 200, timeout_ms: 2000, max_in_flight: 800 }
  dispatch:
    { playbook: plant/store_reading, payload_from: Message.JSON, execution_pool: meters,
      batch_dispatch: true }
  dedup: { enabled: true, window_secs: 600 }
  limits: { max_dispatch_per_sec: 500 }
  headers:
    directives:
      - { header: X-NoETL-Route, controls: dispatch.playbook,
          allowed: [plant/store_reading, plant/store_alarm] }
      - { header: x-priority, controls: priority, map: { high: meters-fast, normal: meters } }
    trace: { propagate: w3c, baggage_allowlist: [tenant] }
  spool:
    { mode: hybrid, backend: s3, bucket: plant-spool/meters, auth: s3_spool,
      ordering: per_key, ordering_key: message.data.meter,
      circuit:
        { trip_after: 5, probe_after_ms: 30000,
          downstream: [ { name: tsdb, probe: tcp, target: "tsdb:5432" } ] },
      retention: { max_age_hours: 72, max_bytes: 50Gi, on_full: stop_acking },
      drain: { on_recovery: interleave, rate_per_sec: 200, max_replay_attempts: 10 } }
  scaling: { keda: { trigger: kafka, min: 1, max: 8, lag_threshold: 500 } }
"""

PUSH = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: { name: parcel-scans, path: subscriptions/parcel-scans }
spec:
  source: webhook
  mode: push
  ingress:
    gateway_path: /ingress/parcel-scans
    verify:
      { type: hmac_sha256, header: X-Parcel-Signature, encoding: hex, prefix: "v1=",
        template: "{timestamp}.{body}", secret: [parcel_hook_new, parcel_hook_old],
        timestamp: { header: x-parcel-time, tolerance_secs: 300 },
        id: { header: x-parcel-delivery } }
    body_limit: 2Mi
    rate: { per_sec: 50, burst: 100 }
    allow_ips: [203.0.113.7/24, "2001:db8::1"]
    dedup: { key: [header:x-parcel-delivery, body:scan.id], window_secs: 86400 }
  dispatch:
    { playbook: logistics/record_scan, payload_from: message.json, execution_pool: subscription }
  spool:
    { mode: buffer_and_ack, backend: s3, bucket: "s3://parcel-spool/scans", auth: spool_bucket }
"""

PULL_HEAD = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: {name: readings, path: subscriptions/readings}
spec:
  source: nats
  mode: pull
  auth: nats_plant
  stream: READINGS
  consumer: noetl
  dispatch: {playbook: plant/store_reading}
"""

PUSH_HEAD = """\
apiVersion: noetl.io/v1
kind: Subscription
metadata: {name: hook, path: subscriptions/hook}
spec:
  source: webhook
  mode: push
  dispatch: {playbook: parcels/scan}
  ingress:
    gateway_path: /ingress/parcels
"""


def found(text: str) -> list[tuple[str, str, str]]:
    return [
        (item.code, f"{item.span.line}:{item.span.column}", item.pointer)
        for item in parse(text).errors
    ]


def read(text: str) -> Subscription:
    parsed = parse(text)
    assert parsed.diagnostics == ()
    assert isinstance(parsed.model, Subscription)
    return parsed.model


def verify(text: str):
    ingress = read(PUSH_HEAD + f"    verify: {text}\n").spec.ingress
    assert ingress is not None
    return ingress.verify


def verify_faults(text: str) -> list[tuple[str, str, str]]:
    return found(PUSH_HEAD + f"    verify: {text}\n")


def test_the_example_of_the_contract_reads_whole_and_in_lower_case():
    spec = read(FULL).spec
    assert (spec.source, spec.mode, spec.activation) == ("kafka", "pull", "continuous")
    assert (spec.runtime.target, spec.dispatch.payload_from) == ("dedicated-pool", "message.json")
    assert spec.headers.directives == (
        Directive(
            header="x-noetl-route",
            controls="dispatch.playbook",
            allowed=("plant/store_reading", "plant/store_alarm"),
        ),
        Directive(
            header="x-priority",
            controls="priority",
            map={"high": "meters-fast", "normal": "meters"},
        ),
    )
    assert spec.spool is not None
    assert spec.spool.retention.max_bytes == 50 * 1024**3
    assert spec.spool.circuit.downstream == (
        Downstream(name="tsdb", probe="tcp", target="tsdb:5432"),
    )
    assert spec.scaling is not None
    assert spec.scaling.keda == Keda(trigger="kafka", min=1, max=8, lag_threshold=500)


def test_the_listener_of_the_contract_reads_whole():
    ingress = read(PUSH).spec.ingress
    assert ingress is not None
    assert isinstance(ingress.verify, HmacVerify)
    assert ingress.verify.secret == ("parcel_hook_new", "parcel_hook_old")
    assert ingress.verify.signed_by == "x-parcel-signature"
    assert (ingress.body_limit, ingress.rate) == (2 * 1024**2, Rate(per_sec=50, burst=100))
    assert ingress.allow_ips == ("203.0.113.0/24", "2001:db8::1/128")
    assert ingress.dedup == IngressDedup(
        key_=("header:x-parcel-delivery", "body:scan.id"), window_secs=86400
    )


@pytest.mark.parametrize("text", [FULL, PUSH, PULL_HEAD])
def test_the_published_schema_accepts_what_the_parser_accepts(text):
    jsonschema.Draft202012Validator(schema("Subscription")).validate(yaml.safe_load(text))


def test_defaults_stand_where_nothing_is_written():
    spec = read(PULL_HEAD).spec
    assert (spec.runtime.pool, spec.runtime.batch, spec.runtime.concurrency) == (
        "subscription", 100, 16,
    )  # fmt: skip
    assert (spec.dispatch.payload_from, spec.dispatch.ack_after) == ("message.json", "accepted")
    assert (spec.dedup.enabled, spec.dedup.window_secs) == (False, 300)
    assert (spec.spool, spec.ingress, spec.scaling, spec.max_in_flight) == (None, None, None, 1000)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("runtime: {max_in_flight: 5}", 5),
        ("limits: {max_in_flight: 6}", 6),
        ("limits: {max_in_flight: 7}\n  runtime: {max_in_flight: 7}", 7),
    ],
)
def test_the_limit_in_flight_has_two_homes_and_one_value(lines, expected):
    assert read(PULL_HEAD + f"  {lines}\n").spec.max_in_flight == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"*/5 * * * *"', Cadence(cron="*/5 * * * *")),
        ('"@hourly"', Cadence(cron="@hourly")),
        ("30s", Cadence(interval_s=30.0)),
        ("24h", Cadence(interval_s=86400.0)),
        ("5", Cadence(interval_s=5)),
    ],
)
def test_a_cadence_is_a_schedule_or_an_interval(text, expected):
    document = PULL_HEAD + f"  activation: scheduled\n  cadence: {text}\n"
    assert read(document).spec.cadence == expected


@pytest.mark.parametrize("text", ['"* * * * * *"', "500ms", "25h", "true", "[1]", "often"])
def test_a_cadence_that_is_neither_is_refused(text):
    document = PULL_HEAD + f"  activation: scheduled\n  cadence: {text}\n"
    assert found(document) == [("cadence_invalid", "12:12", "/spec/cadence")]


def test_six_fields_are_refused_with_the_number_that_is_right():
    document = PULL_HEAD + '  activation: scheduled\n  cadence: "0 * * * * *"\n'
    assert parse(document).errors[0].message == "a schedule has five fields, not 6"


@pytest.mark.parametrize(
    ("line", "code", "column", "pointer"),
    [
        ("activation: 7", "activation_invalid", 15, "/spec/activation"),
        ("timezone: 7", "timezone_invalid", 13, "/spec/timezone"),
        ("timezone: Europe/Atlantis", "timezone_invalid", 13, "/spec/timezone"),
        ("overlap: queue", "cadence_invalid", 12, "/spec/overlap"),
        ("max_drains_per_tick: 0", "cadence_invalid", 24, "/spec/max_drains_per_tick"),
        ("url: 7", "connection_missing", 8, "/spec/url"),
        ("user: [a]", "connection_missing", 9, "/spec/user"),
        ("password: 7", "connection_missing", 13, "/spec/password"),
        ("token: 7", "connection_missing", 10, "/spec/token"),
        ("endpoint: 7", "connection_missing", 13, "/spec/endpoint"),
        ("runtime: 7", "runtime_invalid", 12, "/spec/runtime"),
        ("runtime: {batch: 0}", "runtime_invalid", 20, "/spec/runtime/batch"),
        ('runtime: {batch: "1"}', "runtime_invalid", 20, "/spec/runtime/batch"),
        ("runtime: {timeout_ms: 30001}", "runtime_invalid", 25, "/spec/runtime/timeout_ms"),
        ("runtime: {concurrency: 257}", "runtime_invalid", 26, "/spec/runtime/concurrency"),
        ("runtime: {max_instances: 0}", "runtime_invalid", 28, "/spec/runtime/max_instances"),
        ("runtime: {max_in_flight: 0}", "limits_invalid", 28, "/spec/runtime/max_in_flight"),
        ("runtime: {server_url: ftp://x}", "server_url_invalid", 25, "/spec/runtime/server_url"),
        ("runtime: {pool: a.b}", "pool_invalid", 19, "/spec/runtime/pool"),
        ("runtime: {pool: 7}", "pool_invalid", 19, "/spec/runtime/pool"),
        ("runtime: {pool: system}", "reserved_pool", 19, "/spec/runtime/pool"),
        ("dedup: {enabled: yes}", "dedup_invalid", 20, "/spec/dedup/enabled"),
        ("dedup: {window_secs: 2592001}", "dedup_invalid", 24, "/spec/dedup/window_secs"),
        ("limits: {max_dispatch_per_sec: 0}", "limits_invalid", 34,
         "/spec/limits/max_dispatch_per_sec"),
        ("limits: {max_in_flight: 100001}", "limits_invalid", 27, "/spec/limits/max_in_flight"),
        ("headers: {normalize: 1}", "directive_invalid", 24, "/spec/headers/normalize"),
        ("headers: {passthrough: keep}", "directive_invalid", 26, "/spec/headers/passthrough"),
        ("headers: {trace: {propagate: b3}}", "directive_invalid", 32,
         "/spec/headers/trace/propagate"),
        ("headers: {directives: [{controls: priority, map: {a: b}}]}", "directive_invalid", 27,
         "/spec/headers/directives/0"),
        ("headers: {directives: [{header: 'a b', controls: schema_hint}]}", "directive_invalid", 35,
         "/spec/headers/directives/0/header"),
        ("headers: {directives: [{header: 7, controls: schema_hint}]}", "directive_invalid", 35,
         "/spec/headers/directives/0/header"),
        ("headers: {directives: [{header: p, controls: priority, map: {a: B}}]}",
         "directive_invalid", 67, "/spec/headers/directives/0/map/a"),
        ("headers: {directives: [{header: p, controls: priority, map: {a: system}}]}",
         "directive_invalid", 67, "/spec/headers/directives/0/map/a"),
        ("scaling: {keda: {trigger: rabbit}}", "scaling_invalid", 29, "/spec/scaling/keda/trigger"),
        ("scaling: {keda: {max: 2}}", "scaling_invalid", 20, "/spec/scaling/keda"),
        ("scaling: {keda: {trigger: nats-jetstream, max: 0}}", "scaling_invalid", 50,
         "/spec/scaling/keda/max"),
        ("scaling: {keda: {trigger: nats-jetstream, lag_threshold: 0}}", "scaling_invalid", 60,
         "/spec/scaling/keda/lag_threshold"),
        ("spool: {backend: ftp}", "spool_invalid", 20, "/spec/spool/backend"),
        ("spool: {bucket: 'a b'}", "spool_invalid", 19, "/spec/spool/bucket"),
        ("spool: {auth: 'a b'}", "spool_invalid", 17, "/spec/spool/auth"),
        ("spool: {ordering: fifo}", "spool_invalid", 21, "/spec/spool/ordering"),
        ("spool: {ordering_key: message.body}", "spool_invalid", 25, "/spec/spool/ordering_key"),
        ("spool: {circuit: {trip_after: 0}}", "spool_invalid", 33,
         "/spec/spool/circuit/trip_after"),
        ("spool: {circuit: {probe_after_ms: 99}}", "spool_invalid", 37,
         "/spec/spool/circuit/probe_after_ms"),
        ("spool: {circuit: {downstream: [{probe: passive}]}}", "spool_invalid", 35,
         "/spec/spool/circuit/downstream/0"),
        ("spool: {circuit: {downstream: [{name: a, type: icmp}]}}", "spool_invalid", 50,
         "/spec/spool/circuit/downstream/0/type"),
        ("spool: {retention: {max_age_hours: 0}}", "spool_invalid", 38,
         "/spec/spool/retention/max_age_hours"),
        ("spool: {retention: {on_full: drop}}", "spool_invalid", 32,
         "/spec/spool/retention/on_full"),
        ("spool: {drain: {lanes: 257}}", "spool_invalid", 26, "/spec/spool/drain/lanes"),
        ("spool: {drain: {rate_per_sec: 0}}", "spool_invalid", 33,
         "/spec/spool/drain/rate_per_sec"),
        ("spool: {hybrid_escalate_after_ms: 1, hybrid_after_secs: 1}", "spool_invalid", 40,
         "/spec/spool/hybrid_after_secs"),
    ],
)  # fmt: skip
def test_a_fault_carries_the_code_of_its_section(line, code, column, pointer):
    assert found(PULL_HEAD + f"  {line}\n") == [(code, f"11:{column}", pointer)]


@pytest.mark.parametrize(
    ("line", "column", "pointer"),
    [
        ("runtime: {btach: 1}", 13, "/spec/runtime/btach"),
        ("headers: {directive: []}", 13, "/spec/headers/directive"),
        ("spool: {drain: {lane: 1}}", 19, "/spec/spool/drain/lane"),
    ],
)
def test_an_unknown_key_keeps_its_own_code(line, column, pointer):
    assert found(PULL_HEAD + f"  {line}\n") == [("DSL030", f"11:{column}", pointer)]


def test_more_than_32_directives_are_refused():
    rules = ", ".join(f"{{header: h{n}, controls: schema_hint}}" for n in range(33))
    assert found(PULL_HEAD + f"  headers: {{directives: [{rules}]}}\n") == [
        ("directive_invalid", "11:25", "/spec/headers/directives")
    ]


def test_every_fault_is_reported_at_once_in_order():
    document = """\
apiVersion: noetl.io/v3
kind: Subscription
metadata: {name: a, path: "a b"}
spec:
  mode: both
  dispatch: {playbook: "a b", payload_from: message.xml, ack_after: now}
  dedup: 7
"""
    assert found(document) == [
        ("subscription_api_version", "1:13", "/apiVersion"),
        ("path_invalid", "3:27", "/metadata/path"),
        ("source_invalid", "5:3", "/spec"),
        ("mode_invalid", "5:9", "/spec/mode"),
        ("dispatch_playbook_missing", "6:24", "/spec/dispatch/playbook"),
        ("payload_from_invalid", "6:45", "/spec/dispatch/payload_from"),
        ("dispatch_invalid", "6:69", "/spec/dispatch/ack_after"),
        ("dedup_invalid", "7:10", "/spec/dedup"),
    ]


@pytest.mark.parametrize("text", ["7", "[a]"])
def test_a_spec_that_is_no_map_is_a_missing_spec(text):
    document = f"""\
apiVersion: noetl.io/v2
kind: Subscription
metadata: {{name: a, path: a}}
spec: {text}
"""
    assert found(document) == [("subscription_spec_missing", "4:7", "/spec")]


def test_a_dispatch_that_is_missing_is_a_missing_playbook():
    document = PULL_HEAD.replace("  dispatch: {playbook: plant/store_reading}\n", "")
    assert found(document) == [("dispatch_playbook_missing", "5:3", "/spec")]


def test_extension_keys_are_free():
    assert read(PULL_HEAD + "  x-team: [1]\n").spec.extra == {"x-team": [1]}


# ---------------------------------------------------------------------------- spool


def test_the_spool_reads_its_keys_with_two_names():
    spool = read(PULL_HEAD + "  spool: {credential: box, hybrid_after_secs: 2}\n").spec.spool
    assert spool is not None
    assert (spool.alias, spool.escalate_after_ms) == ("box", 2000)
    spool = read(PULL_HEAD + "  spool: {auth: box, hybrid_escalate_after_ms: 5}\n").spec.spool
    assert spool is not None
    assert (spool.alias, spool.escalate_after_ms) == ("box", 5)
    assert (Spool().alias, Spool().escalate_after_ms) == (None, 30_000)


# ---------------------------------------------------------------------------- verifiers


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("hmac_sha256", "secret: hook"),
        ("stripe", "secret: hook, tolerance_secs: 60"),
        ("github", "secret: [hook]"),
        ("slack", "secret: hook"),
        ("standard_webhooks", "secret: hook"),
        ("svix", "secret: hook"),
        ("shopify", "secret: hook"),
        ("ed25519", "public_key: hook"),
        ("bearer", "secret: hook"),
        ("basic", "user: hook_user, password: hook_password"),
        ("api_key", "secret: hook"),
        ("pubsub_oidc", "audience: a, service_account: b"),
        ("jwt", "issuer: a, audience: b"),
        ("oidc", "issuer: a, audience: b"),
    ],
)
def test_every_scheme_reads_with_its_own_model_and_names_its_header(name, keys):
    found_model = verify(f"{{type: {name.upper()}, {keys}}}")
    assert (type(found_model), found_model.type) == (VERIFIERS[name], name)
    assert found_model.signed_by


def test_schemes_fill_in_their_defaults():
    assert verify("{type: stripe, secret: a}") == StripeVerify(type="stripe", secret=("a",))
    assert verify("{type: api_key, key: a}") == ApiKeyVerify(
        type="api_key", header="x-api-key", secret=("a",)
    )
    assert verify("{type: pubsub_oidc, audience: a, service_account: b}") == PubsubVerify(
        type="pubsub_oidc", audience="a", service_account="b", leeway_secs=60
    )
    assert verify(
        "{type: jwt, issuer: a, audience: b, secret: c, algorithms: [HS256]}"
    ) == JwtVerify(type="jwt", issuer="a", audience="b", key_=("c",), algorithms=("hs256",))


@pytest.mark.parametrize(
    ("keys", "scheme"),
    [
        ("header: Stripe-Signature", "stripe"),
        ("header: X-Hub-Signature-256", "github"),
        ("header: X-Slack-Signature", "slack"),
        ("header: x-other", "hmac_sha256"),
        ('header: Stripe-Signature, template: "{body}"', "hmac_sha256"),
    ],
)
def test_the_header_of_a_provider_alone_stands_for_its_scheme(keys, scheme):
    assert verify(f"{{type: hmac_sha256, secret: a, {keys}}}").scheme == scheme


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{type: none}", ("verify_none", "10:20", "/spec/ingress/verify/type")),
        ("{type: None, secret: a}", ("verify_none", "10:20", "/spec/ingress/verify/type")),
        ("{type: md5}", ("ingress_invalid", "10:20", "/spec/ingress/verify/type")),
        ("{type: 7}", ("ingress_invalid", "10:20", "/spec/ingress/verify/type")),
        ("{secret: a}", ("ingress_invalid", "10:14", "/spec/ingress/verify")),
        ("bearer", ("ingress_invalid", "10:13", "/spec/ingress/verify")),
        ("{type: bearer}", ("ingress_invalid", "10:14", "/spec/ingress/verify")),
        ("{type: bearer, secret: a, scret: b}", ("DSL030", "10:39", "/spec/ingress/verify/scret")),
        ("{type: github, secret: 7}", ("ingress_invalid", "10:36", "/spec/ingress/verify/secret")),
        ("{type: github, secret: []}", ("ingress_invalid", "10:36", "/spec/ingress/verify/secret")),
        ("{type: github, secret: [a, b, c, d, e]}",
         ("ingress_invalid", "10:36", "/spec/ingress/verify/secret")),
        ('{type: github, secret: "{{ env.X }}"}',
         ("ingress_invalid", "10:36", "/spec/ingress/verify/secret")),
        ("{type: stripe, secret: a, tolerance_secs: 29}",
         ("ingress_invalid", "10:55", "/spec/ingress/verify/tolerance_secs")),
        ("{type: hmac_sha256, secret: a, algorithm: md5}",
         ("ingress_invalid", "10:55", "/spec/ingress/verify/algorithm")),
        ("{type: hmac_sha256, secret: a, template: 7}",
         ("ingress_invalid", "10:54", "/spec/ingress/verify/template")),
        ('{type: hmac_sha256, secret: a, template: "{bdy}"}',
         ("ingress_invalid", "10:54", "/spec/ingress/verify/template")),
        ('{type: hmac_sha256, secret: a, template: "{header:}{body}"}',
         ("ingress_invalid", "10:54", "/spec/ingress/verify/template")),
        ('{type: hmac_sha256, secret: a, template: "{body}{"}',
         ("ingress_invalid", "10:54", "/spec/ingress/verify/template")),
        ('{type: hmac_sha256, secret: a, template: "{header:x-a}.{path}"}',
         ("ingress_invalid", "10:54", "/spec/ingress/verify/template")),
        ("{type: hmac_sha256, secret: a, id: {}}",
         ("ingress_invalid", "10:48", "/spec/ingress/verify/id")),
        ("{type: jwt, issuer: a, audience: b, jwks_url: 'http://x'}",
         ("ingress_invalid", "10:59", "/spec/ingress/verify/jwks_url")),
        ("{type: jwt, issuer: a, audience: b, jwks_url: 'https://x', key: c}",
         ("ingress_invalid", "10:72", "/spec/ingress/verify/key")),
    ],
)  # fmt: skip
def test_a_verifier_that_is_not_right_is_refused(text, expected):
    assert verify_faults(text) == [expected]


@pytest.mark.parametrize(
    "secret",
    [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "sk_live_abcdefghijklmnop",
        "0123456789abcdef0123456789abcdef",
        "aB3aB3aB3aB3aB3aB3aB3aB3",
        "p@ss word",
    ],
)
def test_a_secret_in_the_clear_is_refused_and_never_repeated(secret):
    parsed = parse(PUSH_HEAD + f'    verify: {{type: bearer, secret: "{secret}"}}\n')
    assert [item.code for item in parsed.errors] == ["ingress_invalid"]
    assert secret not in str(parsed.errors[0].as_json())


def test_what_is_signed_may_hold_every_placeholder():
    template = "{method}{path}{timestamp}{id}{header:X-A}{body}"
    text = (
        f'{{type: ed25519, secret: a, template: "{template}", '
        "timestamp: {header: t}, id: {body: event.id}}"
    )
    assert verify(text).template == template


# ---------------------------------------------------------------------------- the listener


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("body_limit: 11Mi", ("ingress_invalid", "11:17", "/spec/ingress/body_limit")),
        ("rate: {burst: 1}", ("ingress_invalid", "11:12", "/spec/ingress/rate")),
        ("rate: {per_sec: 0}", ("ingress_invalid", "11:21", "/spec/ingress/rate/per_sec")),
        ("allow_ips: [nowhere]", ("ingress_invalid", "11:17", "/spec/ingress/allow_ips/0")),
        ("allow_ips: [7]", ("ingress_invalid", "11:17", "/spec/ingress/allow_ips/0")),
        ("dedup: {key: cookie:a}", ("ingress_invalid", "11:18", "/spec/ingress/dedup/key")),
        ("dedup: {key: body:a, window_secs: 0}",
         ("ingress_invalid", "11:39", "/spec/ingress/dedup/window_secs")),
        ("replay: {window_secs: 2592001}",
         ("ingress_invalid", "11:27", "/spec/ingress/replay/window_secs")),
        ("challenge: meta", ("ingress_invalid", "11:16", "/spec/ingress/challenge")),
        ("challenge: wink", ("ingress_invalid", "11:16", "/spec/ingress/challenge")),
        ("challenge: {type: meta}", ("ingress_invalid", "11:17", "/spec/ingress/challenge")),
        ("challenge: {type: cloudevents, allowed_origins: []}",
         ("ingress_invalid", "11:53", "/spec/ingress/challenge/allowed_origins")),
    ],
)  # fmt: skip
def test_a_listener_that_is_not_right_is_refused(line, expected):
    document = PUSH_HEAD + f"    verify: {{type: bearer, secret: a}}\n    {line}\n"
    assert found(document) == [expected]


def test_a_listener_without_verification_is_refused():
    assert found(PUSH_HEAD) == [("ingress_invalid", "9:5", "/spec/ingress")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slack", Challenge(type="slack")),
        ("{type: slack}", Challenge(type="slack")),
        (
            "{type: Custom, field: challenge, reply_field: answer}",
            CustomChallenge(type="custom", field="challenge", reply_field="answer"),
        ),
    ],
)
def test_a_handshake_is_a_name_or_a_map(text, expected):
    document = PUSH_HEAD + f"    verify: {{type: bearer, secret: a}}\n    challenge: {text}\n"
    ingress = read(document).spec.ingress
    assert ingress is not None
    assert ingress.challenge == expected


@pytest.mark.parametrize(
    "cls", [Subscription, SubscriptionSpec, Ingress, Spool, Directive, Keda, *VERIFIERS.values()]
)
def test_every_key_has_words_for_the_reference(cls):
    assert all(item.shape.words() for item in Fields.of(cls).keys.values())


# ---------------------------------------------------------------------------- its credentials


@pytest.mark.parametrize(
    ("text", "more", "expected"),
    [
        ("{type: github, secret: [a, b]}", "", {"a", "b"}),
        ("{type: ed25519, public_key: a}", "", {"a"}),
        ("{type: basic, user: a, password: [b, c]}", "", {"a", "b", "c"}),
        ("{type: jwt, issuer: i, audience: a, algorithms: [hs256], key: k}", "", {"k"}),
        ("{type: jwt, issuer: i, audience: a}", "", set()),
        ("{type: pubsub_oidc, audience: a, service_account: s}", "", set()),
        ("{type: github, secret: a}", "challenge: {type: meta, verify_token: t}", {"a", "t"}),
        ("{type: github, secret: a}", "challenge: slack", {"a"}),
    ],
)
def test_the_credentials_of_a_listener_are_those_of_its_verifier_and_its_handshake(
    text, more, expected
):
    ingress = read(PUSH_HEAD + f"    verify: {text}\n    {more}\n").spec.ingress
    assert aliases_in(ingress) == expected


@pytest.mark.parametrize(("line", "is_kept"), [("", False), ("keep_rejected: true", True)])
def test_what_is_rejected_is_kept_only_when_that_is_said(line, is_kept):
    ingress = read(
        PUSH_HEAD + f"    verify: {{type: github, secret: a}}\n    {line}\n"
    ).spec.ingress
    assert ingress.keep_rejected is is_kept
