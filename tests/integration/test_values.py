"""Values that lie apart, on PostgreSQL: large results, references, callbacks of containers."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest

from noetl.api.callbacks import Collect, ContainerCallback, ContainerState
from noetl.api.problems import Refused
from noetl.api.results import MANIFEST, PutResult
from noetl.api.variables import SetVariable, SetVariables
from noetl.blobs.postgres import PostgresBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.unit.server.fleet.test_containers import BODY, begun, ended, park, reports
from tests.unit.server.rig import ONE_STEP, Rig
from tests.unit.server.values.calls import call, started, tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MIB = 1 << 20
ROW_BYTES = "select max(pg_column_size(event.*)) from noetl.event where execution_id = $1"


class OnPostgres(Rig):
    """A server on PostgreSQL alone, and its database."""

    database: Database


@asynccontextmanager
async def server(url: str, machine: int = 1, **more: Any) -> AsyncIterator[OnPostgres]:
    database = await Database.open(url, size=4)
    try:
        clock, store = SystemClock(), PostgresStore(database)
        ids, bus = Ids(clock, machine), MemoryBus()
        blobs = PostgresBlobs(database, ids)
        parts = ServerParts(
            store=store, bus=bus, blobs=blobs, clock=clock, ids=ids, is_alone=False, **more
        )
        async with create_server(parts) as made:
            rig = OnPostgres(made, store, ids, bus)
            rig.database = database
            yield rig
    finally:
        await database.close()


@pytest.fixture
async def r(postgres_url: str) -> AsyncIterator[OnPostgres]:
    async with server(postgres_url) as made:
        yield made


async def test_a_result_of_5_mib_is_a_short_row_and_can_be_read(r: OnPostgres) -> None:
    run = await r.start(ONE_STEP)
    (work,) = await r.claim()
    value = {"rows": [{"n": n, "text": f"{n:0>100}"} for n in range(5 * MIB // 100)]}
    event = r.event(work, "call.done", result=value)
    await r.report(r.event(work, "command.started"), event)
    _, told = await call(r, "GET", f"/api/events/{event.event_id}/result")
    assert told == value
    assert await r.database.fetchval(ROW_BYTES, int(run)) < 4096
    (item,) = (await r.client.results(run)).items
    assert (item.size > 5 * MIB, item.store, item.scope) == (True, "db", "execution")
    answer, _ = await call(r, "GET", f"/api/result/resolve?ref={item.ref}", range="bytes=9-12")
    assert (answer.status, answer.body) == (206, msgspec.json.encode(value)[9:13])


async def test_another_tenant_s_reference_is_404_and_an_expired_one_410(postgres_url: str) -> None:
    async with (
        server(postgres_url, is_open=False) as r,
        r.plane.retention._at_work,  # noqa: SLF001 - nothing is collected meanwhile
    ):
        mine, other = await tenant(r, "acme"), await tenant(r, "globex")
        run = await started(mine)
        kept = await mine.keep_result(run, PutResult(name="a b/ü", data=[1, 2], ttl=60))
        assert await mine.get_result(kept.ref) == b"[1,2]"
        assert (kept.store, kept.size) == ("kv", 5)
        later = "update noetl.result set expires_at = now() - interval '1 second' where ref = $1"
        codes = []
        for client, ref in ((other, kept.ref), (mine, "noetl://nonsense"), (mine, kept.ref)):
            if len(codes) == 2:
                await r.database.execute(later, kept.ref.removeprefix("noetl://"))
            with pytest.raises(Refused) as refused:
                await client.get_result(ref)
            codes.append((refused.value.problem.status, refused.value.code))
        assert codes == [(404, "unknown_execution"), (400, "bad_ref"), (410, "expired")]
        again = await mine.keep_result(run, PutResult(name="a b/ü", data=[1, 2], ttl=60))
        (row,) = (await r.store.results.found([again.ref.removeprefix("noetl://")])).values()
        assert (row.tenant_id, row.name) == ("acme", "a b/ü")
        again = await mine.keep_result(run, PutResult(name="a b/ü", data=[1, 2]))
        assert (again.ref, await mine.get_result(kept.ref)) == (kept.ref, b"[1,2]")
        assert len((await mine.results(run)).items) == 1


async def test_large_bytes_go_in_and_out_as_streams(r: OnPostgres) -> None:
    run = await r.start(ONE_STEP)
    data = b"".join(hashlib.sha256(n.to_bytes(4, "big")).digest() for n in range(3 * MIB // 32))
    reference = await r.client.put_result(run, "load", data, "application/x-thing")
    assert (reference["size"], reference["sha256"]) == (3 * MIB, hashlib.sha256(data).hexdigest())
    assert await r.client.get_result(reference["ref"]) == data
    path = f"/api/result/resolve?ref={reference['ref']}"
    for first, last in ((0, 0), (MIB - 1, MIB + 1), (5, 3 * MIB - 2)):
        answer, _ = await call(r, "GET", path, range=f"bytes={first}-{last}")
        assert (answer.status, answer.body == data[first : last + 1]) == (206, True)
    parts = [
        reference["ref"],
        (await r.client.put_result(run, "load", b"end", "text/plain"))["ref"],
    ]
    manifest = PutResult(
        name="all", data={"strategy": "concat", "parts": parts}, content_type=MANIFEST
    )
    kept = await r.client.keep_result(run, manifest)
    assert await r.client.get_result(kept.ref) == data + b"end"


async def test_results_are_listed_deleted_and_collected(r: OnPostgres) -> None:
    run = await r.start(ONE_STEP)
    for n in range(5):
        await r.client.keep_result(run, PutResult(name=f"n{n}", data=n, source_step="s"))
    first = await r.client.results(run, limit=3)
    rest = await r.client.results(run, limit=3, cursor=first.next_cursor)
    assert [one.name for one in (*first.items, *rest.items)] == ["n0", "n1", "n2", "n3", "n4"]
    assert (first.items[0].source_step, rest.next_cursor) == ("s", None)
    await r.plane.large.keep("7", "lost", [1])
    collected = await r.client.collect_results(Collect())
    assert (collected.scanned, collected.removed) == (6, 1)
    assert (await r.client.delete_results(run, ref=first.items[0].ref)).results_deleted == 1
    assert (await r.client.delete_results(run)).results_deleted == 4
    assert await r.database.fetchval("select count(*) from noetl.result") == 0


@pytest.mark.parametrize("state", get_args(ContainerState))
async def test_a_container_s_end_told_three_times_is_one_report(r: OnPostgres, state: str) -> None:
    run, work = await begun(r, BODY)
    await park(r, work)
    told = [(await ended(r, run, state)).status for _ in range(3)]
    assert told == ["accepted_in_flight", "duplicate", "duplicate"]
    assert len(await reports(r, run)) == 1


async def test_containers_that_nobody_knows_are_stale(r: OnPostgres) -> None:
    run, work = await begun(r, BODY)
    await park(r, work)
    assert (await ended(r, run, job="other")).status == "accepted_stale"
    body = {"state": "exploded", "job_name": "job-1"}
    answer, _ = await call(r, "POST", f"/api/internal/container-callback/{run}/job", body)
    assert answer.status == 422
    with pytest.raises(Refused) as refused:
        await ended(r, "0", job="other")
    assert refused.value.code == "invalid_id"


async def test_an_early_callback_is_applied_by_whichever_server_sees_the_park(
    postgres_url: str,
) -> None:
    async with server(postgres_url, 1) as one, server(postgres_url, 2) as two:
        run, work = await begun(one, BODY)
        body = ContainerCallback(state="succeeded", job_name="job-1", output={"a": 1})
        told = await two.client.container_ended(run, "job", body)
        assert told.status == "accepted_in_flight"
        assert (await one.client.container_ended(run, "job", body)).status == "duplicate"
        await park(one, work)
        async with asyncio.timeout(10):
            while not (found := await reports(one, run)):  # noqa: ASYNC110 - another server's commit tells nobody here
                await asyncio.sleep(0.02)
        assert [row["event_id"] for row in found] == [told.event_id]
        async with asyncio.timeout(10):
            while await one.store.held.waiting():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)


async def test_deposits_and_variables_are_kept_in_the_database(r: OnPostgres) -> None:
    run = await r.start(ONE_STEP)
    big = bytes(range(256)) * 8192
    kept = await r.client.put_object("a/b", big)
    assert (kept.size, await r.client.get_object("a/b")) == (2 * MIB, big)
    with pytest.raises(Refused) as refused:
        await r.client.put_object("a/b", b"other")
    assert refused.value.code == "digest_mismatch"
    first = await r.client.put_request_result("r-1", b"[1]", execution_id=run)
    with pytest.raises(Refused) as refused:
        await r.client.put_request_result("r-1", b"[2]")
    assert (first.status, refused.value.code) == ("stored", "digest_mismatch")
    assert await r.client.get_request_result("r-1") == b"[1]"
    wanted = SetVariables(
        variables=tuple(SetVariable(var_name=f"v{n}", var_value="x" * MIB) for n in range(1))
    )
    with pytest.raises(Refused) as refused:
        await r.client.set_variables(run, wanted)
    assert refused.value.code == "body_too_large"
    many = tuple(SetVariable(var_name=f"v{n:03}", var_value={"b": n, "a": n}) for n in range(300))
    assert (await r.client.set_variables(run, SetVariables(variables=many))).variables_set == 300
    assert [one.var_value["a"] for one in await r.client.variables(run)] == list(range(300))
    assert list((await r.client.variable(run, "v007")).var_value) == ["b", "a"]
    assert (await r.client.sink_state("mark", [run])).execution_ids == (run,)
    assert await r.store.exports.unexported([run]) == {run}
