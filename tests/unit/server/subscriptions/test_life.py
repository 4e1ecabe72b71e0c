"""The life of a subscription: six events, one id, and a state that follows from them alone."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from noetl.api.catalog import Register
from noetl.api.problems import Refused
from noetl.api.subscriptions import SpoolFigures
from noetl.server.subscriptions.lifecycle import STEPS
from noetl.store.base import Listing
from tests.unit.server.rig import HEAD, ONE_STEP, rig, virtually
from tests.unit.server.subscriptions.stage import (
    NATS,
    PATH,
    PUSH,
    document,
    post,
    registered,
    report,
    told,
)

LIFE = ["registered", "activated", "paused", "resumed", "draining", "deactivated"]


@virtually
async def test_a_life_is_six_events_in_order_and_a_repeat_appends_nothing() -> None:
    async with rig() as r:
        sub = await registered(r)
        states = []
        for action in ("activate", "pause", "resume", "drain", "deactivate"):
            for _ in range(2):
                made = await r.client.steer_subscription(sub, action, reason="a test")
            states.append(made.state)
        assert states == ["ACTIVE", "PAUSED", "ACTIVE", "DRAINING", "DEACTIVATED"]
        assert await told(r, sub) == LIFE
        rows = (await r.client.events(sub, limit=100)).items
        assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5, 6]
        assert [row["prev_event_id"] for row in rows[1:]] == [row["event_id"] for row in rows[:-1]]
        assert {row["meta"]["actor"] for row in rows} == {"local"}
        assert {row["meta"]["reason"] for row in rows[1:]} == {"a test"}


@pytest.mark.parametrize("state", ["REGISTERED", "ACTIVE", "PAUSED", "DRAINING", "DEACTIVATED"])
def test_a_wrong_action_is_422_and_tells_the_state_and_what_is_allowed(state: str) -> None:
    ways = {
        "REGISTERED": (), "ACTIVE": ("activate",), "PAUSED": ("activate", "pause"),
        "DRAINING": ("activate", "drain"), "DEACTIVATED": ("deactivate",),
    }  # fmt: skip

    @virtually
    async def check() -> None:
        async with rig() as r:
            sub = await registered(r)
            for action in ways[state]:
                await r.client.steer_subscription(sub, action)
            before = await told(r, sub)
            allowed = tuple(name for name, step in STEPS.items() if state in step.allowed)
            for action, step in STEPS.items():
                if state in step.allowed:
                    continue
                with pytest.raises(Refused) as refused:
                    await r.client.steer_subscription(sub, action)
                problem = refused.value.problem
                assert (problem.status, problem.code) == (422, "bad_transition")
                assert (problem.state, problem.allowed) == (state, allowed)
            assert await told(r, sub) == before

    check()


@virtually
async def test_unknown_ids_paths_kinds_and_actions_are_refused() -> None:
    async with rig() as r:
        sub = await registered(r)
        await r.client.register(Register(content=HEAD + ONE_STEP))

        async def code(call) -> tuple[int, str]:
            with pytest.raises(Refused) as refused:
                await call
            return refused.value.problem.status, refused.value.problem.code

        client = r.client
        unknown = (404, "unknown_subscription")
        assert await code(client.subscription("12")) == unknown
        assert await code(client.steer_subscription("12", "pause")) == unknown
        assert await code(client.register_subscription("no/such")) == unknown
        assert await code(client.register_subscription("demo/it")) == (422, "not_a_subscription")
        assert (await code(client.steer_subscription(sub, "explode")))[0] == 422
        assert (await code(client.subscriptions("ASLEEP")))[0] == 422


@virtually
async def test_a_subscription_has_one_id_for_ever_and_is_no_run() -> None:
    async with rig() as r:
        sub = await registered(r)
        first = await r.client.subscription(sub)
        await r.client.register(Register(content=document(more=", dedup: {enabled: true}")))
        again = await r.client.register_subscription(PATH)
        assert again.subscription_id == sub
        assert (first.version, again.version) == (1, 2)
        assert "dedup" in again.content
        assert again.spec["dedup"] == {"enabled": True}
        assert (await told(r, sub)) == ["registered"]
        assert (await r.client.executions()).items == ()
        assert await r.store.executions.listed(Listing()) == []
        with pytest.raises(Refused) as refused:
            await r.client.execution(sub)
        assert refused.value.problem.code == "unknown_execution"
        listed = (await r.client.subscriptions()).subscriptions
        assert [(one.path, one.state, one.source) for one in listed] == [
            (PATH, "REGISTERED", "nats")
        ]
        assert (await r.client.subscriptions("ACTIVE")).subscriptions == ()
        assert len((await r.client.subscriptions(path=PATH)).subscriptions) == 1


@virtually
async def test_spool_and_circuit_events_leave_the_state_alone() -> None:
    async with rig() as r:
        sub = await registered(r)
        await r.client.steer_subscription(sub, "activate")
        await post(
            r,
            report(r, sub, "circuit.opened", downstream="tsdb", trips=2, reason="timeout"),
            report(r, sub, "spool.draining", pending=3),
            report(r, sub, "spool.full"),
            report(r, sub, "rate_limited", reason="dispatch_rate"),
        )
        found = await r.client.subscription(sub)
        assert (found.state, found.desired) == ("ACTIVE", "running")
        assert found.last_event_type == "subscription.rate_limited"
        assert (found.circuit["tsdb"].phase, found.circuit["tsdb"].trips) == ("open", 2)
        assert found.rate_limited_at is not None
        await post(r, report(r, sub, "circuit.closed", downstream="tsdb", open_ms=5))
        found = await r.client.subscription(sub)
        assert (found.circuit["tsdb"].phase, found.circuit["tsdb"].trips) == ("closed", 2)
        stats = await r.client.subscription_stats(sub)
        assert stats.events["subscription.circuit.opened"] == 1


@virtually
async def test_how_many_messages_wait_is_known_also_while_nobody_listens() -> None:
    async with rig() as r:
        sub = await registered(r)
        shown = []
        for one in (
            report(r, sub, "spool.recovered", pending=2),
            report(r, sub, "message.spooled", message_id="PLANT:1", bytes=9),
            report(r, sub, "spool.drained", replayed=2, remaining=1),
            report(r, sub, "spool.drained", replayed=1, remaining=0),
        ):
            await post(r, one)
            shown.append((await r.client.subscription(sub)).spool)
        assert shown == [SpoolFigures(items=items) for items in (2, 3, 1, 0)]


@virtually
async def test_after_a_person_stopped_it_a_runtime_waits_and_after_itself_it_goes_on() -> None:
    async with rig() as r:
        sub = await registered(r)
        steer = r.client.steer_subscription
        assert (await r.client.subscription(sub)).desired == "running"
        await steer(sub, "activate")
        assert (await steer(sub, "pause", "maintenance")).desired == "paused"
        assert (await steer(sub, "deactivate")).desired == "stopped"
        await steer(sub, "activate")
        assert (await steer(sub, "drain", "runtime_stopped")).desired == "running"
        by_itself = await steer(sub, "deactivate", "runtime_stopped")
        assert (by_itself.state, by_itself.desired) == ("DEACTIVATED", "running")
        assert (await steer(sub, "activate")).subscription_id == sub


@virtually
async def test_of_many_actions_at_once_each_is_judged_by_the_state_that_it_meets() -> None:
    async with rig() as r:
        sub = await registered(r)
        await r.client.steer_subscription(sub, "activate")
        actions = ["pause", "resume"] * 10
        await asyncio.gather(*(r.client.steer_subscription(sub, one) for one in actions))
        names = (await told(r, sub))[2:]
        assert all(one != other for one, other in itertools.pairwise(names))
        state = (await r.client.subscription(sub)).state
        assert state == {"paused": "PAUSED", "resumed": "ACTIVE"}[names[-1]]


@virtually
async def test_two_subscriptions_with_one_listener_are_409_and_nothing_is_kept() -> None:
    async with rig() as r:
        await r.client.register(Register(content=document(spec=PUSH % "orders")))
        with pytest.raises(Refused) as refused:
            await r.client.register(Register(content=document("subs/two", PUSH % "orders")))
        assert (refused.value.problem.status, refused.value.problem.code) == (409, "listener_taken")
        assert refused.value.problem.errors[0]["pointer"] == "/spec/ingress/gateway_path"
        with pytest.raises(Refused):
            await r.client.register_subscription("subs/two")
        await r.client.register(Register(content=document(spec=PUSH % "other")))
        await r.client.register(Register(content=document("subs/two", PUSH % "orders")))
        found = (await r.client.subscriptions()).subscriptions
        assert {one.path: one.listener for one in found} == {PATH: "other", "subs/two": "orders"}


@virtually
async def test_the_answer_warns_of_a_missing_target_and_of_a_push_without_a_spool() -> None:
    async with rig() as r:
        made = await r.client.register(Register(content=document()))
        assert [(one["code"], one["pointer"]) for one in made.warnings] == [
            ("target_missing", "/spec/dispatch/playbook")
        ]
        spec = PUSH % "orders" + ", spool: {mode: off}"
        made = await r.client.register(Register(content=document("subs/push", spec)))
        assert {one["code"] for one in made.warnings} == {"target_missing", "spool_off"}
        await registered(r)
        made = await r.client.register(Register(content=document(spec=f"{NATS}, x-a: 1")))
        assert made.warnings == ()


@virtually
async def test_the_log_of_a_subscription_is_followed_as_that_of_a_run() -> None:
    async with rig() as r:
        sub = await registered(r)
        reader = r.plane.streams.open(sub, 0, "ada", is_lean=True)
        sent: list[bytes] = []

        async def follow() -> None:
            async for frame in reader.frames():
                sent.append(frame)
                if b"subscription.activated" in frame:
                    return

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0.1)
        await r.client.steer_subscription(sub, "activate")
        await asyncio.wait_for(following, 5)
        r.plane.streams.close(reader)
        text = b"".join(sent)
        assert text.index(b"event: subscription.registered") < text.index(b"event: subscription.a")
        assert b"event: end" not in text
