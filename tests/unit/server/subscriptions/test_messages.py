"""Messages become runs: once per key, with what their headers decided, under their subscription."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.client.calls import decoded, encode
from noetl.api.executions import Control, Dedup, Execute, Started, StartedBatch
from noetl.api.problems import Refused
from noetl.engine.subscriptions import DEDUPLICATED
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import rig, virtually
from tests.unit.server.subscriptions.stage import (
    PATH,
    TARGET,
    TRACE,
    dispatched,
    facts,
    message,
    registered,
    told,
)

PARENT = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: parent, path: plant/parent}}
workflow:
  - step: start
    tool: {{kind: playbook, path: {TARGET}}}
"""


@virtually
async def test_the_document_of_a_subscription_is_not_executable() -> None:
    async with rig() as r:
        await registered(r)
        for body in (Execute(path=PATH), Execute(path=PATH, execution_pool="meters")):
            with pytest.raises(Refused) as refused:
                await r.client.execute(body)
            assert (refused.value.problem.status, refused.value.problem.code) == (
                422,
                "not_executable",
            )
        batch = await r.client.execute_batch((Execute(path=PATH),))
        assert batch.results[0].error["code"] == "not_executable"
        rehearsed = await r.client.rehearse(Execute(path=PATH))
        assert not rehearsed.valid


@virtually
async def test_the_run_of_a_message_tells_of_it_in_one_commit() -> None:
    commits = []
    store = MemoryStore(on_commit=lambda events: commits.append(list(events)))
    async with rig(store) as r:
        sub = await registered(r)
        applied = {"header": "x-noetl-route", "controls": "dispatch.playbook"}
        made = await dispatched(
            r, sub, trace=TRACE,
            ingress={
                "applied": (applied,), "recv_seq": "352", "spool_ref": "noetl://spool/a/352/m",
                "route_override": {"playbook": TARGET},
            },
        )  # fmt: skip
        run = made.execution_id
        rows = (await r.client.events(run, limit=10)).items
        assert [row["event_type"] for row in rows[:3]] == [
            "playbook.started",
            "subscription.message.directives_applied",
            "subscription.message.replayed",
        ]
        assert rows[0]["meta"]["subscription"] == {
            "id": sub, "path": PATH, "message_id": "PLANT:1", "downstream": "default",
        }  # fmt: skip
        assert rows[0]["trace"]["traceparent"] == TRACE["traceparent"]
        assert rows[1]["context"]["applied"] == [applied]
        assert rows[1]["context"]["route_override"] == {"playbook": TARGET, "pool": None}
        assert (rows[1]["status"], rows[1]["step"]) == ("APPLIED", "ingress")
        assert rows[2]["context"] == {
            "message_id": "PLANT:1", "recv_seq": "352", "spool_ref": "noetl://spool/a/352/m",
            "execution_id": run,
        }  # fmt: skip
        (commit,) = [c for c in commits if c[0].execution_id == run]
        assert len(commit) == len(rows), "the start and what is told of the message is one commit"
        row = await r.store.executions.get(run)
        assert (row.parent_execution_id, row.pool, row.labels) == (
            sub, "meters", {"subscription": PATH},
        )  # fmt: skip


@virtually
async def test_the_run_of_a_delivery_says_first_that_it_was_accepted() -> None:
    async with rig() as r:
        sub = await registered(r)
        pushed = {"listener": "orders", "delivery_id": "4711"}
        made = await dispatched(r, sub, trace=TRACE, ingress=pushed)
        rows = (await r.client.events(made.execution_id, limit=3)).items
        assert [row["event_type"] for row in rows] == [
            "playbook.started",
            "subscription.message.accepted",
            "subscription.message.directives_applied",
        ]
        assert rows[1]["context"] == {
            "message_id": "PLANT:1", "execution_id": made.execution_id, **pushed,
        }  # fmt: skip
        assert (rows[1]["status"], rows[1]["step"]) == ("ACCEPTED", "ingress")
        assert rows[0]["meta"]["subscription"]["delivery_id"] == "4711"
        spooled = pushed | {"spool_ref": "noetl://spool/a/1/m"}
        drained = await dispatched(r, sub, 2, ingress=spooled)
        assert await facts(r, drained.execution_id, "message.accepted") == []
        assert len(await facts(r, drained.execution_id, "message.replayed")) == 1
        with pytest.raises(Refused) as refused:
            await dispatched(r, sub, 3, ingress=pushed | {"delivery_id": "x"})
        assert refused.value.problem.code == "invalid_id"


@virtually
async def test_a_body_that_comes_again_under_new_ids_is_one_run_in_one_batch_and_later() -> None:
    async with rig() as r:
        sub = await registered(r)

        def body(n: int) -> Execute:
            keys = Dedup(key=f"id:{n}", window_secs=60, replay_key="r:x", replay_window_secs=3600)
            return message(sub, n, dedup=keys, execution_id=str(9000 + n))

        batch = await r.client.execute_batch(tuple(body(n) for n in range(5)))
        assert (batch.started, batch.duplicates) == (1, 4)
        assert {item.execution_id for item in batch.results} == {"9000"}
        await asyncio.sleep(3_000)
        batches = await asyncio.gather(
            *(r.client.execute_batch((body(n), body(n + 1))) for n in range(10, 20, 2))
        )
        assert [batch.duplicates for batch in batches] == [2] * 5
        later = await r.client.execute(body(30))
        assert (later.status, later.execution_id) == ("duplicate", "9000")
        assert len((await r.client.children(sub)).items) == 1


@virtually
async def test_the_trace_of_a_request_is_not_that_of_the_messages_in_it() -> None:
    async with rig() as r:
        sub = await registered(r)
        single, many = message(sub, 1), [message(sub, 2), message(sub, 3, trace=TRACE)]
        headers = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
        one = await r.client.raw("POST", "/api/execute", encode(single), headers)
        runs = [decoded(one, Started).execution_id]
        batch = await r.client.raw(
            "POST", "/api/execute/batch", encode({"executions": many}), headers
        )
        runs += [item.execution_id for item in decoded(batch, StartedBatch).results]
        assert [(await r.client.execution(run)).trace for run in runs] == [None, None, TRACE]


@virtually
async def test_a_message_without_directives_and_trace_tells_nothing_of_them() -> None:
    async with rig() as r:
        made = await dispatched(r, await registered(r))
        assert await facts(r, made.execution_id, "message.directives_applied") == []


@virtually
async def test_directives_that_were_all_refused_are_told() -> None:
    async with rig() as r:
        sub = await registered(r)
        refused = {"header": "x-a", "controls": "priority", "reason": "unmapped"}
        made = await dispatched(r, sub, ingress={"refused": (refused,)})
        assert await facts(r, made.execution_id, "message.directives_applied") == [
            {
                "message_id": "PLANT:1", "applied": [], "refused": [refused],
                "route_override": {"playbook": None, "pool": None}, "trace": None,
                "execution_id": made.execution_id,
            }
        ]  # fmt: skip


@virtually
async def test_the_same_key_twice_and_another_once_are_two_runs_and_one_event() -> None:
    async with rig() as r:
        sub = await registered(r)
        first = await dispatched(r, sub, 1)
        again = await dispatched(r, sub, 1)
        other = await dispatched(r, sub, 2)
        assert (again.status, again.execution_id) == ("duplicate", first.execution_id)
        assert again.commands_generated == 0
        assert other.status == "started"
        assert await facts(r, sub, "message.deduplicated") == [
            {"message_id": "PLANT:1", "execution_id": first.execution_id, "key": "m:PLANT:1"}
        ]
        await asyncio.sleep(601)
        later = await dispatched(r, sub, 1)
        assert later.status == "started"
        assert (await told(r, sub)).count("message.deduplicated") == 1


@virtually
async def test_a_start_that_was_refused_burns_no_key() -> None:
    async with rig() as r:
        sub = await registered(r)
        with pytest.raises(Refused):
            await dispatched(r, sub, 1, path="no/such")
        assert (await dispatched(r, sub, 1)).status == "started"
        assert "message.deduplicated" not in await told(r, sub)


@virtually
async def test_a_hit_of_either_key_is_a_duplicate() -> None:
    async with rig() as r:
        sub = await registered(r)

        def keys(key: str, replay: str) -> Dedup:
            return Dedup(key=key, replay_key=replay, replay_window_secs=3600, window_secs=60)

        first = await dispatched(r, sub, 1, dedup=keys("m:1", "r:1"))
        for key, replay in (("m:1", "r:2"), ("m:2", "r:1")):
            again = await dispatched(r, sub, 1, dedup=keys(key, replay))
            assert (again.status, again.execution_id) == ("duplicate", first.execution_id)
        assert (await dispatched(r, sub, 2, dedup=keys("m:2", "r:2"))).status == "started"
        await asyncio.sleep(61)
        again = await dispatched(r, sub, 3, dedup=keys("m:1", "r:1"))
        assert again.status == "duplicate", "the window of the second key is longer"


@virtually
async def test_equal_keys_in_one_batch_are_one_run_and_each_repeat_is_told() -> None:
    async with rig() as r:
        sub = await registered(r)
        numbers = (1, 1, 2, 1, 3)
        batch = await r.client.execute_batch(tuple(message(sub, n) for n in numbers))
        assert (batch.started, batch.duplicates, batch.failed) == (3, 2, 0)
        assert [item.status for item in batch.results] == [
            "started", "duplicate", "started", "duplicate", "started",
        ]  # fmt: skip
        assert (await told(r, sub)).count("message.deduplicated") == 2
        again = await r.client.execute_batch(tuple(message(sub, n) for n in numbers))
        assert again.duplicates == 5
        assert (await told(r, sub)).count("message.deduplicated") == 7
        crossed = tuple(
            message(sub, n, dedup=Dedup(key=f"k:{n}", replay_key="r:same")) for n in (7, 8)
        )
        assert (await r.client.execute_batch(crossed)).duplicates == 1


@virtually
async def test_a_batch_of_twelve_with_one_unknown_playbook_starts_eleven() -> None:
    async with rig() as r:
        sub = await registered(r)
        bodies = [
            message(sub, n, trace={"traceparent": f"00-{n + 1:032x}-{n + 1:016x}-01"})
            for n in range(12)
        ]
        bodies[7] = msgspec.structs.replace(bodies[7], path="no/such")
        batch = await r.client.execute_batch(tuple(bodies))
        assert (batch.started, batch.failed) == (11, 1)
        error = batch.results[7].error
        assert (error["code"], error["retryable"]) == ("unknown_path", False)
        for n, item in enumerate(batch.results):
            if n != 7:
                run = await r.client.execution(item.execution_id)
                assert run.trace["traceparent"] == bodies[n].trace["traceparent"]
                assert run.pool == "meters"
        for size in (0, 1001):
            with pytest.raises(Refused) as refused:
                await r.client.execute_batch(tuple(bodies[:1] * size))
            assert refused.value.problem.code == "batch_size_invalid"
        children = await r.client.children(sub)
        assert len(children.items) == 11


@virtually
async def test_ingress_needs_a_subscription_and_a_subscription_is_a_parent_without_one() -> None:
    async with rig() as r:
        sub = await registered(r)
        with pytest.raises(Refused) as refused:
            await dispatched(r, sub, parent_execution_id=None)
        assert refused.value.problem.status == 422
        with pytest.raises(Refused) as refused:
            await dispatched(r, sub, parent_execution_id="12")
        assert refused.value.problem.code == "unknown_execution"
        plain = await r.client.execute(Execute(path=TARGET, parent_execution_id=sub))
        row = await r.store.executions.get(plain.execution_id)
        assert row.parent_execution_id == sub


@virtually
async def test_a_run_of_a_message_ends_is_cancelled_and_is_its_own_root() -> None:
    async with rig() as r:
        sub = await registered(r)
        one = await dispatched(r, sub, 1, execution_pool="shared")
        two = await dispatched(r, sub, 2)
        (command,) = await r.claim()
        await r.done(command)
        assert await r.status(one.execution_id) == "COMPLETED"
        await r.client.cancel(two.execution_id, Control())
        assert await r.status(two.execution_id) == "CANCELLED"
        assert await r.plane.owners.root_of(one.execution_id) == one.execution_id
        with pytest.raises(Refused) as refused:
            await r.client.cancel(sub, Control())
        assert refused.value.problem.code == "unknown_execution"


@virtually
async def test_a_child_of_a_child_carries_the_same_trace_id() -> None:
    async with rig() as r:
        sub = await registered(r)
        await r.client.register(Register(content=PARENT))
        made = await dispatched(r, sub, path="plant/parent", trace=TRACE, execution_pool=None)
        for _ in range(20):
            children = await r.client.children(made.execution_id)
            if children.items:
                break
            await asyncio.sleep(0.05)
        (child,) = children.items
        found = await r.client.execution(child.execution_id)
        assert found.trace["traceparent"].split("-")[1] == TRACE["traceparent"].split("-")[1]


@virtually
async def test_no_metric_has_a_trace_or_an_execution_label() -> None:
    async with rig() as r:
        sub = await registered(r)
        made = await dispatched(r, sub, trace=TRACE)
        text = (await r.client.raw("GET", "/metrics")).body.decode()
        assert 'noetl_execute_outcomes_total{entry="api",outcome="started"} 1' in text
        assert made.execution_id not in text
        assert TRACE["traceparent"].split("-")[1] not in text


@virtually
async def test_outcomes_are_told_as_runs_end_and_woken_by_the_commit() -> None:
    async with rig() as r:
        sub = await registered(r)
        first = await r.client.outcomes(sub, wait_ms=0)
        assert first.outcomes == ()
        one = await dispatched(r, sub, 1, execution_pool="shared")
        waiting = asyncio.ensure_future(r.client.outcomes(sub, first.cursor, wait_ms=20_000))
        await asyncio.sleep(1)
        began = r.plane.parts.clock.monotonic()
        (command,) = await r.claim()
        await r.done(command)
        found = await waiting
        assert r.plane.parts.clock.monotonic() - began < 1
        (outcome,) = found.outcomes
        assert (outcome.execution_id, outcome.message_id, outcome.status, outcome.downstream) == (
            one.execution_id, "PLANT:1", "COMPLETED", "default",
        )  # fmt: skip
        await dispatched(r, sub, 2, execution_pool="shared")
        (command,) = await r.claim()
        error = {"kind": "connection", "code": "refused", "message": "away", "retryable": True}
        await r.report(r.event(command, "call.error", error=error))
        later = await r.client.outcomes(sub, found.cursor, wait_ms=0)
        (outcome,) = later.outcomes
        assert (outcome.status, outcome.error.kind, outcome.error.retryable) == (
            "FAILED", "connection", True,
        )  # fmt: skip
        assert (await r.client.outcomes(sub, wait_ms=0)).outcomes[0].message_id == "PLANT:1"
        assert (await r.client.outcomes(sub, "now", wait_ms=0)).outcomes == ()
        assert (await r.client.outcomes(sub, later.cursor, wait_ms=0)).outcomes == ()
        with pytest.raises(Refused) as refused:
            await r.client.outcomes(sub, "x", wait_ms=0)
        assert refused.value.problem.code == "bad_cursor"


@virtually
async def test_many_duplicates_at_once_are_few_appends() -> None:
    async with rig() as r:
        sub = await registered(r)
        await dispatched(r, sub, 1)
        appends = []
        append = r.store.subscriptions.append

        async def counted(change):
            appends.append(len(change.events))
            await asyncio.sleep(0.01)
            return await append(change)

        r.store.subscriptions.append = counted
        await asyncio.gather(*(dispatched(r, sub, 1) for _ in range(50)))
        assert sum(appends) == 50
        assert len(appends) < 10
        counts = (await r.client.subscription_stats(sub)).events
        assert counts[DEDUPLICATED] == 50
