"""Large values in two tiers on PostgreSQL: where they lie, and that nothing is left behind."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.callbacks import Collect
from noetl.api.problems import Refused
from noetl.api.results import PutResult
from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.tiered import TieredBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from noetl.telemetry.traces.tracer import Tracer
from tests.unit.server.rig import ONE_STEP, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.telemetry.traces.span import Span

MIB = 1 << 20
FORGOTTEN = "update noetl.execution set completed_at = $2 where execution_id = $1"


class Tiered(Rig):
    """A server whose object store can be looked into."""

    database: Database
    large: MemoryBlobs
    blobs: TieredBlobs

    async def objects(self) -> list[str]:
        return await self.large.listed()


@asynccontextmanager
async def server(url: str, **more: Any) -> AsyncIterator[Tiered]:
    database = await Database.open(url, size=4)
    try:
        clock, store, large = SystemClock(), PostgresStore(database), MemoryBlobs()
        ids, bus = Ids(clock, 1), MemoryBus()
        blobs = TieredBlobs(database, large, ids, "test")
        parts = ServerParts(
            store=store, bus=bus, blobs=blobs, clock=clock, ids=ids, is_alone=False, **more
        )
        async with create_server(parts) as made:
            rig = Tiered(made, store, ids, bus)
            rig.database, rig.large, rig.blobs = database, large, blobs
            yield rig
    finally:
        await database.close()


@pytest.fixture
async def r(postgres_url: str) -> AsyncIterator[Tiered]:
    async with server(postgres_url) as made:
        yield made


async def test_values_lie_by_their_size(r: Tiered) -> None:
    run = await r.start(ONE_STEP)
    small = await r.client.put_result(run, "s", b"x" * MIB, "x/y")
    assert (small["store"], await r.objects()) == ("kv", [])
    large = await r.client.put_result(run, "s", b"y" * (MIB + 1), "x/y", id="own")
    assert (large["store"], large["ref"].rpartition("/")[2]) == ("object", "own")
    (key,) = await r.objects()
    env, tenant, day, of_run, number = key.split("/")
    assert (env, tenant, of_run, number.isdigit()) == ("test", "default", run, True)
    assert datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) <= SystemClock().now()
    assert await r.client.get_result(large["ref"]) == b"y" * (MIB + 1)
    again = await r.client.put_result(run, "s", b"y" * (MIB + 1), "x/y", id="own")
    assert (again["ref"], await r.objects()) == (large["ref"], [key])
    await r.client.put_result(run, "s", b"now small", "x/y", id="own")
    assert await r.objects() == []
    assert await r.client.get_result(large["ref"]) == b"now small"


async def test_what_the_author_wishes_is_told_and_kept(r: Tiered) -> None:
    run = await r.start(ONE_STEP)
    made = await r.client.put_result(
        run, "s", b'"' + b"x" * (2 * MIB) + b'"', scope="permanent", ttl=60, preview=10
    )
    assert (made["scope"], len(made["preview"])) == ("permanent", 10)
    (item,) = (await r.client.results(run)).items
    assert (item.scope, item.store) == ("permanent", "object")
    assert item.expires_at is not None


async def test_an_object_whose_row_never_came_is_collected_after_the_grace(r: Tiered) -> None:
    run = await r.start(ONE_STEP)
    kept = await r.client.put_result(run, "s", b"k" * (2 * MIB), "x/y")
    (named,) = await r.objects()
    old = Ids(_Ago(timedelta(days=2)), 5).new()
    lost = [f"test/default/20260101/{run}/{old}", f"test/default/20260101/{run}/{r.ids.new()}"]
    for key in lost:
        await r.large.put(key, b"lost")
    dry = await r.client.collect_results(Collect(dry_run=True))
    assert (dry.orphans, dry.removed, len(await r.objects())) == (1, 0, 3)
    done = await r.client.collect_results(Collect())
    assert (done.orphans, done.removed) == (1, 1)
    assert sorted(await r.objects()) == sorted([named, lost[1]])
    assert len(await r.client.get_result(kept["ref"])) == 2 * MIB


async def test_a_row_that_cannot_be_written_leaves_no_object(r: Tiered) -> None:
    run = await r.start(ONE_STEP)
    await r.database.execute("alter table noetl.result add constraint no_more check (bytes < 9)")
    try:
        with pytest.raises(Refused):
            await r.client.put_result(run, "s", b"k" * (2 * MIB), "x/y")
    finally:  # the database is another test's afterwards
        await r.database.execute("alter table noetl.result drop constraint no_more")
    assert await r.objects() == []


async def test_objects_go_with_their_runs_unless_they_are_permanent(r: Tiered) -> None:
    run = await r.start(ONE_STEP)
    for scope in ("execution", "permanent"):
        data = scope * MIB
        await r.client.keep_result(run, PutResult(name=scope, data=data, scope=scope))
    assert len(await r.objects()) == 2
    inventory = r.plane.inventory
    objects = await inventory.forgotten([run])
    await r.store.upkeep.forget_runs([run])
    await inventory.drop(objects)
    (left,) = await r.objects()
    row = await r.database.fetchrow("select scope, object_key from noetl.result")
    assert (row["scope"], row["object_key"]) == ("permanent", left)
    collected = await r.client.collect_results(Collect(grace_seconds=0))
    assert (collected.removed, await r.objects()) == (0, [left])


async def test_values_of_steps_go_when_the_run_has_ended(r: Tiered) -> None:
    run = await r.start(ONE_STEP)
    await r.client.keep_result(run, PutResult(name="a", data="x" * (2 * MIB), scope="step"))
    await r.client.keep_result(run, PutResult(name="b", data="y", scope="execution"))
    await r.plane.retention.turn()
    assert len(await r.objects()) == 1
    await r.database.execute(FORGOTTEN, int(run), SystemClock().now())
    await r.plane.retention.turn()
    assert await r.objects() == []
    assert [one.name for one in (await r.client.results(run)).items] == ["b"]


async def test_values_whose_time_has_passed_go_with_their_objects(r: Tiered) -> None:
    run = await r.start(ONE_STEP)
    await r.client.keep_result(run, PutResult(name="a", data="x" * (2 * MIB), ttl=1))
    await r.database.execute("update noetl.result set expires_at = now() - interval '1 s'")
    await r.plane.retention.turn()
    assert await r.objects() == []


class _Ago:
    """A clock that is late."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return SystemClock().now() - self._by

    def monotonic(self) -> float:
        return 0.0


async def test_values_in_every_tier_are_spans_of_their_run(postgres_url: str) -> None:
    spans: list[Span] = []
    async with server(postgres_url, tracer=Tracer(SystemClock(), spans.append)) as r:
        run = await r.start(ONE_STEP)
        small, large = b"x" * 100, b"y" * (2 * MIB)
        wanted = [
            (small, {}, "kv"), (large, {}, "object"), (large, {"store": "row"}, "db"),
            (small, {"store": "object", "compression": "zstd"}, "object"),
        ]  # fmt: skip
        for number, (data, wishes, _) in enumerate(wanted):
            await r.client.put_result(run, "s", data, "x/y", id=str(number), **wishes)
        told = [
            (span.attributes["store"], span.attributes["bytes"], span.attributes["execution_id"])
            for span in spans
            if span.name == "result_store.put"
        ]
        assert told == [(word, len(data), run) for data, _, word in wanted]
        old = Ids(_Ago(timedelta(days=2)), 5).new()
        await r.large.put(f"test/default/20260101/{run}/{old}.zst", b"lost")
        assert (await r.client.collect_results(Collect())).removed == 1
