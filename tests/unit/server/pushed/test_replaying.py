"""Deliveries once more: one, many by a filter, and a rejected one through a gateway."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest

from noetl.api.catalog import Register, Removal
from noetl.api.executions import Control
from noetl.api.http import Late, NoAnswer
from noetl.api.ingress import DeliveryFilter, KeepRejected, ReplayDeliveries, Replayed
from noetl.api.problems import Refused
from tests.unit.server.identity.people import caller, client_of, refusal
from tests.unit.server.pushed.stage import (
    AT,
    LISTENER,
    SECRET,
    FakeGateway,
    delivery,
    gateway,
    pushed,
    put,
    taken,
    tell,
    wish,
)
from tests.unit.server.rig import Rig, rig, virtually
from tests.unit.server.subscriptions.stage import PLAYBOOK, TARGET, document, facts

INNER = "the-internal-token-of-this-rig"
SHUT = {"is_open": False, "internal_tokens": (INNER,)}
KEEPS = ", keep_rejected: true"
KEPT = KeepRejected(
    headers=(("x-signature", "bad"),), body=base64.b64encode(b'{"n":1}').decode(), query="a=1"
)


def rejected(number: int, **more) -> object:
    return delivery(number, outcome="rejected", reason="bad_signature", status=401, **more)


@virtually
async def test_a_replay_is_a_new_run_with_the_same_workload() -> None:
    async with rig() as r:
        sub = await pushed(r)
        first = await taken(r, sub)
        made = await r.client.replay_delivery(sub, "1", "again")
        assert (made.delivery_id, made.status) == ("1", "started")
        assert made.execution_id != first
        rows = (await r.client.events(made.execution_id, limit=10)).items
        assert rows[0]["meta"]["replay_of"] == "1"
        about = rows[0]["meta"]["subscription"]
        assert (about["id"], about["message_id"], about["replay_of"]) == (sub, "m1", "1")
        assert rows[1]["event_type"] == "subscription.message.accepted"
        found = await r.client.execution(made.execution_id)
        before = await r.client.execution(first)
        assert (found.workload, found.pool, found.parent_execution_id) == (
            before.workload, before.pool, sub,
        )  # fmt: skip
        page = (await r.client.deliveries(sub)).items
        assert [(one.replay_of, one.execution_id, one.message_id) for one in page] == [
            ("1", made.execution_id, "m1"), (None, first, "m1"),
        ]  # fmt: skip
        again = await r.client.replay_delivery(sub, "1")
        assert again.status == "started"
        assert again.execution_id not in {first, made.execution_id}
        assert await r.client.delivery(sub, "1") == page[1]


@virtually
async def test_a_replay_runs_the_newest_version_of_its_playbook() -> None:
    async with rig() as r:
        sub = await pushed(r)
        await taken(r, sub)
        content = PLAYBOOK.replace("return 1", "return 2")
        newest = await r.client.register(Register(content=content))
        made = await r.client.replay_delivery(sub, "1")
        found = await r.client.execution(made.execution_id)
        assert (found.path, found.version) == (TARGET, newest.version)


@virtually
async def test_duplicates_and_what_waited_are_replayed_from_their_run() -> None:
    async with rig() as r:
        sub = await pushed(r)
        first = await taken(r, sub)
        await tell(
            r.client, sub,
            delivery(2, outcome="duplicate", execution_id=first),
            delivery(3, outcome="spooled"), delivery(4, outcome="spooled"),
            delivery(5, outcome="dead_lettered"),
        )  # fmt: skip
        assert (await r.client.replay_delivery(sub, "2")).status == "started"
        waiting = await r.client.replay_delivery(sub, "3")
        assert waiting == Replayed(delivery_id="3", status="not_replayable", code="not_retryable")
        assert (await r.client.replay_delivery(sub, "5")).status == "not_replayable"
        drained = await r.client.execute(wish(sub, 3, ingress={"spool_ref": "noetl://spool/a/1/m"}))
        assert (await r.client.delivery(sub, "3")).execution_id == drained.execution_id
        bodies = tuple(
            wish(sub, n, ingress={"spool_ref": f"noetl://spool/a/{n}/m"}) for n in (3, 4)
        )
        batch = await r.client.execute_batch(bodies)
        assert [item.status for item in batch.results] == ["duplicate", "started"]
        found = (await r.client.delivery(sub, "4")).execution_id
        assert found == batch.results[1].execution_id
        assert (await r.client.replay_delivery(sub, "3")).status == "started"
        assert (await r.client.replay_delivery(sub, "4")).status == "started"


@virtually
async def test_what_is_not_there_is_not_replayed() -> None:
    async with rig() as r:
        sub = await pushed(r)
        await tell(r.client, sub, delivery(1, execution_id="4711"), rejected(2))
        gone = await r.client.replay_delivery(sub, "1")
        assert (gone.status, gone.code) == ("not_replayable", "unknown_execution")
        bare = await r.client.replay_delivery(sub, "2")
        assert (bare.status, bare.code) == ("not_replayable", "result_gone")
        assert await refusal(r.client.replay_delivery(sub, "3")) == (404, "not_found")
        assert await refusal(r.client.delivery(sub, "3")) == (404, "not_found")
        assert (await refusal(r.client.replay_delivery("12", "1")))[1] == "unknown_subscription"
        assert (await refusal(r.client.replay_delivery(sub, "x")))[1] == "invalid_id"


@virtually
async def test_a_filter_chooses_and_the_oldest_come_first() -> None:
    async with rig() as r:
        sub = await pushed(r)
        for number in range(1, 7):
            await taken(r, sub, number)
        await tell(r.client, sub, delivery(7, outcome="spooled"))

        async def replayed(limit: int = 100, **more: str) -> list[str]:
            body = ReplayDeliveries(filter=DeliveryFilter(**more), limit=limit, reason="mended")
            found = await r.client.replay_deliveries(sub, body)
            return [f"{one.delivery_id} {one.status}" for one in found.items]

        assert await replayed(2, outcome="accepted") == ["1 started", "2 started"]
        assert await replayed(since=AT % 5, until=AT % 6) == ["5 started"]
        assert await replayed(message_id="m6") == ["6 started"]
        assert await replayed(since=AT % 6) == ["6 started", "7 not_replayable"]
        assert await replayed(reason="bad_signature") == []
        for limit in (0, 1001):
            with pytest.raises(Refused) as refused:
                await replayed(limit)
            assert refused.value.problem.errors[0]["pointer"] == "/limit"
        with pytest.raises(Refused) as refused:
            await replayed(since="yesterday")
        assert refused.value.problem.status == 422


@virtually
async def test_one_that_is_refused_holds_up_no_other() -> None:
    async with rig() as r:
        sub = await pushed(r)
        other = PLAYBOOK.replace(TARGET, "plant/other")
        await r.client.register(Register(content=other))
        await taken(r, sub, 1, path="plant/other")
        await taken(r, sub, 2)
        await r.client.delete_document(Removal(path="plant/other"))
        body = ReplayDeliveries(filter=DeliveryFilter())
        found = (await r.client.replay_deliveries(sub, body)).items
        assert [(one.status, one.code) for one in found] == [
            ("refused", "unknown_path"), ("started", None),
        ]  # fmt: skip
        one = await r.client.replay_delivery(sub, "1")
        assert (one.status, one.code) == ("refused", "unknown_path")


@virtually
async def test_who_may_control_it_replays_and_that_is_audited() -> None:
    async with rig(**SHUT) as r:
        admin = await caller(r, "ada", "admin")
        sub = await pushed(r, admin)
        gate = client_of(r, INNER)
        made = await gate.execute(wish(sub))
        await tell(gate, sub, delivery(execution_id=made.execution_id))
        body = ReplayDeliveries(filter=DeliveryFilter(), reason="mended")
        for role in ("viewer", "worker", "gateway"):
            other = await caller(r, role, role)
            assert (await refusal(other.replay_delivery(sub, "1")))[0] == 403
            assert (await refusal(other.replay_deliveries(sub, body)))[0] == 403
        viewer = await caller(r, "eve", "viewer")
        assert (await viewer.delivery(sub, "1")).execution_id == made.execution_id
        developer = await caller(r, "dan", "developer")
        done = await developer.replay_delivery(sub, "1", "why")
        found = await admin.execution(done.execution_id)
        assert (done.status, found.created_by) == ("started", "dan")
        assert [one.status for one in (await developer.replay_deliveries(sub, body)).items] == [
            "started"
        ]
        rows = [row for row in await r.store.audit.read() if row.actor == "dan"]
        assert [(row.action, row.resource, row.outcome) for row in rows] == [
            ("subscription.replay", sub, "ok"), ("subscription.replay", sub, "ok"),
        ]  # fmt: skip
        assert rows[0].details == {
            "delivery_id": "1", "reason": "why", "status": "started",
            "execution_id": done.execution_id,
        }  # fmt: skip
        assert rows[1].details == {"reason": "mended", "started": 1}
        await asyncio.sleep(61)
        refused = [row for row in await r.store.audit.read() if row.outcome == "forbidden"]
        assert {row.actor for row in refused} == {"viewer", "worker", "gateway"}


# --------------------------------------------------------------------- rejected ones


async def kept(r: Rig, sub: str, number: int = 1, what: KeepRejected = KEPT) -> str | None:
    await tell(r.client, sub, rejected(number, rejected=what))
    return (await r.client.delivery(sub, str(number))).body_ref


@virtually
async def test_what_was_rejected_is_kept_for_a_day_when_the_document_says_so() -> None:
    async with rig() as r:
        sub = await pushed(r, more=KEEPS)
        ref = await kept(r, sub)
        assert msgspec.json.decode(await r.client.get_result(ref)) == {
            "headers": [["x-signature", "bad"]], "body": KEPT.body, "query": "a=1",
        }  # fmt: skip
        same = await kept(r, sub, 2)
        assert same != ref, "equal ones end at different times"
        await asyncio.sleep(86_401)
        assert (await refusal(r.client.get_result(ref)))[0] in {404, 410}
        late = await r.client.replay_delivery(sub, "1")
        assert late.status == "not_replayable"
        assert late.code in {"expired", "result_gone"}


TOKENS = {
    "bearer": "type: bearer, secret: hook",
    "basic": "type: basic, user: hook, password: hook",
    "api_key": "type: api_key, secret: hook",
    "pubsub_oidc": "type: pubsub_oidc, audience: a, service_account: s@example.org",
    "jwt": "type: jwt, issuer: 'https://i.example.org', audience: a",
    "oidc": "type: oidc, issuer: 'https://i.example.org', audience: a",
}


@pytest.mark.parametrize("verify", TOKENS.values(), ids=TOKENS)
def test_what_was_sent_with_a_token_is_not_judged_again(verify: str) -> None:
    fake = FakeGateway()

    @virtually
    async def run() -> None:
        async with rig(gateways=fake.way) as r:
            await put(r.client)
            await gateway(r.client)
            await r.client.register(Register(content=PLAYBOOK))
            spec = (
                "source: webhook, mode: push, ingress: {gateway_path: /ingress/orders, "
                f"verify: {{{verify}}}{KEEPS}}}"
            )
            await r.client.register(Register(content=document("subs/orders", spec)))
            sub = (await r.client.register_subscription("subs/orders")).subscription_id
            assert await kept(r, sub) is not None
            found = await r.client.replay_delivery(sub, "1")
            assert found == Replayed(
                delivery_id="1", status="not_replayable", code="token_not_kept"
            )

    run()
    assert fake.asked == []


@virtually
async def test_others_keep_nothing_and_no_more_than_64_kib() -> None:
    async with rig() as r:
        sub = await pushed(r)
        assert await kept(r, sub) is None
        keeping = await pushed(r, more=KEEPS, listener="keeps")
        for size, status in ((65_536, None), (65_537, 422)):
            body = KeepRejected(body=base64.b64encode(b"x" * size).decode())
            if status is None:
                assert await kept(r, keeping, 3, body) is not None
            else:
                assert (await refusal(kept(r, keeping, 4, body)))[0] == status
        wrong = KeepRejected(body="no base64!")
        assert (await refusal(kept(r, keeping, 5, wrong)))[0] == 422


@virtually
async def test_a_rejected_one_is_judged_again_by_a_gateway() -> None:
    gate = FakeGateway()
    async with rig(gateways=gate.way, internal_tokens=(INNER,)) as r:
        sub = await pushed(r, more=KEEPS)
        await kept(r, sub)
        with pytest.raises(Refused) as refused:
            await r.client.replay_delivery(sub, "1")
        problem = refused.value.problem
        assert (problem.status, problem.code, problem.retry_after) == (503, "no_gateway", 5.0)
        await gateway(r.client)
        gate.says(200, status=202, outcome="accepted", delivery_id="9", execution_id="77")
        gate.says(200, status=202, outcome="duplicate", execution_id="77")
        gate.says(200, status=202, outcome="spooled", delivery_id="10")
        gate.says(200, status=401, code="bad_signature")
        gate.says(503, type="x", title="t", status=503, code="overloaded")
        found = [await r.client.replay_delivery(sub, "1") for _ in range(5)]
        assert [(one.status, one.execution_id, one.code) for one in found] == [
            ("started", "77", None), ("duplicate", "77", None), ("spooled", None, None),
            ("refused", None, "bad_signature"), ("refused", None, "overloaded"),
        ]  # fmt: skip
        method, path, body, headers = gate.asked[0]
        assert (method, path) == ("POST", f"/api/internal/ingress/{LISTENER}/again")
        assert headers["authorization"] == f"Bearer {INNER}"
        assert msgspec.json.decode(body) == {
            "replay_of": "1", "headers": [["x-signature", "bad"]], "body": KEPT.body,
            "query": "a=1",
        }  # fmt: skip
        assert SECRET.encode() not in body


@virtually
async def test_a_gateway_that_is_away_is_passed_over_and_a_late_one_is_not() -> None:
    gate = FakeGateway()
    async with rig(gateways=gate.way) as r:
        sub = await pushed(r, more=KEEPS)
        await kept(r, sub)
        await gateway(r.client, "gw-1", "http://one")
        await asyncio.sleep(1)
        await gateway(r.client, "gw-2", "http://two")
        gate.answers.append(NoAnswer("no connection"))
        gate.says(200, status=202, outcome="accepted", execution_id="77")
        assert (await r.client.replay_delivery(sub, "1")).status == "started"
        assert gate.uris == ["http://two", "http://one"]
        gate.answers.append(Late("no answer"))
        assert (await refusal(r.client.replay_delivery(sub, "1")))[1] == "no_gateway"
        assert len(gate.uris) == 3
        await asyncio.sleep(31)
        assert (await refusal(r.client.replay_delivery(sub, "1")))[1] == "no_gateway"
        assert len(gate.uris) == 3, "who was not heard of is not asked"


@virtually
async def test_a_cancelled_run_is_replayed_too() -> None:
    async with rig() as r:
        sub = await pushed(r)
        first = await taken(r, sub)
        await r.client.cancel(first, Control())
        made = await r.client.replay_delivery(sub, "1")
        assert made.status == "started"
        accepted = await facts(r, made.execution_id, "message.accepted")
        assert accepted[0]["replay_of"] == "1"
        assert accepted[0]["execution_id"] == made.execution_id
