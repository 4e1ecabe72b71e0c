"""Every rule of a Subscription document has a refusal with its own code and place.

A key that is missing is told at the map that should have it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.problems import Refused
from tests.unit.server.identity.people import caller, refusal
from tests.unit.server.rig import rig, virtually

NATS: dict[str, Any] = {
    "source": "nats", "mode": "pull", "auth": "nats_plant", "stream": "PLANT",
    "consumer": "meters", "dispatch": {"playbook": "plant/store"},
}  # fmt: skip
HMAC = {"type": "hmac_sha256", "secret": "hook", "header": "x-signature"}
PUSH: dict[str, Any] = {
    "source": "webhook", "mode": "push", "dispatch": {"playbook": "plant/store"},
    "ingress": {"gateway_path": "/ingress/orders", "verify": HMAC},
}  # fmt: skip
SCHEDULED = NATS | {"activation": "scheduled", "cadence": "5m"}
GONE = object()
LITERAL = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def document(spec: Any, **top: Any) -> str:
    made = {
        "apiVersion": "noetl.io/v1",
        "kind": "Subscription",
        "metadata": {"name": "meters", "path": "subs/meters"},
        "spec": spec,
    } | top
    return msgspec.json.encode({k: v for k, v in made.items() if v is not GONE}).decode()


def spec(base: dict[str, Any] = NATS, /, **changes: Any) -> dict[str, Any]:
    """A right spec with changes; `a__b` is a key within a section."""
    made = deepcopy(base)
    for name, value in changes.items():
        *above, last = name.split("__")
        box = made
        for part in above:
            box = box.setdefault(part, {})
        if value is GONE:
            box.pop(last, None)
        else:
            box[last] = value
    return made


def directives(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return spec(headers={"directives": list(rules), **more})


ROUTE = {"header": "x-route", "controls": "dispatch.playbook"}
SPOOL = {"mode": "buffer_and_ack", "backend": "local_disk", "path": "spool"}
KEDA = {"trigger": "nats-jetstream", "min": 0, "max": 2, "lag_threshold": 5}
ROWS: list[tuple[str, str, str]] = [
    (document(NATS, apiVersion="noetl.io/v3"), "subscription_api_version", "/apiVersion"),
    (document(NATS, apiVersion=GONE), "subscription_api_version", ""),
    (document(NATS, metadata={"name": "m", "path": "a//b"}), "path_invalid", "/metadata/path"),
    (document(NATS, metadata={"name": "m"}), "path_invalid", "/metadata"),
    (document(GONE), "subscription_spec_missing", ""),
    (document([]), "subscription_spec_missing", "/spec"),
    (document(spec(source="amqp")), "source_invalid", "/spec/source"),
    (document(spec(source=GONE)), "source_invalid", "/spec"),
    (document(spec(mode="both")), "mode_invalid", "/spec/mode"),
    (document(spec(mode="push")), "mode_invalid", "/spec/mode"),
    (document(spec(PUSH, mode="pull")), "mode_invalid", "/spec/mode"),
    (document(spec(activation="sometimes")), "activation_invalid", "/spec/activation"),
    (document(spec(PUSH, activation="scheduled")), "activation_invalid", "/spec/activation"),
    (document(spec(SCHEDULED, cadence=GONE)), "cadence_invalid", "/spec"),
    (document(spec(SCHEDULED, cadence="25h")), "cadence_invalid", "/spec/cadence"),
    (document(spec(SCHEDULED, cadence="* * *")), "cadence_invalid", "/spec/cadence"),
    (document(spec(cadence="5m")), "cadence_invalid", "/spec/cadence"),
    (document(spec(SCHEDULED, cadence="0 * * * *", timezone="Mars/One")), "timezone_invalid",
     "/spec/timezone"),
    (document(spec(SCHEDULED, timezone="UTC")), "timezone_invalid", "/spec/timezone"),
    (document(spec(SCHEDULED, overlap="queue")), "cadence_invalid", "/spec/overlap"),
    (document(spec(SCHEDULED, max_drains_per_tick=0)), "cadence_invalid",
     "/spec/max_drains_per_tick"),
    (document(spec(stream=GONE)), "source_field_missing", "/spec"),
    (document(spec(consumer=GONE)), "source_field_missing", "/spec"),
    (document(spec(auth=GONE)), "connection_missing", "/spec"),
    (document(spec(runtime__target="moon")), "runtime_invalid", "/spec/runtime/target"),
    (document(spec(runtime__pool="a.b")), "pool_invalid", "/spec/runtime/pool"),
    (document(spec(runtime__pool="system")), "reserved_pool", "/spec/runtime/pool"),
    (document(spec(runtime__batch=1001)), "runtime_invalid", "/spec/runtime/batch"),
    (document(spec(runtime__timeout_ms=30_001)), "runtime_invalid", "/spec/runtime/timeout_ms"),
    (document(spec(runtime__max_in_flight=5, limits__max_in_flight=6)), "limits_invalid",
     "/spec/limits/max_in_flight"),
    (document(spec(runtime__max_in_flight=0)), "limits_invalid", "/spec/runtime/max_in_flight"),
    (document(spec(runtime__concurrency=257)), "runtime_invalid", "/spec/runtime/concurrency"),
    (document(spec(runtime__max_instances=0)), "runtime_invalid", "/spec/runtime/max_instances"),
    (document(spec(runtime__target="cloud-run", runtime__server_url="http://x")),
     "server_url_invalid", "/spec/runtime/server_url"),
    (document(spec(dispatch=GONE)), "dispatch_playbook_missing", "/spec"),
    (document(spec(dispatch={})), "dispatch_playbook_missing", "/spec/dispatch"),
    (document(spec(dispatch__playbook="system/x")), "reserved_namespace",
     "/spec/dispatch/playbook"),
    (document(spec(dispatch__payload_from="message")), "payload_from_invalid",
     "/spec/dispatch/payload_from"),
    *(
        (document(spec(dispatch__execution_pool=pool)), code, "/spec/dispatch/execution_pool")
        for pool, code in (("a.b", "pool_invalid"), ("*", "pool_invalid"), (">", "pool_invalid"),
                           ("system", "reserved_pool"))
    ),
    (document(spec(dispatch__batch_dispatch="yes please")), "dispatch_invalid",
     "/spec/dispatch/batch_dispatch"),
    (document(spec(dispatch__batch_max=0)), "dispatch_invalid", "/spec/dispatch/batch_max"),
    (document(spec(dispatch__ack_after="later")), "dispatch_invalid", "/spec/dispatch/ack_after"),
    (document(spec(PUSH, dispatch__ack_after="completed")), "dispatch_invalid",
     "/spec/dispatch/ack_after"),
    (document(spec(dedup__window_secs=0)), "dedup_invalid", "/spec/dedup/window_secs"),
    (document(spec(dedup__enabled="x")), "dedup_invalid", "/spec/dedup/enabled"),
    (document(spec(limits__max_dispatch_per_sec=0)), "limits_invalid",
     "/spec/limits/max_dispatch_per_sec"),
    (document(directives(ROUTE)), "directive_invalid", "/spec/headers/directives/0"),
    (document(directives(ROUTE | {"allowed": []})), "directive_invalid",
     "/spec/headers/directives/0/allowed"),
    (document(directives({"header": "x-p", "controls": "priority"})), "directive_invalid",
     "/spec/headers/directives/0"),
    (document(directives(ROUTE | {"controls": "auth"})), "directive_invalid",
     "/spec/headers/directives/0/controls"),
    (document(directives({"header": "Cookie", "controls": "schema_hint"})), "directive_invalid",
     "/spec/headers/directives/0/header"),
    (document(spec(headers={"trace": {"propagate": "b3"}})), "directive_invalid",
     "/spec/headers/trace/propagate"),
    (document(spec(spool={"mode": "on"})), "spool_invalid", "/spec/spool/mode"),
    (document(spec(spool=SPOOL | {"retention": {"max_bytes": "lots"}})), "spool_invalid",
     "/spec/spool/retention/max_bytes"),
    (document(spec(spool=SPOOL | {"ordering": "global", "drain": {"on_recovery": "interleave"}})),
     "spool_invalid", "/spec/spool/drain/on_recovery"),
    (document(spec(PUSH, ingress=GONE)), "ingress_invalid", "/spec"),
    (document(spec(PUSH, ingress__gateway_path="/hooks/x")), "ingress_invalid",
     "/spec/ingress/gateway_path"),
    (document(spec(PUSH, ingress__verify={"type": "none"})), "verify_none",
     "/spec/ingress/verify/type"),
    (document(spec(PUSH, ingress__verify=GONE)), "ingress_invalid", "/spec/ingress"),
    (document(spec(PUSH, ingress__verify__type="md5")), "ingress_invalid",
     "/spec/ingress/verify/type"),
    (document(spec(PUSH, ingress__verify__secret=GONE)), "ingress_invalid",
     "/spec/ingress/verify"),
    (document(spec(PUSH, ingress__verify__secret=LITERAL)), "ingress_invalid",
     "/spec/ingress/verify/secret"),
    (document(spec(PUSH, ingress__verify__secret=["hook", LITERAL])), "ingress_invalid",
     "/spec/ingress/verify/secret/1"),
    (document(spec(PUSH, ingress__keep_rejected="maybe")), "ingress_invalid",
     "/spec/ingress/keep_rejected"),
    (document(spec(PUSH, activation="continuous")), "activation_invalid", "/spec/activation"),
    *(
        (document(spec(PUSH, headers={"directives": [rule]})), "directive_invalid",
         f"/spec/headers/directives/0{place}")
        for rule, place in (
            (ROUTE | {"allowed": []}, "/allowed"),
            ({"header": "x-p", "controls": "priority", "map": {}}, "/map"),
            (ROUTE | {"controls": "credential"}, "/controls"),
            (ROUTE | {"controls": "auth"}, "/controls"),
            ({"header": "Authorization", "controls": "schema_hint"}, "/header"),
            ({"header": "X-Signature", "controls": "schema_hint"}, "/header"),
        )
    ),
    (document(spec(scaling={"keda": KEDA | {"trigger": "cpu"}})), "scaling_invalid",
     "/spec/scaling/keda/trigger"),
    (document(spec(scaling={"keda": KEDA | {"min": 3}})), "scaling_invalid",
     "/spec/scaling/keda/min"),
    (document(spec(scaling={"keda": KEDA}, spool=SPOOL | {"ordering": "global"})),
     "scaling_invalid", "/spec/scaling/keda/max"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "code", "pointer"),
    ROWS,
    ids=[f"{place}-{row[1]}-{row[2].strip('/')}" for place, row in enumerate(ROWS)],
)
def test_a_wrong_document_is_422_with_its_code_and_pointer(
    content: str, code: str, pointer: str
) -> None:
    @virtually
    async def check() -> None:
        async with rig() as r:
            with pytest.raises(Refused) as refused:
                await r.client.register(Register(content=content))
            problem = refused.value.problem
            found = [(item["code"], item["pointer"]) for item in problem.errors]
            assert problem.status == 422
            assert (code, pointer) in found, found
            assert problem.code == found[0][0]
            assert (await r.client.subscriptions()).subscriptions == ()

    check()


@virtually
async def test_all_faults_are_told_at_once() -> None:
    async with rig() as r:
        wrong = spec(source="amqp", runtime__pool="a.b", dedup__window_secs=0)
        with pytest.raises(Refused) as refused:
            await r.client.register(Register(content=document(wrong)))
        codes = {item["code"] for item in refused.value.problem.errors}
        assert codes == {"source_invalid", "pool_invalid", "dedup_invalid"}


@virtually
async def test_right_documents_are_taken() -> None:
    async with rig() as r:
        for place, right in enumerate((NATS, PUSH, SCHEDULED)):
            told = {"metadata": {"name": "m", "path": f"subs/{place}"}}
            made = await r.client.register(Register(content=document(right, **told)))
            assert made.kind == "subscription"
        assert len((await r.client.subscriptions()).subscriptions) == 3


@virtually
async def test_a_workflow_and_unknown_keys_are_refused_and_x_keys_are_free() -> None:
    async with rig() as r:
        unknown = spec(PUSH, ingress__verify__colour="red")
        for content in (
            document(NATS, workflow=[]), document(spec(colour="red")), document(unknown),
        ):  # fmt: skip
            with pytest.raises(Refused) as refused:
                await r.client.register(Register(content=content))
            assert refused.value.problem.status == 422
        assert refused.value.problem.errors[0]["pointer"] == "/spec/ingress/verify/colour"
        await r.client.register(Register(content=document(NATS | {"x-note": 1})))


@virtually
async def test_a_path_under_system_is_for_the_platform() -> None:
    async with rig(is_open=False) as r:
        developer = await caller(r, "dan", "developer")
        content = document(NATS, metadata={"name": "m", "path": "system/m"})
        asked = developer.register(Register(content=content))
        assert (await refusal(asked))[1] == "reserved_namespace"


@virtually
async def test_a_secret_in_the_clear_is_in_no_answer() -> None:
    async with rig() as r:
        content = document(spec(PUSH, ingress__verify__secret=LITERAL))
        with pytest.raises(Refused) as refused:
            await r.client.register(Register(content=content))
        assert refused.value.problem.status == 422
        assert LITERAL not in msgspec.json.encode(refused.value.problem).decode()
