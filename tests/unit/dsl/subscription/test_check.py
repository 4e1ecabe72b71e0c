from __future__ import annotations

import pytest

from noetl.dsl.parse import parse

ROOT = """\
apiVersion: noetl.io/v2
kind: Subscription
metadata: {name: s, path: subscriptions/s}
"""
NATS = (
    ROOT
    + """\
spec:
  source: nats
  mode: pull
  auth: nats_plant
  stream: READINGS
  consumer: noetl
  dispatch: {playbook: plant/store_reading}
"""
)
HOOK = (
    ROOT
    + """\
spec:
  source: webhook
  mode: push
  dispatch: {playbook: parcels/scan}
"""
)
BEARER = "  ingress: {gateway_path: /ingress/a, verify: {type: bearer, secret: a}}\n"


def found(text: str) -> list[tuple[str, str, str]]:
    return [
        (item.code, f"{item.span.line}:{item.span.column}", item.pointer)
        for item in parse(text).errors
    ]


# ---------------------------------------------------------------------------- mode, activation


@pytest.mark.parametrize(
    ("source", "mode"), [("webhook", "pull"), ("nats", "push"), ("kafka", "push")]
)
def test_a_mode_that_the_source_does_not_have_is_the_only_fault(source, mode):
    text = ROOT + f"spec:\n  source: {source}\n  mode: {mode}\n  dispatch: {{playbook: a}}\n"
    assert found(text) == [("mode_invalid", "6:9", "/spec/mode")]


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_pubsub_has_both_modes(mode):
    lines = "  auth: a\n  subscription: s\n" if mode == "pull" else BEARER
    text = ROOT + f"spec:\n  source: pubsub\n  mode: {mode}\n{lines}  dispatch: {{playbook: a}}\n"
    assert found(text) == []


def test_activation_belongs_to_pull():
    assert found(HOOK + BEARER + "  activation: continuous\n") == [
        ("activation_invalid", "9:3", "/spec/activation")
    ]


@pytest.mark.parametrize("lines", ["", "  activation: continuous\n"])
def test_a_cadence_belongs_to_a_scheduled_subscription(lines):
    line = 11 + bool(lines)
    assert found(NATS + lines + "  cadence: 5m\n") == [
        ("cadence_invalid", f"{line}:3", "/spec/cadence")
    ]


def test_a_scheduled_subscription_needs_a_cadence():
    assert found(NATS + "  activation: scheduled\n") == [("cadence_invalid", "5:3", "/spec")]


def test_a_schedule_may_have_a_timezone():
    lines = "  activation: scheduled\n  cadence: '0 6 * * *'\n  timezone: Europe/Zurich\n"
    assert found(NATS + lines) == []


def test_a_cadence_does_not_belong_to_push():
    assert found(HOOK + BEARER + "  cadence: 5m\n") == [("cadence_invalid", "9:3", "/spec/cadence")]


@pytest.mark.parametrize(
    "lines", ["", "  activation: scheduled\n  cadence: 5m\n"], ids=["no cadence", "interval"]
)
def test_a_timezone_belongs_to_a_schedule(lines):
    line = 11 + lines.count("\n")
    assert found(NATS + lines + "  timezone: UTC\n") == [
        ("timezone_invalid", f"{line}:3", "/spec/timezone")
    ]


def test_a_timezone_beside_an_unreadable_cadence_is_left_alone():
    lines = "  activation: scheduled\n  cadence: often\n  timezone: UTC\n"
    assert found(NATS + lines) == [("cadence_invalid", "12:12", "/spec/cadence")]


# ---------------------------------------------------------------------------- source, connection


@pytest.mark.parametrize(
    ("source", "names"),
    [("nats", ["stream", "consumer"]), ("kafka", ["topic", "group"]), ("pubsub", ["subscription"])],
)
def test_every_field_that_a_source_needs_is_named(source, names):
    text = (
        ROOT + f"spec:\n  source: {source}\n  mode: pull\n  auth: a\n  dispatch: {{playbook: a}}\n"
    )
    assert found(text) == [("source_field_missing", "5:3", "/spec")] * len(names)
    assert [item.hint for item in parse(text).errors] == [f"add `{name}`" for name in sorted(names)]


def test_kafka_without_a_credential_needs_brokers():
    head = ROOT + "spec:\n  source: kafka\n  mode: pull\n  topic: t\n  group: g\n"
    head += "  dispatch: {playbook: a}\n"
    assert found(head + "  user: u\n") == [("source_field_missing", "5:3", "/spec")]
    assert found(head + "  brokers: 'a:9092'\n") == []
    assert found(head) == [
        ("connection_missing", "5:3", "/spec"),
        ("source_field_missing", "5:3", "/spec"),
    ]


def test_a_key_of_another_source_is_refused():
    assert found(NATS + "  topic: t\n") == [("DSL030", "11:3", "/spec/topic")]
    assert found(HOOK + BEARER + "  stream: s\n") == [("DSL030", "9:3", "/spec/stream")]


# ---------------------------------------------------------------------------- runtime, dispatch


def test_cloud_run_with_an_https_server_is_right():
    runtime = "  runtime: {target: cloud-run, server_url: 'https://api.example.com'}\n"
    assert found(NATS + runtime) == []


def test_cloud_run_needs_an_https_server():
    runtime = "  runtime: {target: cloud-run, server_url: 'http://api.example.com'}\n"
    assert found(NATS + runtime) == [("server_url_invalid", "11:44", "/spec/runtime/server_url")]


def test_the_limit_in_flight_is_one_number():
    lines = "  runtime: {max_in_flight: 1}\n  limits: {max_in_flight: 2}\n"
    assert found(NATS + lines) == [("limits_invalid", "12:27", "/spec/limits/max_in_flight")]


def test_a_push_cannot_wait_for_completion():
    text = HOOK.replace("parcels/scan", "parcels/scan, ack_after: completed") + BEARER
    assert found(text) == [("dispatch_invalid", "7:49", "/spec/dispatch/ack_after")]


@pytest.mark.parametrize("path", ["system", "System/auth"])
def test_a_playbook_of_the_platform_cannot_be_the_target(path):
    text = NATS.replace("plant/store_reading", path)
    assert found(text) == [("reserved_namespace", "10:24", "/spec/dispatch/playbook")]


# ---------------------------------------------------------------------------- scaling


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("  scaling: {keda: {trigger: kafka}}\n", [("11:29", "/spec/scaling/keda/trigger")]),
        (
            "  spool: {ordering: global}\n  scaling: {keda: {trigger: nats-jetstream, max: 2}}\n",
            [("12:50", "/spec/scaling/keda/max")],
        ),
        (
            "  scaling: {keda: {trigger: nats-jetstream, min: 3, max: 2}}\n",
            [("11:50", "/spec/scaling/keda/min")],
        ),
        ("  scaling: {}\n", []),
    ],
)
def test_scaling_fits_source_and_order(lines, expected):
    assert found(NATS + lines) == [("scaling_invalid", *item) for item in expected]


def test_a_webhook_has_no_lag_to_scale_by():
    text = HOOK + BEARER + "  scaling: {keda: {trigger: kafka}}\n"
    assert found(text) == [("scaling_invalid", "9:29", "/spec/scaling/keda/trigger")]


# ---------------------------------------------------------------------------- directives


def directive(text: str, more: str = "") -> list[tuple[str, str, str]]:
    return found(NATS + f"  headers:\n    directives:\n      - {text}\n{more}")


@pytest.mark.parametrize(
    ("text", "column", "pointer"),
    [
        ("{header: Cookie, controls: schema_hint}", 18, "/header"),
        ("{header: a, controls: dispatch.playbook}", 10, ""),
        ("{header: a, controls: dispatch.playbook, allowed: []}", 59, "/allowed"),
        ("{header: a, controls: dispatch.playbook, allowed: [system/a]}", 60, "/allowed/0"),
        ("{header: a, controls: dispatch.playbook, allowed: [a, b//c]}", 63, "/allowed/1"),
        ("{header: a, controls: dispatch.execution_pool, allowed: [a.b]}", 66, "/allowed/0"),
        ("{header: a, controls: dispatch.execution_pool, allowed: [system]}", 66, "/allowed/0"),
        ("{header: a, controls: priority}", 10, ""),
        ("{header: a, controls: priority, map: {}}", 46, "/map"),
        ("{header: a, controls: schema_hint, map: {a: b}}", 44, "/map"),
        ("{header: a, controls: idempotency_key, allowed: []}", 57, "/allowed"),
        ("{header: a, controls: content_type, allowed: ['']}", 55, "/allowed/0"),
    ],
)
def test_a_directive_is_bound_to_what_it_lists(text, column, pointer):
    assert directive(text) == [
        ("directive_invalid", f"13:{column}", f"/spec/headers/directives/0{pointer}")
    ]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{header: a, controls: dispatch.playbook}", "allowed"),
        ("{header: a, controls: dispatch.playbook, allowed: []}", "allowed"),
        ("{header: a, controls: priority}", "map"),
    ],
)
def test_the_message_names_the_key_that_lacks(text, word):
    parsed = parse(NATS + f"  headers:\n    directives:\n      - {text}\n")
    assert f"`{word}`" in parsed.errors[0].message


def test_directives_that_are_right_pass():
    assert directive("{header: a, controls: dispatch.execution_pool, allowed: [iot]}") == []
    assert directive("{header: a, controls: schema_hint}") == []
    assert directive("{header: a, controls: priority, allowed: [x], map: {x: fast}}") == []


def test_directives_need_headers():
    text = "{header: a, controls: schema_hint}"
    assert directive(text, "    normalize: false\n") == [
        ("directive_invalid", "12:5", "/spec/headers/directives")
    ]


def test_the_signature_header_of_the_listener_steers_nothing():
    lines = (
        "  ingress: {gateway_path: /ingress/a, verify: {type: github, secret: a}}\n"
        "  headers: {directives: [{header: X-Hub-Signature-256, controls: schema_hint}]}\n"
    )
    assert found(HOOK + lines) == [
        ("directive_invalid", "9:35", "/spec/headers/directives/0/header")
    ]


# ---------------------------------------------------------------------------- ingress


def test_push_needs_a_listener_and_pull_has_none():
    assert found(HOOK) == [("ingress_invalid", "5:3", "/spec")]
    assert found(NATS + BEARER) == [("ingress_invalid", "11:3", "/spec/ingress")]


@pytest.mark.parametrize(
    ("verify", "column", "pointer"),
    [
        ("{type: hmac_sha256, secret: a, template: '{timestamp}{body}'}", 54, "/template"),
        ("{type: hmac_sha256, secret: a, template: '{id}{body}'}", 54, "/template"),
        ("{type: api_key, secret: a, query: k}", 40, "/query"),
        ("{type: jwt, issuer: a, audience: b, algorithms: [HS256]}", 61, "/algorithms"),
    ],
)
def test_a_verifier_has_what_its_keys_ask_for(verify, column, pointer):
    lines = f"  ingress:\n    gateway_path: /ingress/a\n    verify: {verify}\n"
    assert found(HOOK + lines) == [
        ("ingress_invalid", f"10:{column}", f"/spec/ingress/verify{pointer}")
    ]


@pytest.mark.parametrize(
    "verify",
    [
        "{type: api_key, secret: a, query: k, allow_query: true}",
        "{type: jwt, issuer: a, audience: b, algorithms: [HS256], key: c}",
        "{type: hmac_sha256, secret: a, template: '{timestamp}{body}', timestamp: {header: t}}",
    ],
)
def test_a_verifier_with_what_its_keys_ask_for_passes(verify):
    assert found(HOOK + f"  ingress: {{gateway_path: /ingress/a, verify: {verify}}}\n") == []


# ---------------------------------------------------------------------------- spool


@pytest.mark.parametrize(
    ("text", "column", "pointer"),
    [
        ("{auth: a, credential: b}", 32, "/credential"),
        ("{ordering: global, drain: {on_recovery: interleave}}", 50, "/drain/on_recovery"),
        ("{mode: hybrid, backend: s3}", 11, ""),
        ("{mode: hybrid, backend: nats_object}", 11, ""),
        ("{mode: hybrid, backend: local_disk}", 11, ""),
        ("{mode: hybrid, backend: local_disk, path: a, bucket: b}", 55, "/bucket"),
        ("{mode: hybrid, backend: local_disk, path: a/../b}", 52, "/path"),
        ("{mode: hybrid, backend: s3, bucket: a, path: b}", 49, "/path"),
        ("{mode: hybrid, backend: gcs, bucket: 's3://a'}", 47, "/bucket"),
    ],
)
def test_a_spool_has_what_its_backend_asks_for(text, column, pointer):
    assert found(NATS + f"  spool: {text}\n") == [
        ("spool_invalid", f"11:{column}", f"/spec/spool{pointer}")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{auth: a, credential: a}",
        "{backend: s3}",
        "{mode: off, backend: s3}",
        "{mode: hybrid}",
        "{mode: hybrid, backend: gcs, bucket: 'gs://a/b'}",
        "{mode: hybrid, backend: local_disk, path: spool/a}",
    ],
)
def test_a_spool_that_is_off_or_complete_passes(text):
    assert found(NATS + f"  spool: {text}\n") == []


def test_a_push_buffers_unless_told_otherwise():
    assert found(HOOK + BEARER + "  spool: {backend: s3}\n") == [
        ("spool_invalid", "9:11", "/spec/spool")
    ]


@pytest.mark.parametrize(
    ("text", "column", "pointer"),
    [
        ("[{name: a}, {name: a}]", 52, "/1/name"),
        ("[{name: a, probe: tcp}]", 35, "/0"),
        ("[{name: a, probe: tcp, target: nowhere}]", 64, "/0/target"),
        ("[{name: a, probe: http, target: 'tsdb:80'}]", 65, "/0/target"),
        ("[{name: a, target: 'tsdb:80'}]", 35, "/0"),
    ],
)
def test_a_downstream_can_be_told_apart_and_probed(text, column, pointer):
    assert found(NATS + f"  spool: {{circuit: {{downstream: {text}}}}}\n") == [
        ("spool_invalid", f"11:{column}", f"/spec/spool/circuit/downstream{pointer}")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{name: a}",
        "{name: a, probe: passive, target: x}",
        "{name: a, type: tcp, target: '[::1]:80'}",
        "{name: a, probe: http, target: 'https://a/health'}",
        "{name: a, probe: nats, target: 'nats://a:4222'}",
    ],
)
def test_a_downstream_that_can_be_probed_passes(text):
    assert found(NATS + f"  spool: {{circuit: {{downstream: [{text}]}}}}\n") == []


def test_parts_that_could_not_be_read_raise_no_further_faults():
    lines = "  runtime: 1\n  limits: 1\n  headers: 1\n  spool: 1\n  scaling: 1\n"
    assert [code for code, _, _ in found(NATS + lines)] == [
        "runtime_invalid", "limits_invalid", "directive_invalid", "spool_invalid",
        "scaling_invalid",
    ]  # fmt: skip
