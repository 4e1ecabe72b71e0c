"""What gateways are told of listeners: in every state, with secrets that only one of them opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.secrets.sealed import CannotOpen, KeyPair, Sealed, about_delivery
from tests.unit.server.identity.people import caller, client_of, refusal
from tests.unit.server.pushed.stage import LISTENER, PATH, PUSH, SECRET, gateway, pushed, put
from tests.unit.server.rig import rig, virtually
from tests.unit.server.subscriptions.stage import document, registered

if TYPE_CHECKING:
    from noetl.api.ingress import IngressListener

INNER = "the-internal-token-of-this-rig"
SHUT = {"is_open": False, "internal_tokens": (INNER,)}
WHERE = f"/api/internal/ingress/{LISTENER}?process=gw-1"
DIRECTIVE = "{header: x-route, controls: dispatch.playbook, allowed: [plant/other]}"


def opened(found: IngressListener, keys: KeyPair, alias: str, process: str = "gw-1") -> Any:
    answer = found.secrets[alias]
    given = Sealed(alg=answer.alg, v=answer.v, eph_pub=answer.eph_pub, ciphertext=answer.ciphertext)
    about = about_delivery(process, f"ingress:{found.listener}", alias)
    return msgspec.json.decode(keys.open(given, about))


@virtually
async def test_a_gateway_is_told_of_a_listener_with_its_secrets_sealed() -> None:
    async with rig() as r:
        beside = (
            f", headers: {{directives: [{DIRECTIVE}]}}, limits: {{max_dispatch_per_sec: 9}}, "
            "spool: {mode: buffer_and_ack, backend: s3, bucket: 's3://b/x', auth: spool_bucket}"
        )
        sub = await pushed(
            r, more=", dedup: {key: 'header:x-id'}, challenge: {type: meta, verify_token: meta}",
            beside=beside,
        )  # fmt: skip
        await put(r.client, "hook_old", "old")
        await put(r.client, "meta", "meta-token")
        await put(r.client, "spool_bucket", "k")
        await put(r.client, "unnamed", "k")
        keys = await gateway(r.client)
        found = await r.client.ingress_listener(LISTENER, "gw-1")
        assert (found.listener, found.catalog_path, found.subscription_id) == (LISTENER, PATH, sub)
        assert (found.version, found.source, found.state) == (1, "webhook", "REGISTERED")
        assert found.tenant_id == "default"
        assert found.verify["secret"] == ["hook", "hook_old"]
        assert found.dispatch == {"playbook": "plant/store"}
        assert found.directives[0]["allowed"] == ["plant/other"]
        assert found.spool["bucket"] == "s3://b/x"
        assert found.dedup == {"key": "header:x-id"}
        assert found.limits == {"max_dispatch_per_sec": 9}
        assert "kind: Subscription" in found.document
        assert found.secrets.keys() == {"hook", "hook_old", "meta", "spool_bucket"}
        assert opened(found, keys, "hook") == {"type": "secret", "data": {"value": SECRET}}
        answer = await r.client.raw("GET", WHERE)
        assert SECRET.encode() not in answer.body
        assert answer.headers["etag"] == f'"{found.etag}"'
        assert "max-age=30" in answer.headers["cache-control"]
        same = await r.client.raw("GET", WHERE, headers={"if-none-match": answer.headers["etag"]})
        assert (same.status, same.body) == (304, b"")


@virtually
async def test_it_is_told_in_every_state_and_its_tag_changes_with_anything() -> None:
    async with rig() as r:
        sub = await pushed(r)
        await gateway(r.client)
        tags, states = [], []

        async def look() -> None:
            found = await r.client.ingress_listener(LISTENER, "gw-1")
            assert (await r.client.ingress_listener(LISTENER, "gw-1")).etag == found.etag
            tags.append(found.etag)
            states.append(found.state)

        await look()
        for action in ("activate", "pause", "resume", "drain", "deactivate"):
            await r.client.steer_subscription(sub, action)
            await look()
        await put(r.client, "hook", "another")
        await look()
        await put(r.client, "hook_old", "one more")
        await look()
        content = document(PATH, PUSH % (LISTENER, ", body_limit: 2Mi"))
        await r.client.register(Register(content=content))
        await look()
        assert states[:6] == [
            "REGISTERED", "ACTIVE", "PAUSED", "ACTIVE", "DRAINING", "DEACTIVATED",
        ]  # fmt: skip
        assert len(set(tags)) == len(tags) - 1, "resumed is as activated"
        assert SECRET not in "".join(tags)


@virtually
async def test_a_secret_that_is_gone_takes_no_other_one_with_it() -> None:
    async with rig() as r:
        await pushed(r)
        await put(r.client, "hook_old", "old")
        await gateway(r.client)
        found = await r.client.ingress_listener(LISTENER, "gw-1")
        assert found.secrets.keys() == {"hook", "hook_old"}
        await r.client.delete_credential("hook_old", force=True)
        found = await r.client.ingress_listener(LISTENER, "gw-1")
        assert found.secrets.keys() == {"hook"}


@virtually
async def test_unknown_listeners_and_gateways_without_keys_are_refused() -> None:
    async with rig() as r:
        await pushed(r)
        asked = r.client.ingress_listener
        assert await refusal(asked("nobody", "gw-1")) == (404, "unknown_listener")
        status, code = await refusal(asked(LISTENER, "gw-1"))
        assert code == "worker_key_missing"
        assert status in {400, 409, 422}
        answer = await r.client.raw("GET", f"/api/internal/ingress/{LISTENER}")
        assert answer.status == 422
        keys = await gateway(r.client)
        found = await asked(LISTENER, "gw-1")
        await gateway(r.client, "gw-2")
        other = await asked(LISTENER, "gw-2")
        assert opened(found, keys, "hook")["data"]["value"] == SECRET
        with pytest.raises(CannotOpen):
            opened(other, keys, "hook", "gw-2")
        with pytest.raises(CannotOpen):
            opened(found, keys, "hook", "gw-2")


@virtually
async def test_only_gateways_are_told_and_each_look_is_audited() -> None:
    async with rig(**SHUT) as r:
        admin = await caller(r, "ada", "admin")
        await pushed(r, admin)
        gate = await caller(r, "gate", "gateway")
        await gateway(gate)
        assert (await gate.ingress_listener(LISTENER, "gw-1")).state == "REGISTERED"
        assert (await gate.ingress_listeners()).listeners == (LISTENER,)
        inner = client_of(r, INNER)
        assert (await inner.ingress_listeners()).listeners == (LISTENER,)
        for number, role in enumerate(("admin", "developer", "viewer", "worker", "runtime")):
            other = await caller(r, f"other-{number}", role)
            assert (await refusal(other.ingress_listener(LISTENER, "gw-1")))[0] == 403
            assert (await refusal(other.ingress_listeners()))[0] == 403
        tag = (await gate.ingress_listener(LISTENER, "gw-1")).etag
        given = r.server.plane.metrics.credentials_sealed.value("ok")
        assert await gate.ingress_listener(LISTENER, "gw-1", tag) is None
        assert await gate.ingress_listener(LISTENER, "gw-1", "another") is not None
        assert r.server.plane.metrics.credentials_sealed.value("ok") == given + 1
        rows = [row for row in await r.store.audit.read() if row.action == "secret.seal"]
        assert [(row.actor, row.resource) for row in rows if row.outcome == "ok"] == [
            ("gate", LISTENER)
        ] * 3, "who is told that nothing has changed is given nothing"
        assert rows[0].details["worker_id"] == "gw-1"


@virtually
async def test_people_do_not_make_gateways_known() -> None:
    async with rig(**SHUT) as r:
        for role in ("admin", "developer"):
            person = await caller(r, role, role)
            assert (await refusal(gateway(person, uri="http://evil")))[0] == 403
        assert await r.store.runtimes.listed("gateway") == []
        await gateway(client_of(r, INNER))


@virtually
async def test_those_are_named_for_whom_something_may_wait() -> None:
    async with rig() as r:
        await registered(r)
        first = await pushed(r)
        await pushed(r, listener="off", beside=", spool: {mode: 'off'}")
        await pushed(r, listener="plain")
        assert (await r.client.ingress_listeners()).listeners == (LISTENER, "plain")
        await r.client.steer_subscription(first, "deactivate")
        assert (await r.client.ingress_listeners()).listeners == ("plain",)
