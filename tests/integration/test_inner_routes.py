"""The routes of the inner loop over sockets: two servers on one PostgreSQL, tokens asked."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.commands import Claim, Held
from noetl.api.events import LogBatch, LogLine, Report, Reported, Reports
from noetl.api.executions import Control, Dedup, Execute
from noetl.api.problems import Refused
from noetl.api.runtime import Left, PoolHeartbeat, WorkerEntry
from noetl.api.sockets import SocketTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock, rfc3339
from noetl.edge.http import bound, listener
from noetl.ids import Ids
from noetl.server.access.tokens import digest, new_token
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.identity import TokenRow
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from noetl.worker.patience import patiently
from tests.unit.server.rig import HEAD, ONE_STEP, many

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.server.app import Server

TEXT = HEAD + ONE_STEP


class Place:
    """One server, and clients of it by role."""

    def __init__(self, server: Server, url: str, tokens: dict[str, str]) -> None:
        self.server = server
        self.url = url
        self.transports = {
            role: SocketTransport(url, token=token) for role, token in tokens.items()
        }
        self.clients = {role: Client(transport) for role, transport in self.transports.items()}
        self.user, self.worker = self.clients["developer"], self.clients["worker"]


@asynccontextmanager
async def place(url: str, machine: int, tokens: dict[str, str]) -> AsyncIterator[Place]:
    clock = SystemClock()
    database = await Database.open(url, size=8)
    parts = ServerParts(
        store=PostgresStore(database), bus=MemoryBus(), blobs=MemoryBlobs(), clock=clock,
        ids=Ids(clock, machine), is_open=False, is_alone=False, cursor_key=b"the same",
    )  # fmt: skip
    at = bound("127.0.0.1", 0)
    async with create_server(parts) as server:
        web = listener(server.asgi)
        serving = asyncio.ensure_future(web.serve(sockets=[at]))
        await web.heard.wait()
        found = Place(server, f"http://127.0.0.1:{at.getsockname()[1]}", tokens)
        try:
            yield found
        finally:
            server.plane.streams.drain()
            for transport in found.transports.values():
                await transport.close()
            web.stop()
            await serving
    await database.close()


@asynccontextmanager
async def places(url: str, count: int = 2) -> AsyncIterator[list[Place]]:
    database = await Database.open(url, size=2)
    store, ids = PostgresStore(database), Ids(SystemClock(), 9)
    tokens = {}
    for role, pool in (("developer", None), ("viewer", None), ("worker", "shared")):
        tokens[role] = new_token()
        await store.tokens.put(
            TokenRow(
                token_id=ids.new(), sha256=digest(tokens[role]), account=f"a-{role}",
                roles=(role,), pool=pool,
            )
        )  # fmt: skip
    await database.close()
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(place(url, n + 1, tokens)) for n in range(count)]


def report(ids: Ids, work: Any, name: str, **payload: Any) -> Report:
    return Report(
        execution_id=work.execution_id, event_id=ids.new(), event_type=name,
        step=work.node_name, command_id=work.command_id, attempt=work.attempt, payload=payload,
        created_at=rfc3339(SystemClock().now()),
    )  # fmt: skip


async def insisted(client: Client, body: Reports) -> Reported:
    """Report; who lost too many races against the other server tries again."""
    while True:
        try:
            return await client.report(body)
        except Refused as refusal:
            if refusal.code != "version_conflict":
                raise


async def working(client: Client, name: str, stop: asyncio.Event, slots: int = 4) -> None:
    """A worker that does what it is given until it is told to stop."""
    ids = Ids(SystemClock(), ord(name[-1]))
    asked = Claim(worker_id=name, pool="shared", free_slots=slots, wait_seconds=0.5)
    while not stop.is_set():
        held = list((await client.claim(asked)).claimed)
        while held:
            events = tuple(
                report(ids, work, kind, **({"result": 1} if kind == "call.done" else {}))
                for work in held
                for kind in ("command.started", "call.done")
            )
            body = Reports(worker_id=name, pool="shared", events=events, free_slots=slots)
            told = await insisted(client, body)
            assert {item.outcome for item in told.results} <= {"stored", "duplicate", "late"}
            held = list(told.claimed)


async def test_a_stream_goes_on_over_two_servers_however_often_it_is_cut(postgres_url) -> None:
    chance = random.Random(3)
    async with places(postgres_url) as (a, b):
        await a.user.register(Register(content=HEAD + many(120, 8)))
        run = (await a.user.execute(Execute(path="demo/it"))).execution_id
        stop = asyncio.Event()
        workers = [
            asyncio.ensure_future(working(at.worker, name, stop))
            for at, name in ((a, "x"), (b, "y"))
        ]
        seen: list[int] = []
        last, end, cuts = None, None, 0
        while end is None:
            left = chance.randrange(1, 40)
            stream = chance.choice((a, b)).user.stream(run, since_event_id=last)
            async for told in stream:
                if told["event"] == "end":
                    end = told["data"]["status"]
                    break
                seen.append(told["data"]["seq"])
                last = told["id"]
                left -= 1
                if left == 0:
                    cuts += 1
                    break
            await stream.aclose()
        stop.set()
        await asyncio.gather(*workers)
        status = await b.user.status(run)
        assert (end, status.status) == ("COMPLETED", "COMPLETED")
        assert seen == list(range(1, status.last_seq + 1))
        assert cuts > 10


async def test_a_batch_of_a_thousand_and_the_lists_of_it(postgres_url) -> None:
    async with places(postgres_url, 1) as (a,):
        await a.user.register(Register(content=TEXT))
        bodies = [
            Execute(path="demo/it", labels={"n": str(n)}, dedup=Dedup(key=f"k{n}"))
            for n in range(997)
        ]
        bodies += [Execute(path="nowhere"), Execute(path="demo/it", priority=10), Execute()]
        told = await a.user.execute_batch(bodies)
        assert (told.started, told.failed) == (997, 3)
        again = await a.user.execute_batch(bodies)
        assert (again.duplicates, again.failed) == (997, 3)
        seen: list[str] = []
        more: dict[str, str] = {}
        while True:
            page = await a.user.executions(limit=200, status="RUNNING", **more)
            seen += [item.execution_id for item in page.items]
            if page.next_cursor is None:
                break
            more = {"cursor": page.next_cursor}
        assert len(seen) == len(set(seen)) == 997
        (found,) = (await a.user.executions(label="n:77")).items
        detail = await a.user.execution(found.execution_id)
        assert (detail.created_by, detail.labels, detail.status) == (
            "a-developer", {"n": "77"}, "RUNNING",
        )  # fmt: skip


async def test_a_hundred_starts_over_two_servers_under_one_key_are_one_run(postgres_url) -> None:
    async with places(postgres_url) as (a, b):
        await a.user.register(Register(content=TEXT))
        asked = Execute(path="demo/it", dedup=Dedup(key="k"))

        def start(n):  # a server that is too busy says so, and whoever has a key asks again
            return patiently(lambda: (a, b)[n % 2].user.execute(asked), within_s=30)

        told = await asyncio.gather(*map(start, range(100)))
        assert len({item.execution_id for item in told}) == 1
        assert sorted(item.status for item in told) == ["duplicate"] * 99 + ["started"]


async def test_workers_their_pools_and_what_they_hold(postgres_url) -> None:
    async with places(postgres_url) as (a, b):
        await a.user.register(Register(content=TEXT))
        run = (await a.user.execute(Execute(path="demo/it"))).execution_id
        joined = await a.worker.register_worker(
            WorkerEntry(name="w", labels={"pool": "shared"}, capacity=2)
        )
        assert joined.machine_id is not None
        (work,) = (await a.worker.claim(Claim(worker_id="w", pool="shared"))).claimed
        held = Held(command_id=work.command_id, attempt=1)
        beat = await b.worker.pool_heartbeat(
            PoolHeartbeat(name="w", free_slots=1, commands=(held,))
        )
        assert beat.extended == (work.command_id,)
        told = await b.user.pools()
        (pool,) = [item for item in told.pools if item.pool == "shared"]
        assert (pool.workers, pool.in_flight, pool.pending) == (1, 1, 0)
        line = LogLine(
            execution_id=run, command_id=work.command_id, attempt=1, n=1, text="hello",
            ts=rfc3339(SystemClock().now()),
        )  # fmt: skip
        await a.worker.log(LogBatch(entries=(line,)))
        assert [item["text"] for item in (await b.user.log_page(run, q="hell")).items] == ["hello"]
        log = (await b.user.events(run, event_type="command.*", fields="lean")).items
        assert [row["event_type"] for row in log] == ["command.issued", "command.claimed"]
        answer = await b.transports["developer"].request("GET", f"/api/events/{log[0]['event_id']}")
        assert (answer.status, b'"command.issued"' in answer.body) == (200, True)
        lost = await b.transports["developer"].request("GET", "/api/events/77")
        assert lost.status == 404
        await b.worker.leave(Left(name="w"))
        (again,) = (await b.worker.claim(Claim(worker_id="v", pool="shared"))).claimed
        assert again.command_id == work.command_id
        await a.user.cancel(run, Control())
        late = await b.worker.report(
            Reports(
                worker_id="v", pool="shared",
                events=(report(Ids(SystemClock(), 5), again, "call.done", result=1),),
            )
        )  # fmt: skip
        assert [item.outcome for item in late.results] == ["late"]


async def test_who_may_do_what(postgres_url) -> None:
    async with places(postgres_url, 1) as (a,):
        await a.user.register(Register(content=TEXT))
        nobody = SocketTransport(a.url)
        viewer = a.clients["viewer"]
        for call, status, code in (
            (Client(nobody).execute(Execute(path="demo/it")), 401, "auth_required"),
            (viewer.register(Register(content=TEXT)), 403, "forbidden"),
            (viewer.execute(Execute(path="demo/it")), 403, "forbidden"),
            (
                a.user.register(Register(content=TEXT.replace("demo/it", "system/x"))),
                403, "reserved_namespace",
            ),
            (
                a.user.execute(Execute(path="demo/it", execution_pool="system")),
                403, "reserved_pool",
            ),
            (a.user.execute(Execute(path="demo/it", execution_id="5")), 403, "field_not_allowed"),
            (a.worker.claim(Claim(worker_id="w", pool="gpu")), 403, "pool_forbidden"),
            (
                a.worker.register_worker(WorkerEntry(name="w", labels={"pool": "gpu"})),
                403, "pool_forbidden",
            ),
        ):  # fmt: skip
            with pytest.raises(Refused) as refusal:
                await call
            assert (refusal.value.problem.status, refusal.value.code) == (status, code)
        await nobody.close()
