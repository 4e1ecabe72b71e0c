"""What is for flooded pools gives way to all other pools, and is never kept waiting for good."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.server.access.caller import Caller
from noetl.server.ingest import floods
from noetl.server.ingest.floods import Floods
from noetl.server.ingest.lines import Lines
from noetl.server.ingest.pace import LEAST_PIECE
from noetl.server.ingest.posts import Ask, Post, Work
from tests.unit.server.rig import HEAD, ONE_STEP, rig, virtually

SOMEBODY = Caller(account="somebody", tenant_id="default", roles=("admin",))
PIECE = 2 * LEAST_PIECE
"""Before anything is known of the times of commits."""


def nothing(_state):
    return iter(())


class Scene:
    def __init__(self):
        self.now = 100.0
        self.backlog = {}
        self.floods = Floods(
            SimpleNamespace(monotonic=lambda: self.now), lambda pool: self.backlog.get(pool, 0)
        )
        self.lines = Lines(self.floods)

    def starts(self, count, pool):
        posts = tuple(Post(str(n), nothing, gives_way=True, pool=pool) for n in range(count))
        return self.added(Work(posts, done=None, at=self.now))

    def report(self, pool, count=1):
        posts = tuple(Post(str(n), nothing) for n in range(count))
        return self.added(Work(posts, done=None, ask=Ask("w", pool, 1), at=self.now))

    def added(self, work):
        self.lines.add(work)
        return work

    def spent(self, seconds):
        """Somebody of a flooded pool has just had a long commit."""
        self.floods.took(seconds)


@pytest.fixture
def scene():
    return Scene()


def test_without_others_a_flood_has_all_of_the_time(scene):
    many, report = scene.starts(100, "iot"), scene.report("iot")
    taken = scene.lines.taken()
    assert taken.works == [report, many]
    assert len(taken.posts) > PIECE
    assert not taken.is_flood
    assert scene.lines.wait_s == 0


def test_others_go_first_and_alone(scene):
    many, iot = scene.starts(100, "iot"), scene.report("iot")
    shared, single = scene.report("shared"), scene.starts(1, "shared")
    assert scene.lines.taken().works == [shared, single]
    taken = scene.lines.taken()
    assert taken.works == [iot, many]
    assert (len(taken.posts), taken.is_flood) == (PIECE, True)


def test_while_others_work_a_flood_has_its_share_in_pieces(scene):
    scene.starts(100, "iot")
    pieces = waited = 0
    began = scene.now
    while scene.now - began < 10:
        scene.report("shared")
        assert not scene.lines.taken().is_flood
        if scene.lines.wait_s == 0:
            assert scene.lines.taken().is_flood
            scene.now += 0.006
            scene.spent(0.006)
            pieces += 1
            scene.starts(100, "iot")
        else:
            waited += 1
            scene.now += min(scene.lines.wait_s, 0.02)
    assert waited
    assert pieces * 0.006 == pytest.approx(floods.SHARE * 10, rel=0.1)


def test_when_others_are_silent_it_need_not_wait_for_its_share(scene):
    scene.starts(100, "iot")
    scene.report("shared")
    scene.lines.taken()
    scene.spent(1.0)
    assert scene.lines.wait_s == pytest.approx(floods.CALM_S)
    assert scene.lines.taken().works == []
    scene.now += floods.CALM_S * 1.01
    assert scene.lines.wait_s == 0
    assert len(scene.lines.taken().posts) > PIECE


def test_a_report_gives_way_no_longer_than_it_may(scene):
    scene.starts(100, "iot")
    scene.report("iot")
    scene.spent(10.0)
    began = scene.now
    while True:
        scene.report("shared")
        scene.lines.taken()
        if scene.lines.wait_s == 0:
            break
        scene.now += 0.01
    assert scene.now - began == pytest.approx(floods.MOST_WAIT_S, abs=0.05)
    assert scene.lines.taken().works[0].ask.pool == "iot"


def test_a_pool_is_flooded_until_few_of_its_commands_wait(scene):
    scene.starts(100, "iot")
    scene.lines.taken()
    scene.lines.taken()
    scene.backlog["iot"] = floods.FEW_LEFT + 1
    scene.now += 60
    iot, shared = scene.report("iot"), scene.report("shared")
    assert scene.lines.taken().works == [shared]
    assert scene.lines.taken().works == [iot]
    scene.backlog["iot"] = floods.FEW_LEFT
    iot, shared = scene.report("iot"), scene.report("shared")
    assert scene.lines.taken().works == [iot, shared]


def test_what_belongs_to_no_pool_is_nobody_elses_work(scene):
    many = scene.starts(100, "iot")
    timers = scene.added(Work((Post("7", nothing),), done=None, at=scene.now))
    assert scene.lines.taken().works == [timers, many]


def test_two_floods_are_equal(scene):
    first, second = scene.starts(10, "iot"), scene.starts(10, "bulk")
    reports = scene.report("iot"), scene.report("bulk")
    assert scene.lines.taken().works == [*reports, first, second]


def test_pressure_counts_the_reports_of_floods(scene):
    scene.starts(100, "iot")
    for _ in range(2_048):
        scene.report("iot")
    assert scene.lines.pressure == "slow"


@virtually
async def test_every_run_of_a_flood_begins_while_others_go_on():
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        item = {"path": "demo/it", "execution_pool": "iot"}
        items = tuple(msgspec.Raw(json.dumps(item).encode()) for _ in range(200))
        flood = asyncio.create_task(r.plane.batches.execute(items, SOMEBODY))
        others = 0
        while not flood.done():
            await r.plane.starts.execute(Execute(path="demo/it"), SOMEBODY)
            others += 1
            await asyncio.sleep(0.01)
        assert (await flood).started == 200
        assert others < 1000
