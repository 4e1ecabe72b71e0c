from __future__ import annotations

import asyncio
import json
import random

import pytest

from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import Answer, Late, NoAnswer
from noetl.intake.dispatch import Dispatcher, Gathered, ServerStarter
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
