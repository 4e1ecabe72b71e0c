"""How runs end, from where one left off."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from noetl.api.http import NoAnswer
from noetl.api.problems import Problem, Refused
from noetl.api.subscriptions import NOW, Outcome, Outcomes
from noetl.bus.memory_keys import MemoryKeys
from noetl.intake.circuit_stores import KeysStore, circuit_key, lease_key
from noetl.intake.endings import ServerEndings, place_key
from noetl.local.virtual import run_virtually
from tests.unit.intake.world import until

OF = SimpleNamespace(subscription_id="7", path="subscriptions/s")


class Server:
    """Tells of runs that have ended, a page to a cursor."""

    def __init__(self):
        self.pages = {}
        self.asked = []
        self.fault = None
        self.most = 0
        self._now = 0

    def ended(self, cursor, after, *runs):
        found = tuple(
            Outcome(execution_id=run, message_id=None, status="COMPLETED") for run in runs
        )
        self.pages[cursor] = Outcomes(outcomes=found, cursor=after)

    async def outcomes(self, subscription_id, cursor, *, wait_ms):
        assert subscription_id == "7"
        self.asked.append(cursor)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            if self.fault is not None:
                fault, self.fault = self.fault, None
                raise fault
            page = self.pages.get(cursor)
            if page is None:
                await asyncio.sleep(wait_ms / 1000)
                page = Outcomes(outcomes=(), cursor="c0" if cursor == NOW else cursor)
            return page
        finally:
            self._now -= 1


async def followed(server, keys, seconds=30.0, **more):
    """What is told in some time; the process ends in good order."""
    heard = []

    async def told(outcome):
        heard.append(outcome.execution_id)

    endings = ServerEndings(server, KeysStore(keys), **more)
    await endings.begin(OF)
    task = asyncio.create_task(endings.follow(OF, told))
    await asyncio.sleep(seconds)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return heard


def test_the_next_process_goes_on_where_the_last_one_was():
    async def main():
        server, keys = Server(), MemoryKeys()
        server.ended("c0", "c1", "1", "2")
        assert await followed(server, keys) == ["1", "2"]
        server.ended("c1", "c2", "3")
        assert await followed(server, keys) == ["3"]
        assert server.asked.count(NOW) == 1

    run_virtually(main())


@pytest.mark.parametrize(
    "fault",
    [
        NoAnswer("away"),
        Refused(Problem(type="about:blank", status=503, code="busy", title="", detail="")),
        Refused(Problem(type="about:blank", status=422, code="bad_cursor", title="", detail="")),
    ],
)
def test_a_server_that_does_not_tell_is_asked_again(fault):
    async def main():
        server = Server()
        server.ended("c0", "c1", "1")
        server.ended(NOW, "c0")
        endings = asyncio.create_task(followed(server, MemoryKeys()))
        await until(lambda: server.asked)
        server.fault = fault
        assert set(await endings) == {"1"}

    run_virtually(main())


def test_those_who_share_turns_do_not_ask_at_once():
    async def main():
        server, turns = Server(), asyncio.Semaphore(2)
        follow = [followed(server, MemoryKeys(), turns=turns) for _ in range(6)]
        await asyncio.gather(*follow)
        assert len(server.asked) > 6

    run_virtually(main())


def test_a_place_has_the_key_of_no_circuit_and_of_no_lease():
    words = ("cursor", "drain", "a", "a.cursor", "drain.a", "a.cursor.cursor", "=63ursor")
    taken = {circuit_key(path, name) for path in words for name in words}
    taken |= {lease_key(path) for path in words}
    places = {place_key(path) for path in words}
    assert not places & taken
    assert len(places) == len(words)
