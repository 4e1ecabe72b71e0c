"""Who may do what with subscriptions, and who is given their secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from noetl.api.events import Reports
from noetl.api.runtime import WorkerEntry
from noetl.api.subscriptions import LettersWanted, PutDeadLetter
from noetl.secrets.sealed import KeyPair, Sealed, about_delivery
from noetl.store.identity import Grant, RoleRow
from tests.unit.server.identity.people import account, caller, client_of, refusal, token
from tests.unit.server.rig import Rig, rig, virtually
from tests.unit.server.subscriptions.stage import (
    NATS,
    PATH,
    PLAYBOOK,
    document,
    message,
    report,
)

if TYPE_CHECKING:
    from noetl.api.client import Client

SCHEDULED = f"{NATS}, activation: scheduled, cadence: 1h, runtime: {{pool: meters}}"


async def prepared(r: Rig, spec: str = NATS) -> tuple[str, Client]:
    """A subscription, and the admin who has made it."""
    admin = await caller(r, "ada", "admin")
    await admin.register(Register(content=PLAYBOOK))
    await admin.register(Register(content=document(spec=spec)))
    return (await admin.register_subscription(PATH)).subscription_id, admin


async def names(client: Client, sub: str) -> list[str]:
    return [row["event_type"] for row in (await client.events(sub, limit=100)).items]


@virtually
async def test_who_may_not_steer_gets_403_and_nothing_is_appended() -> None:
    async with rig(is_open=False) as r:
        sub, admin = await prepared(r)
        viewer = await caller(r, "eve", "viewer")
        assert (await viewer.subscription(sub)).path == PATH
        assert len((await viewer.subscriptions()).subscriptions) == 1
        assert await names(viewer, sub) == ["subscription.registered"]
        for asked in (
            viewer.steer_subscription(sub, "activate"),
            viewer.redrive(sub, LettersWanted(all=True)),
            viewer.discard(sub, LettersWanted(all=True)),
            viewer.register_subscription(PATH),
        ):
            assert (await refusal(asked))[0] == 403
        assert await names(admin, sub) == ["subscription.registered"]
        operator = await caller(r, "olga", "operator")
        made = await operator.steer_subscription(sub, "activate", "morning")
        assert (made.state, made.actor, made.reason) == ("ACTIVE", "olga", "morning")


@virtually
async def test_only_services_may_send_ingress_and_report() -> None:
    async with rig(is_open=False) as r:
        sub, admin = await prepared(r)
        developer = await caller(r, "dan", "developer")
        for client in (admin, developer):
            assert await refusal(client.execute(message(sub))) == (403, "field_not_allowed")
        worker = await caller(r, "wim", "worker")
        assert (await refusal(worker.execute(message(sub))))[0] == 403
        letter = PutDeadLetter(ref="a", message_id="m", reason="x", item={})
        assert (await refusal(admin.put_dead_letter(sub, letter)))[0] == 403
        body = Reports(worker_id="x", pool="", events=(report(r, sub, "spool.full"),))
        answer = await worker.report(body)
        assert [item.code for item in answer.results] == ["forbidden"]
        for role in ("runtime", "gateway", "system"):
            client = await caller(r, f"a-{role}", role)
            assert (await client.execute(message(sub))).status in {"started", "duplicate"}
            batch = await client.execute_batch((message(sub, 2),))
            assert batch.failed == 0
            event = report(r, sub, "spool.full")
            answer = await client.report(Reports(worker_id="x", pool="", events=(event,)))
            assert [item.outcome for item in answer.results] == ["stored"]


@virtually
async def test_a_runtime_that_is_given_paths_has_those_and_no_others() -> None:
    async with rig(is_open=False) as r:
        sub, admin = await prepared(r)
        await admin.register(Register(content=document("other/one")))
        other = (await admin.register_subscription("other/one")).subscription_id
        grants = (
            Grant(effect="allow", actions=("subscription:read",), path="subs/*"),
            Grant(effect="allow", actions=("subscription:control",), path="subs/*"),
        )
        await r.store.rights.put(RoleRow(name="plant", grants=grants))
        runtime = await caller(r, "rt", "runtime", "plant")
        assert (await runtime.steer_subscription(sub, "activate")).state == "ACTIVE"
        assert [one.path for one in (await runtime.subscriptions()).subscriptions] == [PATH]
        assert (await runtime.execute(message(sub))).status == "started"
        for asked in (
            runtime.steer_subscription(other, "activate"),
            runtime.subscription(other),
            runtime.execute(message(other)),
        ):
            assert (await refusal(asked))[0] == 403
        unset = r.plane.parts.internal_tokens
        assert unset == ()


@virtually
async def test_shared_documents_are_for_runtimes_and_gateways() -> None:
    async with rig(is_open=False, internal_tokens=("internal",)) as r:
        _, admin = await prepared(r)
        assert (await refusal(admin.circuit(f"{PATH}.tsdb")))[0] == 403
        for role in ("runtime", "gateway"):
            client = await caller(r, f"a-{role}", role)
            await client.put_circuit(f"{PATH}.{role}", {"phase": "open"}, None)
            assert (await client.circuit(f"{PATH}.{role}")).state == {"phase": "open"}
        await r.store.rights.put(
            RoleRow(
                name="plant",
                grants=(Grant(effect="allow", actions=("subscription:control",), path="subs/*"),),
            )
        )
        bound = await caller(r, "rt", "runtime", "plant")
        await bound.put_circuit(f"drain.{PATH}", {"holder": "a"}, None)
        await bound.put_circuit(f"{PATH}.server", {"phase": "open"}, None)
        assert (await refusal(bound.put_circuit("other/one.server", {}, None)))[0] == 403


@virtually
async def test_a_subscription_of_another_tenant_is_none() -> None:
    async with rig(is_open=False) as r:
        sub, _ = await prepared(r)
        stranger = await caller(r, "sam", "admin", tenant_id="other")
        assert await refusal(stranger.subscription(sub)) == (404, "unknown_subscription")
        assert (await refusal(stranger.events(sub)))[0] == 404
        assert (await stranger.subscriptions()).subscriptions == ()
        assert await refusal(stranger.register_subscription(PATH)) == (404, "unknown_subscription")


async def _listener(r: Rig, keys: KeyPair, *roles: str) -> Client:
    client = await caller(r, f"rt-{'-'.join(roles)}", *roles)
    runtime = {"worker_public_key": keys.public, "subscriptions": [PATH]}
    await client.register_worker(WorkerEntry(name="rt-1", kind="subscription", runtime=runtime))
    return client


@virtually
async def test_a_runtime_is_given_what_its_subscription_names_and_nothing_else() -> None:
    async with rig(is_open=False) as r:
        sub, admin = await prepared(r)
        for name in ("nats_plant", "other"):
            body = CredentialPut(name=name, type="nats", data={"url": "nats://x", "password": "p"})
            await admin.put_credential(body)
        keys = KeyPair.make()
        runtime = await _listener(r, keys, "runtime")
        asked = {"process": "rt-1", "subscription_id": sub}
        answer = await runtime.sealed_for_listener("nats_plant", **asked)
        given = Sealed(
            alg=answer.alg, v=answer.v, eph_pub=answer.eph_pub, ciphertext=answer.ciphertext
        )
        about = about_delivery("rt-1", sub, "nats_plant")
        assert '"password":"p"' in keys.open(given, about).decode()
        assert (await refusal(runtime.sealed_for_listener("other", **asked)))[0] == 403
        assert (await refusal(admin.sealed_for_listener("nats_plant", **asked)))[0] == 403
        asked["process"] = "nobody"
        _, code = await refusal(runtime.sealed_for_listener("nats_plant", **asked))
        assert code == "worker_key_missing"


@virtually
async def test_a_worker_drains_only_what_is_drained_by_the_clock_on_its_pool() -> None:
    async with rig(is_open=False) as r:
        sub, _ = await prepared(r, SCHEDULED)
        worker = await caller(r, "wim", "worker")
        assert (await worker.execute(message(sub))).status == "started"
        event = report(r, sub, "message.dead_lettered", ref="a", message_id="m", reason="x")
        answer = await worker.report(Reports(worker_id="w", pool="meters", events=(event,)))
        assert [item.outcome for item in answer.results] == ["stored"]
        letter = PutDeadLetter(ref="b", message_id="m2", reason="dispatch_rejected", item={})
        assert (await worker.put_dead_letter(sub, letter)).message_id == "m2"
        assert (await refusal(worker.subscription(sub)))[0] == 403
        row = await account(r, "pooled", "worker")
        other = client_of(r, await token(r, row, pool="other"))
        assert (await refusal(other.execute(message(sub, 9))))[0] == 403
