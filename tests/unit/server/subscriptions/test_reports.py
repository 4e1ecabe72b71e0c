"""What runtimes report: stored once and in order; dead letters, circuits, and deliveries."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.problems import Refused
from noetl.api.runtime import WorkerEntry
from noetl.api.subscriptions import Delivery, LettersWanted, PutDeadLetter, PutDeliveries
from tests.unit.server.rig import rig, virtually
from tests.unit.server.subscriptions.stage import (
    PATH,
    dispatched,
    facts,
    post,
    registered,
    report,
    told,
)


@virtually
async def test_events_written_while_the_server_was_away_appear_once_each_in_order() -> None:
    async with rig() as r:
        sub = await registered(r)
        kept = [report(r, sub, "message.spooled", message_id=f"m{n}") for n in range(10)]
        first = await post(r, *kept[:6])
        assert [item.outcome for item in first.results] == ["stored"] * 6
        again = await post(r, *kept)
        outcomes = [item.outcome for item in again.results]
        assert outcomes == ["duplicate"] * 6 + ["stored"] * 4
        assert [item.seq for item in again.results] == list(range(2, 12))
        assert await facts(r, sub, "message.spooled") == [
            {"message_id": f"m{n}"} for n in range(10)
        ]
        found = await r.client.subscription(sub)
        assert found.state == "REGISTERED"


@virtually
async def test_many_who_report_at_once_leave_a_log_without_gaps() -> None:
    async with rig() as r:
        sub = await registered(r)
        batches = [
            [report(r, sub, "message.spooled", message_id=f"{n}:{k}") for k in range(5)]
            for n in range(20)
        ]
        await asyncio.gather(*(post(r, *batch) for batch in batches for _ in range(2)))
        rows = (await r.client.events(sub, limit=1000)).items
        assert [row["seq"] for row in rows] == list(range(1, 102))
        assert len({row["event_id"] for row in rows}) == 101
        for n in range(20):
            own = [f["message_id"] for f in await facts(r, sub, "message.spooled")]
            assert [one for one in own if one.startswith(f"{n}:")] == [f"{n}:{k}" for k in range(5)]


@virtually
async def test_what_only_the_server_says_is_refused_and_the_rest_is_stored() -> None:
    async with rig() as r:
        sub = await registered(r)
        names = ("activated", "message.deduplicated", "message.replayed", "no.such", "spool.full")
        answer = await post(
            r,
            *(report(r, sub, name) for name in names),
            report(r, sub, "spool.alert", text="x" * 20_000),
            report(r, "4711", "spool.full"),
        )
        assert [(item.outcome, item.code) for item in answer.results] == [
            ("rejected", "forbidden_event"),
            ("rejected", "forbidden_event"),
            ("rejected", "forbidden_event"),
            ("rejected", "unknown_event_type"),
            ("stored", None),
            ("rejected", "bad_value"),
            ("rejected", "unknown_subscription"),
        ]
        assert await told(r, sub) == ["registered", "spool.full"]


@virtually
async def test_dead_letters_are_kept_and_those_of_a_spool_redriven_and_discarded_on_request() -> (
    None
):
    async with rig() as r:
        sub = await registered(r)
        item = {"v": 1, "message": {"id": "m1", "data": {"a": 1}}, "plan": {}}
        body = PutDeadLetter(
            ref="noetl://spool/subs/meters/352/m1", message_id="m1", reason="dispatch_rejected",
            item=item, attempts=2, recv_seq="352",
        )  # fmt: skip
        kept = await r.client.put_dead_letter(sub, body)
        assert kept.result_ref.startswith(f"noetl://execution/{sub}/result/")
        assert await r.client.put_dead_letter(sub, body) == kept
        assert (await told(r, sub)).count("message.dead_lettered") == 1
        await asyncio.sleep(1)
        await post(
            r,
            report(r, sub, "message.dead_lettered", ref="b", message_id="m2", reason="poison"),
            report(r, sub, "message.dead_lettered", ref="c", message_id="m3", reason="poison"),
        )
        page = await r.client.dead_letters(sub, limit=2)
        assert [(one.message_id, one.reason, one.attempts) for one in page.items] == [
            ("m1", "dispatch_rejected", 2), ("m2", "poison", 0),
        ]  # fmt: skip
        rest = await r.client.dead_letters(sub, page.next_cursor, limit=2)
        assert [one.message_id for one in rest.items] == ["m3"]
        whole = await r.client.dead_letters(sub, include_item=True)
        assert [one.item for one in whole.items] == [item, None, None]
        await post(r, report(r, sub, "message.discarded", ref=body.ref))
        asked = await r.client.redrive(sub, LettersWanted(refs=("b",), rate=5))
        assert (asked.count, asked.status) == (1, "requested")
        await r.client.discard(sub, LettersWanted(all=True, reason="old"))
        found = await r.client.subscription(sub)
        assert [(one["action"], one["remaining"]) for one in found.pending_actions] == [
            ("redrive", 1), ("discard", 2),
        ]  # fmt: skip
        assert found.pending_actions[0]["request_id"] == asked.request_id
        assert found.spool.dlq == 2
        await post(r, report(r, sub, "message.redriven", ref="b"))
        await post(r, report(r, sub, "message.discarded", ref="c"))
        found = await r.client.subscription(sub)
        assert (found.pending_actions, found.spool.dlq) == ((), 0)
        assert (await r.client.dead_letters(sub)).items == ()
        nothing = await r.client.redrive(sub, LettersWanted(all=True))
        assert (nothing.count, nothing.status) == (0, "nothing")
        for wrong in (LettersWanted(), LettersWanted(refs=("a",), all=True)):
            with pytest.raises(Refused) as refused:
                await r.client.redrive(sub, wrong)
            assert refused.value.problem.status == 422
        with pytest.raises(Refused) as refused:
            await r.client.discard(sub, LettersWanted(refs=("no",)))
        assert refused.value.problem.status == 404


@virtually
async def test_shared_documents_are_written_by_compare_and_set() -> None:
    async with rig() as r:
        client = r.client
        assert await client.circuit("subs/meters.tsdb") is None
        made = await client.put_circuit("subs/meters.tsdb", {"phase": "open"}, None)
        for revision in (None, made.revision + 1):
            with pytest.raises(Refused) as refused:
                await client.put_circuit("subs/meters.tsdb", {"phase": "closed"}, revision)
            assert (refused.value.problem.status, refused.value.problem.code) == (
                409, "revision_conflict",
            )  # fmt: skip
        next_ = await client.put_circuit("subs/meters.tsdb", {"phase": "closed"}, made.revision)
        assert await client.circuit("subs/meters.tsdb") == next_
        answer = await client.raw("GET", "/api/internal/circuits/subs/meters.tsdb")
        assert answer.headers["etag"] == f'"{next_.revision}"'
        with pytest.raises(Refused):
            await client.delete_circuit("subs/meters.tsdb", made.revision)
        await client.delete_circuit("subs/meters.tsdb", next_.revision)
        assert await client.circuit("subs/meters.tsdb") is None
        with pytest.raises(Refused) as refused:
            await client.put_circuit("a b", {}, None)
        assert refused.value.problem.status == 422


@virtually
async def test_deliveries_are_kept_once_and_told_newest_first() -> None:
    async with rig() as r:
        sub = await registered(r)
        items = tuple(
            Delivery(
                delivery_id=str(n), at=f"2026-01-01T00:00:0{n}Z",
                outcome="accepted" if n % 2 else "rejected", message_id=f"m{n}", bytes=n,
            )
            for n in range(1, 6)
        )  # fmt: skip
        assert (await r.client.put_deliveries(sub, PutDeliveries(items=items))).count == 5
        assert (await r.client.put_deliveries(sub, PutDeliveries(items=items))).count == 0
        page = await r.client.deliveries(sub, limit=2)
        assert [one.delivery_id for one in page.items] == ["5", "4"]
        page = await r.client.deliveries(sub, limit=2, cursor=page.next_cursor)
        assert [one.delivery_id for one in page.items] == ["3", "2"]
        found = await r.client.deliveries(sub, outcome="rejected", until="2026-01-01T00:00:03Z")
        assert [one.delivery_id for one in found.items] == ["2"]


@virtually
async def test_runtimes_that_serve_it_are_counted_with_their_figures() -> None:
    async with rig() as r:
        sub = await registered(r)
        figures = {
            "backlog": 7, "in_flight": 2, "rate_per_minute": 60, "leads": True,
            "spool": {"items": 3, "bytes": 99, "oldest_at": None},
        }  # fmt: skip
        for name, served in (("a", {PATH: figures}), ("b", {PATH: {}}), ("c", {"other": {}})):
            entry = WorkerEntry(name=name, kind="subscription", runtime={"subscriptions": served})
            await r.client.register_worker(entry)
        found = await r.client.subscription(sub)
        assert (found.runtime.instances, found.runtime.backlog, found.runtime.in_flight) == (
            2,
            7,
            2,
        )
        assert (found.spool.items, found.spool.bytes) == (3, 99)
        await asyncio.sleep(31)
        found = await r.client.subscription(sub)
        assert found.runtime.instances == 0
        assert found.runtime.last_seen is not None


@virtually
async def test_why_names_an_open_circuit_of_the_subscription() -> None:
    async with rig() as r:
        sub = await registered(r)
        made = await dispatched(r, sub)
        await post(r, report(r, sub, "circuit.opened", downstream="tsdb", trips=1))
        why = await r.client.why(made.execution_id)
        assert "circuit_open" in {reason["code"] for reason in why["reasons"]}
        await post(r, report(r, sub, "circuit.closed", downstream="tsdb", open_ms=1))
        why = await r.client.why(made.execution_id)
        assert "circuit_open" not in {reason["code"] for reason in why["reasons"]}
        await r.client.put_circuit(
            f"{PATH}.tsdb", {"phase": "open", "opened_at_ms": 1_767_225_600_000}, None
        )
        why = await r.client.why(made.execution_id)
        (reason,) = [one for one in why["reasons"] if one["code"] == "circuit_open"]
        assert reason["since"] == "2026-01-01T00:00:00.000000Z"


@virtually
async def test_a_request_that_is_given_up_takes_no_other_one_with_it() -> None:
    async with rig() as r:
        sub = await registered(r)
        append = r.store.subscriptions.append

        async def slow(change):
            await asyncio.sleep(1)
            return await append(change)

        r.store.subscriptions.append = slow
        first = asyncio.ensure_future(post(r, report(r, sub, "message.spooled", message_id="a")))
        await asyncio.sleep(0.1)
        others = [
            asyncio.ensure_future(post(r, report(r, sub, "message.spooled", message_id=name)))
            for name in "bcd"
        ]
        await asyncio.sleep(0.1)
        first.cancel()
        others[1].cancel()
        answers = await asyncio.gather(others[0], others[2])
        assert {item.outcome for answer in answers for item in answer.results} == {"stored"}
        found = [one["message_id"] for one in await facts(r, sub, "message.spooled")]
        assert found == ["a", "b", "d"]
