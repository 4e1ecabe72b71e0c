from __future__ import annotations

import asyncio
import json

import pytest

from noetl.api.client import Client
from noetl.api.http import Answer, NoAnswer
from noetl.bus.memory_keys import MemoryKeys
from noetl.intake.breakers import Breakers
from noetl.intake.circuit_stores import (
    Changed,
    Document,
    FileStore,
    KeysStore,
    ServerStore,
    StoreGone,
    circuit_key,
    lease_key,
)
from noetl.intake.leases import Lease
from noetl.intake.metrics import IntakeMetrics
from noetl.local.virtual import run_virtually
from noetl.sources.breaker import PHASES, Rules
from tests.unit.intake.world import PATH, World

RULES = Rules(trip_after=3, probe_after_ms=1000)


class Circuits:
    """The part of a server that keeps circuits."""

    def __init__(self):
        self.kept = {}
        self.is_down = False

    async def request(self, method, path, body=b"", headers=None):
        if self.is_down:
            raise NoAnswer("no connection")
        assert path.startswith("/api/internal/circuits/")
        key = path.rpartition("/")[2]
        found = self.kept.get(key)
        if method == "GET":
            return self._answer(key) if found else Answer(404, {}, b"{}")
        known = f'"{found[1]}"' if found else None
        is_same = found is None if headers.get("if-none-match") else headers["if-match"] == known
        if not is_same:
            problem = {"type": "t", "title": "t", "status": 409, "detail": "d"}
            problem["code"] = "revision_conflict"
            return Answer(409, {}, json.dumps(problem).encode())
        if method == "DELETE":
            del self.kept[key]
            return Answer(204, {}, b"")
        self.kept[key] = (json.loads(body), (found[1] if found else 0) + 1)
        return self._answer(key)

    def _answer(self, key):
        state, revision = self.kept[key]
        body = {"path": key, "state": state, "revision": revision}
        return Answer(200, {}, json.dumps(body).encode())


class Flaky:
    """A store that can be away."""

    def __init__(self, store):
        self.store = store
        self.is_down = False

    def __getattr__(self, name):
        if self.is_down:
            raise StoreGone("away")
        return getattr(self.store, name)


@pytest.fixture(params=["keys", "server", "file"])
def store_of(request, tmp_path):
    """Makes a store that finds what an earlier one has kept."""
    keys, circuits = MemoryKeys(), Circuits()
    return {
        "keys": lambda: KeysStore(keys),
        "server": lambda: ServerStore(Client(circuits)),
        "file": lambda: FileStore(tmp_path / "spool" / "control" / "circuit.json"),
    }[request.param]


def breakers(store, clock, told=None, metrics=None):
    return Breakers(
        PATH,
        ["tsdb"],
        RULES,
        store=store,
        clock=clock,
        tell=(lambda name, fields: told.append((name, fields))) if told is not None else _silent,
        metrics=metrics or IntakeMetrics([PATH], ["tsdb"]),
    )


def _silent(_name, _fields):
    return None


async def test_every_store_writes_only_over_what_it_knows(store_of):
    store = store_of()
    assert await store.get("a.b") is None
    first = await store.put("a.b", {"n": 1}, None)
    with pytest.raises(Changed):
        await store.put("a.b", {"n": 2}, None)
    second = await store_of().put("a.b", {"n": 2}, first)
    with pytest.raises(Changed):
        await store.put("a.b", {"n": 3}, first)
    assert await store.get("a.b") == Document({"n": 2}, second)
    with pytest.raises(Changed):
        await store.delete("a.b", first)
    await store.delete("a.b", second)
    assert await store.get("a.b") is None


def test_33_an_open_breaker_survives_a_restart_on_every_store(store_of):
    async def main():
        world = World()
        first = breakers(store_of(), world.clock)
        for _ in range(3):
            await first.failed("tsdb", "refused")
        second = breakers(store_of(), world.clock)
        await second.refresh()
        assert second.state("tsdb") == first.state("tsdb")
        assert second.state("tsdb").phase == "open"
        await asyncio.sleep(1)
        words = [await one.enter("tsdb") for one in (first, second)]
        assert words == [("probe", ("tsdb",)), ("hold", ())]
        await first.succeeded("tsdb")
        await second.refresh()
        assert second.is_closed("tsdb")

    run_virtually(main())


def test_a_change_is_known_to_others_without_waiting_for_it():
    async def main():
        world = World()
        keys = MemoryKeys(world.clock)
        first, second = (breakers(KeysStore(keys), world.clock) for _ in range(2))
        following = asyncio.create_task(second.follow(3600))
        await asyncio.sleep(1)
        began = world.clock.monotonic()
        for _ in range(3):
            await first.failed("tsdb", "refused")
        for _ in range(20):
            await asyncio.sleep(0)
        assert second.state("tsdb").phase == "open"
        assert world.clock.monotonic() == began
        following.cancel()

    run_virtually(main())


def test_a_change_that_nobody_tells_is_known_at_the_next_look(store_of):
    async def main():
        world = World()
        first, second = (breakers(store_of(), world.clock) for _ in range(2))
        for _ in range(3):
            await first.failed("tsdb", "refused")
        following = asyncio.create_task(second.follow(2))
        await asyncio.sleep(3)
        assert second.state("tsdb").phase == "open"
        following.cancel()

    run_virtually(main())


def test_failures_of_several_processes_count_together_and_a_success_of_one_ends_the_count(store_of):
    async def main():
        world, told = World(), []
        first, second = (breakers(store_of(), world.clock, told) for _ in range(2))
        await first.failed("tsdb")
        await second.failed("tsdb")
        await second.succeeded("tsdb")
        await first.failed("tsdb")
        await second.failed("tsdb")
        assert (second.state("tsdb").consecutive_failures, second.is_closed("tsdb")) == (2, True)
        await first.failed("tsdb", "refused")
        assert first.state("tsdb").phase == "open"
        await second.refresh()
        assert second.state("tsdb").phase == "open"
        assert [name for name, _ in told] == ["subscription.circuit.opened"]

    run_virtually(main())


def test_of_several_processes_one_gets_the_probe_and_each_change_is_told_once():
    async def main():
        world, told = World(), []
        keys = MemoryKeys(world.clock)
        many = [breakers(KeysStore(keys), world.clock, told) for _ in range(5)]
        for _ in range(3):
            await asyncio.gather(*(one.failed("tsdb", "refused") for one in many))
        assert [one.state("tsdb").phase for one in many] == ["open"] * 5
        assert [name for name, _ in told] == ["subscription.circuit.opened"]
        assert told[0][1] == {
            "downstream": "tsdb", "consecutive_failures": 3, "trips": 1, "reason": "refused",
        }  # fmt: skip
        await asyncio.sleep(1)
        words = await asyncio.gather(*(one.enter("server", "tsdb") for one in many))
        assert sorted(word for word, _ in words) == ["hold"] * 4 + ["probe"]
        winner = many[[word for word, _ in words].index("probe")]
        await winner.succeeded("tsdb")
        for one in many:
            await one.refresh()
        assert all(one.is_closed("tsdb") for one in many)
        assert told[1:] == [
            ("subscription.circuit.closed", {"downstream": "tsdb", "open_ms": 1000})
        ]

    run_virtually(main())


def test_without_its_store_a_circuit_lives_in_memory_and_is_written_when_the_store_returns():
    async def main():
        world, told = World(), []
        keys = MemoryKeys(world.clock)
        flaky = Flaky(KeysStore(keys))
        metrics = IntakeMetrics([PATH], ["tsdb"])
        first = breakers(flaky, world.clock, told, metrics)
        flaky.is_down = True
        for _ in range(3):
            await first.failed("tsdb")
        assert first.state("tsdb").phase == "open"
        assert (metrics.unkept.value(PATH), metrics.circuit.value(PATH, "tsdb")) == (1, 2)
        await first.refresh()
        flaky.is_down = False
        await first.refresh()
        second = breakers(KeysStore(keys), world.clock)
        await second.refresh()
        assert second.state("tsdb") == first.state("tsdb")
        assert len(told) == 1

    run_virtually(main())


def test_every_circuit_is_shown_before_it_changes():
    async def main():
        world, metrics = World(), IntakeMetrics([PATH])
        breakers(KeysStore(world.keys), world.clock, metrics=metrics)
        shown = [sample.labels for sample in metrics.circuit.family().samples]
        names = ["server", "tsdb"]
        assert [one["downstream"] for one in shown] == names
        counted = metrics.transitions.family().samples
        assert [(one.labels["downstream"], one.labels["to"], one.value) for one in counted] == [
            (name, phase, 0.0) for name in names for phase in PHASES
        ]

    run_virtually(main())


def test_a_circuit_that_another_has_changed_since_is_not_written_over():
    async def main():
        world = World()
        keys = MemoryKeys(world.clock)
        flaky = Flaky(KeysStore(keys))
        first = breakers(flaky, world.clock)
        flaky.is_down = True
        for _ in range(3):
            await first.failed("tsdb")
        await asyncio.sleep(5)
        second = breakers(KeysStore(keys), world.clock)
        for _ in range(3):
            await second.failed("tsdb")
        await asyncio.sleep(1)
        await second.enter("tsdb")
        await second.succeeded("tsdb")
        flaky.is_down = False
        await first.refresh()
        assert first.is_closed("tsdb")

    run_virtually(main())


def test_a_message_that_needs_two_probes_gets_both_or_none():
    async def main():
        world = World()
        made = breakers(KeysStore(MemoryKeys(world.clock)), world.clock)
        for _ in range(3):
            await made.failed("server")
        await asyncio.sleep(0.5)
        for _ in range(3):
            await made.failed("tsdb")
        await asyncio.sleep(0.5)
        assert await made.enter("server", "tsdb") == ("hold", ())
        assert made.state("server").phase == "open"
        await asyncio.sleep(0.5)
        assert await made.enter("server", "tsdb") == ("probe", ("server", "tsdb"))
        await made.released("tsdb")
        await made.succeeded("server")
        assert await made.enter("server", "tsdb") == ("probe", ("tsdb",))

    run_virtually(main())


@pytest.mark.parametrize(
    ("path", "name", "key"),
    [
        ("subscriptions/meters", "tsdb", "subscriptions=2fmeters.tsdb"),
        ("a.b/c d", "x:1", "a=2eb=2fc=20d.x=3a1"),
        ("drain", "x", "=64rain.x"),
        ("a=b", "é", "a=3db.=c3=a9"),
    ],
)
def test_the_key_of_a_circuit(path, name, key):
    assert circuit_key(path, name) == key


def test_no_circuit_has_the_key_of_a_lease():
    assert lease_key("x") == "drain.x"
    assert circuit_key("drain", "x") != lease_key("x")


async def test_a_file_that_nobody_can_read_is_no_circuit(tmp_path):
    file = tmp_path / "circuit.json"
    file.write_text("[]")
    assert await FileStore(file).get("a") is None
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreGone):
        await FileStore(tmp_path / "folder").get("a")
    with pytest.raises(StoreGone):
        await FileStore(file / "below").put("a", {}, None)


# ---------------------------------------------------------------------------- leases


def test_one_of_two_holds_the_lease_and_the_other_follows_when_it_is_gone():
    async def main():
        world = World()
        store = KeysStore(world.keys)
        one, two = (Lease(PATH, name, store=store, clock=world.clock) for name in ("one", "two"))
        assert [await one.keep(), await two.keep()] == [True, False]
        for _ in range(4):
            await asyncio.sleep(5)
            assert [await one.keep(), await two.keep()] == [True, False]
        await asyncio.sleep(14)  # the first one has died
        assert (one.is_held, await two.keep()) == (False, False)
        await asyncio.sleep(5)
        assert await two.keep()
        assert not await one.keep()

    run_virtually(main())


def test_a_lease_that_is_given_back_is_free_at_once():
    async def main():
        world = World()
        store = KeysStore(world.keys)
        one, two = (Lease(PATH, name, store=store, clock=world.clock) for name in ("one", "two"))
        await one.keep()
        await two.keep()
        await one.release()
        assert [one.is_held, await one.keep(), await two.keep()] == [False, False, True]

    run_virtually(main())


def test_on_a_store_that_forgets_nothing_a_dead_holder_is_followed_after_its_time(tmp_path):
    async def main():
        world = World()
        store = FileStore(tmp_path / "circuit.json")
        await Lease(PATH, "one", store=store, clock=world.clock).keep()
        two = Lease(PATH, "two", store=store, clock=world.clock)
        assert not await two.keep()
        await asyncio.sleep(10)
        assert not await two.keep()
        await asyncio.sleep(6)
        assert await two.keep()

    run_virtually(main())


def test_a_holder_that_cannot_renew_stops_before_others_may_begin():
    async def main():
        world = World()
        flaky = Flaky(KeysStore(world.keys))
        one = Lease(PATH, "one", store=flaky, clock=world.clock)
        assert await one.keep()
        flaky.is_down = True
        await asyncio.sleep(10)
        assert await one.keep()
        await asyncio.sleep(3.5)
        assert not await one.keep()

    run_virtually(main())


def test_whoever_comes_back_under_his_name_goes_on():
    async def main():
        world = World()
        store = KeysStore(world.keys)
        await Lease(PATH, "one", store=store, clock=world.clock).keep()
        assert await Lease(PATH, "one", store=store, clock=world.clock).keep()

    run_virtually(main())
