import asyncio

import pytest

from noetl.api.subscriptions import Instances, SpoolFigures, Subscription, Subscriptions
from noetl.errors import NoetlError
from noetl.local.embedded.home import Home
from noetl.local.embedded.listening import Listeners, is_wanted
from tests.unit.local.embedded.test_supervisor import Child, virtually


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.make()
    return made


def one(path, desired="running", mode="pull", activation="continuous", state="ACTIVE"):
    return Subscription(
        subscription_id="1", path=path, catalog_id="2", version=1, state=state,
        last_event_type="", updated_at="", desired=desired, runtime=Instances(), circuit={},
        spool=SpoolFigures(), mode=mode, activation=activation,
    )  # fmt: skip


class Server:
    """A server whose list changes when the test says so."""

    def __init__(self):
        self.found = []
        self.told = asyncio.Queue()

    async def subscriptions(self):
        return Subscriptions(subscriptions=tuple(self.found))

    async def follow(self, topic):
        assert topic == "subscriptions"
        while True:
            word = await self.told.get()
            if word == "gone":
                raise NoetlError("the server is away")
            yield word

    async def tells(self, *found):
        self.found = found
        self.told.put_nowait("changed")
        await asyncio.sleep(0.1)


class Listening(Listeners):
    """Listeners of a server that is here."""

    def __init__(self, server, supervisor, make):
        super().__init__("", "", supervisor, make)
        self._server = server

    async def _follow(self):
        await self._look(self._server)
        async for _ in self._server.follow("subscriptions"):
            await self._look(self._server)


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, True),
        ({"desired": "paused"}, True),
        ({"desired": "draining"}, True),
        ({"desired": "stopped"}, False),
        ({"state": "REGISTERED"}, False),
        ({"state": "DEACTIVATED"}, True),
        ({"mode": "push"}, False),
        ({"activation": "scheduled"}, False),
    ],
)
def test_whoever_is_to_listen_has_a_listener(about, expected):
    assert is_wanted(one("a", **about)) is expected


def test_listeners_come_and_go_with_the_list_and_end_with_the_stack(home):
    made, seen = {}, []

    async def scenario(supervisor):
        def make(name, path):
            seen.append((name, path))
            made[path] = Child(name)
            return made[path]

        server = Server()
        server.found = [one("a/b")]
        listening = asyncio.create_task(Listening(server, supervisor, make).run())
        await asyncio.sleep(0.1)
        assert [child.starts for child in made.values()] == [1]

        await server.tells(one("a/b"), one("a-b"), one("c", mode="push"))
        assert seen == [("listener-a-b", "a/b"), ("listener-a-b-", "a-b")]
        assert {part.name for part in supervisor.stack.parts} >= {"listener-a-b", "listener-a-b-"}

        await server.tells(one("a/b", "stopped"), one("a-b"))
        assert (made["a/b"].stopped, made["a-b"].stopped) == (1, 0)
        assert "listener-a-b" not in {part.name for part in supervisor.stack.parts}

        server.told.put_nowait("gone")  # and it is back a second later
        server.found = [one("a/b"), one("a-b")]
        await asyncio.sleep(2)
        assert made["a/b"].starts == 1
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert (made["a/b"].stopped, made["a-b"].stopped) == (1, 1)

    virtually(home, scenario)


def test_a_listener_that_ends_is_started_after_1_2_4_up_to_60_seconds(home):
    async def scenario(supervisor):
        child = Child("listener-a")
        keeping = asyncio.create_task(supervisor.keep(child))
        for _ in range(8):
            child.ends.put_nowait(78)
        await asyncio.sleep(400)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        assert (child.starts, child.stopped) == (9, 1)

    said = virtually(home, scenario)

    assert [line.rpartition(" in ")[2] for line in said] == [
        f"{seconds} s." for seconds in (1, 2, 4, 8, 16, 32, 60, 60)
    ]
