from __future__ import annotations

import asyncio
import json
import random

import pytest

from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import Answer, Late, NoAnswer
from noetl.intake.dispatch import MOST_BYTES_AT_ONCE, Dispatcher, Gathered, Hasty, ServerStarter
from noetl.intake.outcomes import StartOutcome, of_entry
from noetl.local.virtual import run_virtually


class Wire:
    """Answers every request with what a test wants."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def request(self, method, path, body=b"", headers=None):
        del headers
        self.asked.append((method, path, json.loads(body)))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def problem(status, code="x", **more):
    body = {"type": "t", "title": "t", "status": status, "code": code, "detail": "d", **more}
    return Answer(status, {}, json.dumps(body).encode())


def started(status="started"):
    body = {
        "execution_id": "9", "status": status, "commands_generated": 1, "catalog_id": "1",
        "path": "p", "version": 1,
    }  # fmt: skip
    return Answer(200, {}, json.dumps(body).encode())


async def outcome(answer):
    [found] = await ServerStarter(Client(Wire(answer))).start([Execute(path="p")])
    return found


@pytest.mark.parametrize(
    ("answer", "kind", "is_outage"),
    [
        (started(), "accepted", False),
        (started("duplicate"), "duplicate", False),
        (NoAnswer("no connection"), "unavailable", True),
        (Late("no answer in time"), "unavailable", True),
        (problem(500), "unavailable", True),
        (problem(503), "unavailable", True),
        (problem(408), "unavailable", False),
        (problem(425), "unavailable", False),
        (problem(429), "unavailable", False),
        (problem(400), "refused", False),
        (problem(404), "refused", False),
        (problem(413), "refused", False),
        (problem(422), "refused", False),
        (problem(401), "misconfigured", False),
        (problem(403), "misconfigured", False),
        (Answer(200, {}, b"<html>"), "unavailable", True),
        (Answer(502, {}, b"<html>"), "unavailable", True),
    ],
    ids=[
        "started", "duplicate", "no connection", "late", "500", "503", "408", "425", "429", "400",
        "404", "413", "422", "401", "403", "not ours", "of a proxy",
    ],
)  # fmt: skip
async def test_every_answer_has_its_class(answer, kind, is_outage):
    found = await outcome(answer)
    assert (found.kind, found.is_outage) == (kind, is_outage)


async def test_the_server_may_say_when_to_come_again():
    assert (await outcome(problem(503, retry_after=7.5))).retry_after_s == 7.5
    bare = Answer(429, {"retry-after": "9"}, b"")
    assert (await outcome(bare)).retry_after_s == 9.0
    assert (await outcome(Answer(503, {"retry-after": "soon"}, b""))).retry_after_s is None


async def test_one_start_is_a_request_of_its_own_and_several_share_one():
    wire = Wire(started())
    await ServerStarter(Client(wire)).start([Execute(path="p")])
    results = [
        {"index": 1, "status": "duplicate", "commands_generated": 0, "execution_id": "5"},
        {
            "index": 0, "status": "error", "commands_generated": 0,
            "error": {"code": "unknown_playbook", "detail": "d", "retryable": False},
        },
    ]  # fmt: skip
    body = {"count": 2, "started": 0, "duplicates": 1, "failed": 1, "results": results}
    wire.answer = Answer(200, {}, json.dumps(body).encode())
    found = await ServerStarter(Client(wire)).start([Execute(path="a"), Execute(path="b")] * 2)
    assert [one.kind for one in found] == ["refused", "duplicate", "unavailable", "unavailable"]
    assert [(path, len(sent.get("executions", []))) for _, path, sent in wire.asked] == [
        ("/api/execute", 0), ("/api/execute/batch", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "overloaded", "retryable": True}, "unavailable"),
        ({"code": "unknown_playbook", "retryable": False}, "refused"),
        ({"code": "forbidden", "retryable": False}, "misconfigured"),
        (None, "refused"),
    ],
    ids=["retryable", "for good", "not ours", "nothing said"],
)
def test_every_entry_has_its_class(error, kind):
    assert of_entry("error", None, error).kind == kind


class Scripted:
    """Answers attempt by attempt."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def start(self, starts):
        self.asked.append([start.path for start in starts])
        return list(self.answers.pop(0))


OK = StartOutcome(kind="accepted", execution_id="1", is_entry=True)
BUSY = StartOutcome(kind="unavailable", is_entry=True)
AWAY = StartOutcome(kind="unavailable", is_outage=True)


def test_only_what_is_open_is_tried_again():
    async def main():
        heard = []

        async def told(outcome):
            heard.append(outcome.kind)
            return True

        starter = Scripted((AWAY, AWAY, AWAY), (OK, BUSY, OK), (OK,))
        dispatcher = Dispatcher(starter, told=told, batch_max=3, chance=random.Random(1))
        found = await dispatcher.dispatch([Execute(path=name) for name in "abc"])
        assert found == [OK, OK, OK]
        assert starter.asked == [["a", "b", "c"], ["a", "b", "c"], ["b"]]
        assert heard == ["unavailable", "accepted", "accepted"]

    run_virtually(main())


def test_whoever_hears_of_an_attempt_may_end_it():
    async def main():
        async def told(_outcome):
            return False

        starter = Scripted((AWAY,), (OK,))
        found = await Dispatcher(starter, told=told).dispatch([Execute(path="a")])
        assert (found, len(starter.asked)) == ([AWAY], 1)

    run_virtually(main())


async def yes(_outcome):
    return True


class Narrow:
    """Takes so many starts at once; some of them not at all, and for some it is away."""

    def __init__(self, most=1_000, bad="", away=""):
        self.most, self.bad, self.away = most, bad, away
        self.asked = []

    async def start(self, starts):
        word = "".join(start.path for start in starts)
        self.asked.append(word)
        if set(word) & set(self.away):
            return [AWAY] * len(word)
        if len(word) > self.most or set(word) & set(self.bad):
            return [TOO_LARGE] * len(word)
        return [OK] * len(word)


TOO_LARGE = StartOutcome(kind="refused", code="body_too_large")


@pytest.mark.parametrize(
    ("starter", "outcomes", "asked"),
    [
        (Narrow(), [OK] * 5, ["abcde"]),
        (Narrow(most=2), [OK] * 5, ["abcde", "ab", "cde", "c", "de"]),
        (
            Narrow(bad="d"),
            [OK, OK, OK, TOO_LARGE, OK],
            ["abcde", "ab", "cde", "c", "de", "d", "e"],
        ),
        (Narrow(most=2, away="c"), [AWAY] * 5, ["abcde"]),
        (Narrow(most=1, bad="ab"), [TOO_LARGE] * 2 + [OK] * 3, None),
    ],
    ids=["as it is", "too many", "one is bad", "away", "two are bad"],
)
async def test_a_refused_request_is_split_until_the_bad_one_is_alone(starter, outcomes, asked):
    dispatcher = Dispatcher(starter, told=yes, batch_max=10)
    assert await dispatcher.dispatch([Execute(path=name) for name in "abcde"], tries=1) == outcomes
    assert asked is None or starter.asked == asked


def of_size(name, share):
    """A start that is about such a share of what one request holds."""
    return Execute(path=name, payload={"text": "x" * int(share * MOST_BYTES_AT_ONCE)})


async def test_a_request_holds_so_many_bytes_and_a_larger_start_goes_alone():
    starter = Narrow()
    shares = {"a": 0.4, "b": 0.4, "c": 0.4, "d": 2.5, "e": 0.3, "f": 0.3, "g": 0.3, "h": 0.3}
    starts = [of_size(name, share) for name, share in shares.items()]
    assert await Dispatcher(starter, told=yes, batch_max=3).dispatch(starts) == [OK] * 8
    assert starter.asked == ["ab", "c", "d", "efg", "h"]


async def test_nothing_to_start_is_no_request():
    starter = Narrow()
    assert await Dispatcher(starter, told=yes, batch_max=3).dispatch([]) == []
    assert starter.asked == []


async def test_after_a_request_that_nobody_answers_no_other_is_made():
    starter = Narrow(away="c")
    dispatcher = Dispatcher(starter, told=yes, batch_max=2)
    found = await dispatcher.dispatch([Execute(path=name) for name in "abcdef"], tries=1)
    assert (found, starter.asked) == ([OK, OK, AWAY, AWAY, AWAY, AWAY], ["ab", "cd"])


def test_starts_that_come_meanwhile_share_the_next_request():
    async def main():
        async def told(_outcome):
            return True

        asked = []

        class Slow:
            async def start(self, starts):
                asked.append(len(starts))
                await asyncio.sleep(1)
                return [OK] * len(starts)

        gathered = Gathered(Dispatcher(Slow(), told=told, batch_max=4), 4)
        first = asyncio.create_task(gathered.start(Execute(path="a")))
        await asyncio.sleep(0.5)
        rest = [asyncio.create_task(gathered.start(Execute(path="b"))) for _ in range(6)]
        assert await asyncio.gather(first, *rest) == [OK] * 7
        assert asked == [1, 4, 2]

    run_virtually(main())


class Counted:
    """Takes a second for each request."""

    def __init__(self):
        self.asked = []
        self.most = self.now = 0

    async def start(self, starts):
        self.asked.append([start.path for start in starts])
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1)
        self.now -= 1
        return [OK] * len(starts)


def gathered(starter, most=4, **more):
    return Gathered(Dispatcher(starter, told=yes, batch_max=most), most, **more)


def test_so_many_requests_are_under_way_at_once_and_the_next_begins_when_one_ends():
    async def main():
        starter = Counted()
        shared = gathered(starter, under_way=3)
        await asyncio.gather(*(shared.start(Execute(path=str(n))) for n in range(26)))
        assert starter.most == 3
        assert [len(one) for one in starter.asked] == [4, 4, 4, 4, 4, 4, 2]
        assert [path for one in starter.asked for path in one] == [str(n) for n in range(26)]
        await shared.start(Execute(path="later"))
        assert starter.asked[-1] == ["later"]

    run_virtually(main())


def test_starts_that_were_given_together_stay_in_one_request_in_their_order():
    async def main():
        starter = Counted()
        shared = gathered(starter, under_way=1)
        one = asyncio.create_task(shared.start(Execute(path="x")))
        await asyncio.sleep(0.1)
        some = [
            asyncio.create_task(shared.start_all([Execute(path=name) for name in word]))
            for word in ("ab", "cde", "f")
        ]
        assert [len(found) for found in await asyncio.gather(*some)] == [2, 3, 1]
        await one
        assert starter.asked == [["x"], ["a", "b"], ["c", "d", "e", "f"]]

    run_virtually(main())


def test_large_starts_do_not_share_a_request_and_one_that_is_too_large_goes_alone():
    async def main():
        starter = Counted()
        shared = gathered(starter, under_way=1)
        half = MOST_BYTES_AT_ONCE // 2
        sizes = {"a": half, "b": half, "c": 1, "d": 3 * half, "e": 1}
        await asyncio.gather(*(shared.start(Execute(path=n), sizes[n]) for n in sizes))
        assert starter.asked == [["a", "b"], ["c"], ["d"], ["e"]]

    run_virtually(main())


def test_a_start_that_nobody_waits_for_any_more_is_not_sent():
    async def main():
        starter = Counted()
        shared = gathered(starter, under_way=1)
        first = asyncio.create_task(shared.start(Execute(path="a")))
        await asyncio.sleep(0.1)
        given_up = asyncio.create_task(shared.start(Execute(path="b")))
        await asyncio.sleep(0.1)
        given_up.cancel()
        assert await asyncio.gather(first, shared.start(Execute(path="c"))) == [OK, OK]
        assert starter.asked == [["a"], ["c"]]

    run_virtually(main())


def test_whoever_waits_is_not_left_when_the_one_who_sends_is_ended():
    async def main():
        shared = gathered(Counted(), under_way=1)
        waiting = [asyncio.create_task(shared.start(Execute(path=name))) for name in "abcdefg"]
        await asyncio.sleep(0.1)
        [sender] = [one for one in asyncio.all_tasks() if one.get_name() == "intake-gathered"]
        sender.cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in found} == {asyncio.CancelledError}
        assert await shared.start(Execute(path="h")) == OK

    run_virtually(main())


def test_a_hasty_one_does_not_wait_for_ever():
    async def main():
        starter = Counted()
        found = await Hasty(starter, 0.5).start([Execute(path="a"), Execute(path="b")])
        assert [(one.kind, one.code, one.is_outage) for one in found] == [
            ("unavailable", "timeout", True)
        ] * 2
        assert await Hasty(starter, 2.0).start([Execute(path="a")]) == [OK]

    run_virtually(main())
