"""What every store does with subscriptions; a backend is the fixture `store`."""

import asyncio

import msgspec
import pytest

from noetl.engine.events import OF_SUBSCRIPTIONS, Error, PlaybookCompleted, PlaybookFailed, Recorded
from noetl.store.subscriptions import (
    NOT_TOLD,
    Appended,
    CircuitRow,
    DeliveryListing,
    DeliveryRow,
    LetterRow,
    ListenerTaken,
    SubscriptionRow,
)
from tests.conformance.store_suite import Run, at

SUB = "331204559102440000"


def told(seq, name="subscription.registered", sub=SUB, event_id=None, **facts):
    return Recorded(
        execution_id=sub,
        seq=seq,
        event_id=event_id or str(int(sub) + seq),
        prev_event_id=str(int(sub) + seq - 1) if seq > 1 else None,
        created_at=at(seq),
        event=OF_SUBSCRIPTIONS[name](facts=facts, about={"actor": "ada"}),
    )


def row(sub=SUB, path="subs/meters", **fields):
    known = {
        "subscription_id": sub,
        "tenant_id": "default",
        "path": path,
        "catalog_id": "7",
        "version": 1,
        "state": "REGISTERED",
        "last_event_type": "subscription.registered",
        "last_event_id": str(int(sub) + 1),
        "last_seq": 1,
        "updated_at": at(1),
    }
    return SubscriptionRow(**(known | fields))


async def registered(store, sub=SUB, path="subs/meters", **fields):
    return await store.subscriptions.register(row(sub, path, **fields), told(1, sub=sub))


def grown(before, *events, **fields):
    last = events[-1] if events else None
    changes = {"last_seq": last.seq, "last_event_id": last.event_id} if last else {}
    return Appended(
        row=msgspec.structs.replace(before, **(changes | fields)),
        expected_seq=before.last_seq,
        events=events,
    )


class SubscriptionsSuite:
    async def test_a_subscription_is_kept_once_per_tenant_and_path(self, store):
        first = await registered(store)
        again = await registered(store, sub=str(int(SUB) + 100), version=2)
        assert again == first == await store.subscriptions.get(SUB)
        assert await store.subscriptions.find("default", "subs/meters") == first
        assert await store.subscriptions.find("other", "subs/meters") is None
        other = await registered(store, sub=str(int(SUB) + 200), tenant_id="other")
        assert other.subscription_id != SUB
        assert await store.log.read(str(int(SUB) + 100)) == []

    async def test_of_many_who_register_at_once_all_get_the_same(self, store):
        made = await asyncio.gather(
            *(registered(store, sub=str(int(SUB) + n * 10)) for n in range(5))
        )
        assert len({found.subscription_id for found in made}) == 1

    async def test_two_subscriptions_never_have_one_listener(self, store):
        await registered(store, listener="orders")
        with pytest.raises(ListenerTaken):
            await registered(store, sub="5", path="subs/other", listener="orders")
        assert await store.subscriptions.find("default", "subs/other") is None
        other = await registered(store, sub="5", path="subs/other")
        with pytest.raises(ListenerTaken):
            await store.subscriptions.append(grown(other, listener="orders"))
        assert (await store.subscriptions.listening("orders")).subscription_id == SUB
        assert await store.subscriptions.listening("nobody") is None

    async def test_they_are_listed_by_tenant_and_state(self, store):
        await registered(store)
        await registered(store, sub="5", path="subs/a", state="ACTIVE")
        await registered(store, sub="6", path="subs/b", tenant_id="other", state="ACTIVE")

        async def paths(*asked):
            return [found.path for found in await store.subscriptions.listed(*asked)]

        assert await paths() == ["subs/a", "subs/b", "subs/meters"]
        assert await paths("default") == ["subs/a", "subs/meters"]
        assert await paths(None, "ACTIVE") == ["subs/a", "subs/b"]

    async def test_an_append_writes_events_and_row_together(self, store):
        before = await registered(store)
        event = told(2, "subscription.activated")
        change = grown(
            before,
            event,
            state="ACTIVE",
            summary={"actor": "ada"},
            next_tick_at=at(60),
            last_execution_id="9",
        )
        assert await store.subscriptions.append(change)
        assert await store.subscriptions.get(SUB) == change.row
        assert await store.log.read(SUB) == [told(1), event]
        assert await store.log.located(event.event_id) == event

    async def test_whoever_saw_an_older_row_writes_nothing(self, store):
        before = await registered(store)
        assert await store.subscriptions.append(grown(before, told(2, "subscription.activated")))
        late = grown(before, told(2, "subscription.paused", event_id="77"), state="PAUSED")
        letter = LetterRow(ref="r", message_id="m", reason="poison", attempts=1, at=at(1))
        assert not await store.subscriptions.append(
            msgspec.structs.replace(late, letters=(letter,))
        )
        assert (await store.subscriptions.get(SUB)).state == "REGISTERED"
        assert len(await store.log.read(SUB)) == 2
        assert await store.letters.counted(SUB) == 0

    async def test_of_two_appends_at_once_one_wins(self, store):
        before = await registered(store)
        names = ("subscription.paused", "subscription.activated")
        won = await asyncio.gather(
            *(
                store.subscriptions.append(grown(before, told(2, name, event_id=str(70 + n))))
                for n, name in enumerate(names)
            )
        )
        assert sorted(won) == [False, True]

    async def test_an_event_is_stored_once(self, store):
        before = await registered(store)
        assert await store.subscriptions.append(grown(before, told(2, "subscription.paused")))
        now = await store.subscriptions.get(SUB)
        again = told(3, "subscription.paused", event_id=str(int(SUB) + 2))
        assert not await store.subscriptions.append(grown(now, again))
        known = await store.subscriptions.known(SUB, [str(int(SUB) + 2), "4"])
        assert known == {str(int(SUB) + 2): 2}

    async def test_a_subscription_is_no_run(self, store):
        await registered(store)
        assert await store.executions.get(SUB) is None


class TicksSuite:
    async def test_those_are_due_whose_time_has_come(self, store):
        await registered(store, next_tick_at=at(20))
        await registered(store, sub="5", path="subs/a", next_tick_at=at(10))
        await registered(store, sub="6", path="subs/b")
        assert [found.path for found in await store.ticks.due(at(15))] == ["subs/a"]
        assert [found.path for found in await store.ticks.due(at(20))] == ["subs/a", "subs/meters"]
        assert await store.ticks.next_due() == at(10)


class OutcomesSuite:
    async def ended(self, store, number, event=None, parent=SUB, **about):
        run = Run(execution_id=str(int(SUB) + 1000 + number))
        start = msgspec.structs.replace(
            run.started(), parent_execution_id=parent, subscription=about or None
        )
        rows = {"parent_execution_id": parent}
        await run.write(store, start, row=rows)
        event = event or PlaybookCompleted()
        over = {"status": event.status, "completed_at": at(5)}
        if isinstance(event, PlaybookFailed):
            over["error"] = msgspec.to_builtins(event.error)
        await run.write(store, event, row=rows | over)
        return run

    async def test_ends_are_told_once_behind_a_cursor(self, store):
        await registered(store)
        assert (await store.outcomes.after(SUB, "", 10))[0] == []
        error = Error(kind="connection", code="db_connection", message="gone", retryable=True)
        await self.ended(store, 2, message_id="m:2", downstream="tsdb")
        await self.ended(store, 1, PlaybookFailed(error=error), message_id="m:1")
        found, cursor = await store.outcomes.after(SUB, "", 1)
        assert [(one.execution_id, one.status, one.subscription) for one in found] == [
            (str(int(SUB) + 1002), "COMPLETED", {"message_id": "m:2", "downstream": "tsdb"})
        ]
        found, cursor = await store.outcomes.after(SUB, cursor, 10)
        assert [(one.status, one.error["retryable"]) for one in found] == [("FAILED", True)]
        found, last = await store.outcomes.after(SUB, cursor, 10)
        assert (found, last) == ([], cursor)
        await self.ended(store, 3)
        assert len((await store.outcomes.after(SUB, cursor, 10))[0]) == 1

    async def test_ends_of_others_are_not_told(self, store):
        await registered(store)
        await self.ended(store, 1, parent=None)
        await self.ended(store, 2, parent="4711")
        assert (await store.outcomes.after(SUB, "", 10))[0] == []

    async def test_what_follows_the_end_is_no_second_end(self, store):
        await registered(store)
        run = await self.ended(store, 1)
        rows = {"parent_execution_id": SUB, "status": "COMPLETED", "completed_at": at(5)}
        await run.write(store, row=rows)
        assert len((await store.outcomes.after(SUB, "", 10))[0]) == 1

    async def test_now_is_behind_all_that_has_ended(self, store):
        await registered(store)
        await self.ended(store, 1)
        cursor = await store.outcomes.newest(SUB)
        assert (await store.outcomes.after(SUB, cursor, 10))[0] == []
        await self.ended(store, 2)
        assert len((await store.outcomes.after(SUB, cursor, 10))[0]) == 1

    async def test_a_cursor_of_another_database_begins_anew(self, store):
        await registered(store)
        await self.ended(store, 1)
        assert len((await store.outcomes.after(SUB, "999999999999.5", 10))[0]) == 1

    async def test_runs_of_messages_are_counted_by_status(self, store):
        await registered(store)
        await self.ended(store, 1)
        await self.ended(store, 2)
        assert await store.outcomes.counted(SUB, "2020-01-01T00:00:00Z") == {"COMPLETED": 2}


class LettersSuite:
    async def test_letters_come_with_an_append_and_go_with_one(self, store):
        now = await registered(store)
        letters = tuple(
            LetterRow(ref=f"r{n}", message_id=f"m{n}", reason="poison", attempts=n, at=at(n))
            for n in (2, 1, 3)
        )
        change = grown(now, told(2, "subscription.message.dead_lettered"))
        assert await store.subscriptions.append(msgspec.structs.replace(change, letters=letters))
        page = await store.letters.page(SUB, None, 2)
        assert [letter.ref for letter in page] == ["r1", "r2"]
        page = await store.letters.page(SUB, (page[-1].at, page[-1].ref), 2)
        assert page == [letters[2]]
        assert await store.letters.get(SUB, "r2") == letters[0]
        assert await store.letters.counted(SUB) == 3
        change = grown(change.row, told(3, "subscription.message.redriven"))
        gone = msgspec.structs.replace(change, letters_gone=("r1", "unknown"))
        assert await store.subscriptions.append(gone)
        assert await store.letters.counted(SUB) == 2
        assert await store.letters.counted(SUB, is_here=True) == 0

    async def test_a_letter_that_comes_again_keeps_where_its_message_lies(self, store):
        now = await registered(store)
        letter = LetterRow(
            ref="r", message_id="m", reason="a", attempts=1, at=at(1), result_ref="noetl://x"
        )
        for seq, one in ((2, letter), (3, msgspec.structs.replace(letter, result_ref=None))):
            change = grown(now, told(seq, "subscription.message.dead_lettered"))
            assert await store.subscriptions.append(msgspec.structs.replace(change, letters=(one,)))
            now = change.row
        assert await store.letters.page(SUB, None, 10) == [letter]
        assert await store.letters.counted(SUB, is_here=True) == 1

    async def test_letters_that_lie_here_are_wanted_while_somebody_asks_for_some(self, store):
        now, other = await registered(store), str(int(SUB) + 1000)
        asked = {"requests": [{"request_id": "1", "action": "redrive", "all": True}]}
        assert await store.letters.wanted() == []
        letter = LetterRow(ref="r", message_id="m", reason="a", attempts=1, at=at(1))
        await registered(store, other, "subs/other", summary=asked)
        change = grown(now, told(2, "subscription.message.dead_lettered"), summary=asked)
        change = msgspec.structs.replace(change, letters=(letter,))
        assert await store.subscriptions.append(change)
        assert await store.letters.wanted() == []
        here = msgspec.structs.replace(letter, result_ref="noetl://x")
        change = grown(change.row, told(3, "subscription.message.dead_lettered"))
        change = msgspec.structs.replace(change, letters=(here,))
        assert await store.subscriptions.append(change)
        assert await store.letters.wanted() == [SUB]
        done = grown(change.row, told(4, "subscription.message.failed"), summary={"requests": []})
        assert await store.subscriptions.append(done)
        assert await store.letters.wanted() == []


class DeliveriesSuite:
    async def test_deliveries_are_told_newest_first_by_page_and_filter(self, store):
        rows = [
            DeliveryRow(
                delivery_id=str(n), at=at(n), outcome="accepted" if n % 2 else "rejected",
                reason=None if n % 2 else "signature", status=202, message_id=f"m{n}",
                execution_id=str(n), duration_ms=1.5, bytes=3, directives={"applied": []},
            )
            for n in range(1, 6)
        ]  # fmt: skip
        assert await store.deliveries.add(SUB, rows) == 5
        assert await store.deliveries.add(SUB, rows[:2]) == 0

        async def names(**asked):
            page = await store.deliveries.page(SUB, DeliveryListing(**asked))
            return [found.delivery_id for found in page]

        assert await names(limit=2) == ["5", "4"]
        assert await names(limit=2, after=(at(4), "4")) == ["3", "2"]
        assert await names(outcome="rejected") == ["4", "2"]
        assert await names(reason="signature", since=at(3)) == ["4"]
        assert await names(message_id="m3") == ["3"]
        assert await names(until=at(2)) == ["1"]
        assert await store.deliveries.page("5", DeliveryListing()) == []
        assert (await store.deliveries.page(SUB, DeliveryListing(limit=1)))[0] == rows[-1]
        assert await names(limit=2, is_oldest_first=True, outcome="accepted") == ["1", "3"]

    async def test_one_delivery_is_found_by_its_id_and_told_which_run_it_became(self, store):
        rows = [
            DeliveryRow(
                delivery_id=str(n), at=at(n), outcome="spooled", status=202, replay_of=replay
            )
            for n, replay in ((1, None), (2, None), (3, "1"))
        ]
        await store.deliveries.add(SUB, rows)
        assert await store.deliveries.get(SUB, "2") == rows[1]
        assert await store.deliveries.get("5", "2") is None

        def run(name, execution_id):
            return DeliveryRow(
                delivery_id=name, at=at(9), outcome="spooled", execution_id=execution_id
            )

        await store.deliveries.ran(SUB, [run("2", "77"), run("1", "79"), run("1", "80")])
        await store.deliveries.ran(SUB, [run("2", "99")])
        found = [(await store.deliveries.get(SUB, name)).execution_id for name in "123"]
        assert found == ["79", "77", None], "the first run counts"
        page = await store.deliveries.page(SUB, DeliveryListing(is_oldest_first=True))
        assert [one.delivery_id for one in page] == ["1", "2"], "a replay is not replayed"

    async def test_a_delivery_that_is_told_after_its_run_keeps_it(self, store):
        run = DeliveryRow(
            delivery_id="4", at=at(9), outcome="spooled", reason=NOT_TOLD, message_id="m4",
            execution_id="81",
        )  # fmt: skip
        await store.deliveries.ran(SUB, [run])
        assert await store.deliveries.page(SUB, DeliveryListing(message_id="m4")) == [run]
        told = DeliveryRow(delivery_id="4", at=at(4), outcome="spooled", status=202, bytes=7)
        assert await store.deliveries.add(SUB, [told]) == 1
        assert await store.deliveries.add(SUB, [told]) == 0
        found = await store.deliveries.get(SUB, "4")
        assert found == msgspec.structs.replace(told, execution_id="81")


class CircuitsSuite:
    async def test_a_document_is_written_by_compare_and_set(self, store):
        put, get = store.circuits.put, store.circuits.get
        assert await get("default", "a.b") is None
        assert await put("default", "a.b", {"phase": "open"}, 1) is None
        assert await put("default", "a.b", {"phase": "open"}, None) == 1
        assert await put("default", "a.b", {"phase": "closed"}, None) is None
        assert await put("default", "a.b", {"phase": "closed"}, 1) == 2
        assert await put("default", "a.b", {"phase": "open"}, 1) is None
        found = CircuitRow(path="a.b", state={"phase": "closed"}, revision=2)
        assert await get("default", "a.b") == found
        assert await get("other", "a.b") is None

    async def test_of_many_writers_one_wins(self, store):
        won = await asyncio.gather(
            *(store.circuits.put("default", "lease", {"holder": n}, None) for n in range(8))
        )
        assert [made for made in won if made is not None] == [1]

    async def test_a_document_is_forgotten_at_its_revision(self, store):
        await store.circuits.put("default", "a", {}, None)
        assert not await store.circuits.remove("default", "a", 7)
        assert await store.circuits.remove("default", "a", 1)
        assert not await store.circuits.remove("default", "a")


class TwoKeysSuite:
    def start(self, number, first=None, second=None, until=60):
        run = Run(execution_id=str(int(SUB) + 5000 + number))
        return run.change(
            run.started(),
            row={"updated_at": at(10)},
            dedup=("s", first, at(until)) if first else None,
            replay=("s", second, at(until)) if second else None,
        )

    async def keys(self, store, *names):
        found = [await store.executions.started_as("s", name, at(20)) for name in names]
        return [None if one is None else one[0] for one in found]

    async def test_a_run_that_begins_under_two_keys_holds_both(self, store):
        change = self.start(1, "a", "b")
        assert await store.log.commit([change]) == frozenset()
        assert await self.keys(store, "a", "b") == [change.execution_id] * 2

    @pytest.mark.parametrize("keys", [("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")])
    async def test_a_hit_of_either_key_starts_nothing_and_burns_none(self, store, keys):
        first = self.start(1, "a", "b")
        await store.log.commit([first])
        late = self.start(2, *keys)
        assert await store.log.commit([late]) == {late.execution_id}
        assert await self.keys(store, "a", "b", "c") == [first.execution_id] * 2 + [None]
        assert await store.executions.get(late.execution_id) is None

    async def test_neighbours_of_a_start_that_lost_are_written(self, store):
        await store.log.commit([self.start(1, "a", "b")])
        fine, late, plain = self.start(2, "d", "e"), self.start(3, "x", "b"), self.start(4, "f")
        assert await store.log.commit([fine, late, plain]) == {late.execution_id}
        found = await self.keys(store, "d", "e", "f", "x")
        assert found == [fine.execution_id] * 2 + [plain.execution_id, None]

    async def test_equal_second_keys_in_one_commit_are_one_run(self, store):
        one, two = self.start(1, "a", "r"), self.start(2, "b", "r")
        assert await store.log.commit([one, two]) == {two.execution_id}
        assert await self.keys(store, "a", "b") == [one.execution_id, None]

    async def test_of_many_at_once_under_crossed_keys_no_key_is_left_behind(self, store):
        pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "d"), ("d", "b")]
        changes = [self.start(n, *pair) for n, pair in enumerate(pairs)]
        await asyncio.gather(*(store.log.commit([change]) for change in changes))
        for name in "abcd":
            found = await store.executions.started_as("s", name, at(20))
            assert found is None or await store.executions.get(found[0]) is not None
        for pair in pairs:
            assert any(await self.keys(store, *pair)), "one of both keys has started a run"

    async def test_many_keys_are_looked_up_at_once(self, store):
        await store.log.commit([self.start(1, "a", "b"), self.start(2, "old", until=5)])
        asked = [("s", name) for name in ("a", "b", "c", "old")] + [("t", "a")]
        assert await store.keys.held(asked, at(20)) == {("s", "a"), ("s", "b")}

    async def test_both_keys_are_free_again_when_their_windows_have_ended(self, store):
        await store.log.commit([self.start(1, "a", "b", until=5)])
        again = self.start(2, "a", "b")
        assert await store.log.commit([again]) == frozenset()
        assert await self.keys(store, "a", "b") == [again.execution_id] * 2
