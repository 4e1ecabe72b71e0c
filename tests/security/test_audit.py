"""The audit: what was done and refused is kept, and nobody changes it unnoticed."""

from __future__ import annotations

import asyncio

import asyncpg
import msgspec
import pytest
from starlette.requests import Request

from noetl.clock import SystemClock
from noetl.edge.cursor import Cursors
from noetl.ids import Ids
from noetl.server.access.caller import Caller
from noetl.server.auditing.audit import MOST_REFUSALS, Audits
from noetl.server.auditing.chain import Chain
from noetl.server.metrics import ServerMetrics
from noetl.store.audit import AuditEntry
from noetl.store.errors import DatabaseGone
from noetl.store.memory.audit import MemoryAudit
from noetl.store.postgres.audit import PostgresAudit
from noetl.store.postgres.database import Database
from tests.security.people import INNER, ask, code, person, register, started
from tests.unit.server.rig import rig, virtually

SHUT = {"is_open": False, "internal_tokens": (INNER,)}
UNKEPT = {
    # The run's own log tells of it.
    "/api/execute", "/api/run/playbook", "/api/execute/batch", "/api/events", "/api/events/batch",
    "/api/commands/claim", "/api/commands/heartbeat", "/api/commands/release",
    "/api/commands/{event_id}/claim", "/api/commands/{event_id}/heartbeat",
    "/api/commands/{event_id}/release", "/api/commands/{event_id}/container-callback",
    "/api/callbacks/{key}",
    "/api/internal/container-callback/{execution_id}/{step:path}",
    # Nothing that a person answers for is changed.
    "/api/catalog/resource", "/api/catalog/list", "/api/catalog/validate",
    "/api/playbook-tests/{path:path}/run", "/api/auth/session/validate",
    "/api/auth/session/look", "/api/auth/check-playbook-access",
    # What processes do all the time.
    "/api/internal/circuits/{path:path}", "/api/subscriptions/{subscription_id}/dead-letters",
    "/api/subscriptions/{subscription_id}/deliveries",
    "/api/logs/batch", "/api/result/{execution_id}", "/api/internal/objects/{key:path}",
    "/api/internal/requests/{request_id}/result", "/api/worker/pool/register",
    "/api/runtime/register", "/api/worker/pool/heartbeat", "/api/runtime/heartbeat",
    "/api/worker/pool/deregister", "/api/runtime/deregister", "/api/internal/outbox/claim",
    "/api/internal/outbox/mark-published", "/api/internal/outbox/mark-failed",
    "/api/internal/events/project", "/api/internal/projection/advance",
}  # fmt: skip
"""Writes without an audit row; any other must have one."""


async def rows(r, admin: str, query: str = "") -> list[tuple[str, str, str, str]]:
    _, told = await ask(r, admin, "GET", f"/api/audit{query}")
    return [
        (item["actor"], item["action"], item["resource"], item["outcome"])
        for item in reversed(told["items"])
    ]


@virtually
async def test_what_is_done_is_kept_before_it_is_answered() -> None:
    async with rig(**SHUT) as r:
        admin = await person(r, "admin", name="ann")
        await register(r, admin, "a/b")
        run = await started(r, admin, "a/b")
        path = f"/api/executions/{run}"
        for verb in ("pause", "pause", "resume"):
            assert (await ask(r, admin, "POST", f"{path}/{verb}", {"reason": "why"}))[0] == 200
        kept = [row.action for row in await r.store.audit.read()]
        assert kept[-3:] == ["execution.pause", "execution.pause", "execution.resume"]
        end = {"status": "FAILED", "reason": "by hand"}
        assert (await ask(r, admin, "POST", f"{path}/finalize", end))[0] == 200
        assert await code(r, admin, "POST", f"{path}/cancel", {}) == (409, "already_terminal")
        assert (await rows(r, admin, "?action=execution.*"))[-2:] == [
            ("ann", "execution.finalize", run, "ok"),
            ("ann", "execution.cancel", run, "already_terminal"),
        ]
        (forced,) = [row for row in await r.store.audit.read() if "finalize" in row.action]
        assert forced.details == {"status": "FAILED", "reason": "by hand", "forced": True}
        assert forced.source_ip
        assert not any(row.action == "access.refused" for row in await r.store.audit.read())


@virtually
async def test_refusals_are_kept_and_equal_ones_are_one_row_of_a_minute() -> None:
    async with rig(**SHUT) as r:
        admin, viewer = await person(r, "admin"), await person(r, "viewer", name="vic")
        for _ in range(5):
            assert (await ask(r, viewer, "GET", "/api/audit"))[0] == 403
        assert (await ask(r, viewer, "POST", "/api/executions/12/cancel"))[0] == 403
        assert (await ask(r, None, "GET", "/api/executions"))[0] == 401
        assert await r.store.audit.read() == []
        await asyncio.sleep(61)
        found = await r.store.audit.read()
        assert [(row.actor, row.action, row.resource, row.outcome) for row in found] == [
            ("vic", "access.refused", "GET /api/audit", "forbidden"),
            ("vic", "execution.cancel", "POST /api/executions/{execution_id}/cancel", "forbidden"),
            ("", "access.refused", "GET /api/executions", "auth_required"),
        ]
        assert [row.details["count"] for row in found] == [5, 1, 1]
        assert (await ask(r, viewer, "GET", "/api/audit"))[0] == 403
        listed = await rows(r, admin, "?outcome=forbidden&actor=vic")
        assert len(listed) == 3  # a reader sees at once what this server knows
        verified = (await ask(r, admin, "GET", "/api/audit/verify"))[1]
        assert (verified["valid"], verified["rows"], verified["broken"]) == (True, 4, None)


@virtually
async def test_a_page_has_a_cursor_and_another_tenant_sees_nothing() -> None:
    async with rig(**SHUT) as r:
        admin, other = await person(r, "admin"), await person(r, "admin", tenant_id="acme")
        for number in range(5):
            await register(r, admin, f"a/{number}")
        seen, cursor = [], ""
        while True:
            _, page = await ask(r, admin, "GET", f"/api/audit?limit=2&action=catalog.*{cursor}")
            seen += [item["seq"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert seen == sorted(seen, reverse=True)
        assert len(seen) == 5
        assert (await ask(r, other, "GET", "/api/audit"))[1]["items"] == []
        strange = await code(r, admin, "GET", f"/api/audit?actor=x{cursor}")
        assert strange == (422, "bad_cursor")


@virtually
async def test_a_server_that_asks_nobody_keeps_no_audit() -> None:
    async with rig() as r:
        await register(r, "", "a/b")
        assert await code(r, "", "POST", "/api/executions/12/cancel") == (404, "unknown_execution")
        assert await r.store.audit.read() == []


@virtually
async def test_no_row_holds_a_secret_or_more_than_it_may() -> None:
    async with rig(**SHUT) as r:
        admin = await person(r, "admin")
        await register(r, admin, "a/b")
        run = await started(r, admin, "a/b")
        body = {"reason": "x" * 100_000}
        assert (await ask(r, admin, "POST", f"/api/executions/{run}/pause", body))[0] == 200
        (row,) = [row for row in await r.store.audit.read() if row.action == "execution.pause"]
        assert len(row.details["reason"]) == 500
        assert admin not in str(await r.store.audit.read())


class _Gone(MemoryAudit):
    """A store that is away for a while."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    async def append(self, entries) -> None:
        if self._times:
            self._times -= 1
            raise DatabaseGone("away")
        await super().append(entries)


def entry(number: int) -> AuditEntry:
    at = "2026-01-01T00:00:00.000000Z"
    return AuditEntry(audit_id=str(number), at=at, actor="ann", action="a.b")


@virtually
async def test_what_cannot_be_written_is_tried_again_then_counted() -> None:
    clock = SystemClock()
    for times, counted in ((1, ("ok", 1)), (2, ("failed", 1))):
        metrics, store = ServerMetrics(), _Gone(times)
        audits = Audits(store, clock, Ids(clock, 1), metrics)
        await audits.keep(entry(1))
        assert len(await store.read()) == (counted[0] == "ok")
        assert metrics.audit_writes.value(counted[0]) == counted[1]


@virtually
async def test_refusals_of_many_are_bounded() -> None:
    clock, store = SystemClock(), MemoryAudit()
    audits = Audits(store, clock, Ids(clock, 1), ServerMetrics())
    for number in range(MOST_REFUSALS + 50):
        audits.noted(Caller(f"c{number}", ()), "execution.run", "a/b", "forbidden")
    await audits.settle()
    found = await store.read(0, 9999)
    assert len(found) == MOST_REFUSALS + 1
    assert (found[-1].actor, found[-1].details["count"]) == ("", 50)


@virtually
async def test_many_writers_share_a_transaction() -> None:
    store = MemoryAudit()
    calls = []
    append = store.append

    async def counted(entries) -> None:
        calls.append(len(entries))
        await asyncio.sleep(0.1)
        await append(entries)

    store.append = counted
    clock = SystemClock()
    audits = Audits(store, clock, Ids(clock, 1), ServerMetrics())
    running = asyncio.create_task(audits.run())
    await asyncio.sleep(0)
    await asyncio.gather(*(audits.keep(entry(number)) for number in range(1, 101)))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sum(calls) == 100
    assert len(calls) <= 2


@virtually
async def test_what_is_written_while_the_answer_is_made_is_one_row_that_the_answer_waits_for() -> (
    None
):
    store, clock = MemoryAudit(), SystemClock()
    append, may_write = store.append, asyncio.Event()

    async def later(entries) -> None:
        await may_write.wait()
        await append(entries)

    store.append = later
    audits = Audits(store, clock, Ids(clock, 1), ServerMetrics())
    request = Request({"type": "http", "headers": [], "client": ("1.2.3.4", 5)})
    audits.does(request, "secret.seal")
    answered = asyncio.create_task(audits.did(request, "secret.seal"))
    await asyncio.sleep(1)
    assert not answered.done()
    may_write.set()
    await answered
    assert [(row.action, row.outcome) for row in await store.read()] == [("secret.seal", "ok")]


# ------------------------------------------------------------------------- the chain


SWAP = """
update noetl.audit set seq = -seq where seq in (3, 4);
update noetl.audit set seq = case seq when -3 then 4 else 3 end where seq < 0"""
TAMPERED = {
    "altered": ("update noetl.audit set actor = 'bob' where seq = 3", 3, "altered"),
    "details": ("update noetl.audit set details = '{}' where seq = 3", 3, "altered"),
    "deleted": ("delete from noetl.audit where seq = 3", 3, "missing"),
    "deleted first": ("delete from noetl.audit where seq = 1", 1, "missing"),
    "deleted last": ("delete from noetl.audit where seq = 6", 6, "missing"),
    "moved": (SWAP, 3, "moved"),
    "rewritten": (
        "update noetl.audit set actor = 'bob', hash = sha256('x') where seq = 6", 6, "altered",
    ),
}  # fmt: skip


@pytest.fixture
async def database(postgres_url):
    opened = await Database.open(postgres_url)
    yield opened
    await opened.close()


@pytest.mark.parametrize("how", TAMPERED)
async def test_a_row_that_was_tampered_with_is_found(database, how):
    statement, seq, reason = TAMPERED[how]
    store, clock = PostgresAudit(database), SystemClock()
    audits = Audits(store, clock, Ids(clock, 1), ServerMetrics())
    chain = Chain(store, audits, Cursors(b"key", clock))
    for number in range(1, 7):
        await audits.keep(msgspec.structs.replace(entry(number), details={"n": number}))
    whole = await chain.verify()
    assert (whole.valid, whole.rows, whole.broken) == (True, 6, None)
    await database.execute(
        f"alter table noetl.audit disable trigger user; {statement}; "
        "alter table noetl.audit enable trigger user"
    )
    found = await chain.verify()
    assert not found.valid
    assert (found.broken.seq, found.broken.reason) == (seq, reason)


async def test_two_servers_write_one_chain_whoever_was_last(database):
    servers = PostgresAudit(database), PostgresAudit(database)
    for number in range(1, 9):
        await servers[number // 2 % 2].append([entry(number)])
    await asyncio.gather(*(servers[n % 2].append([entry(n)]) for n in range(9, 29)))
    await servers[0].append([entry(28), entry(29)])
    rows = await servers[0].read()
    assert [row.seq for row in rows] == list(range(1, 30))
    assert {row.audit_id for row in rows} == {str(number) for number in range(1, 30)}
    assert [row.prev_hash for row in rows[1:]] == [row.hash for row in rows[:-1]]
    assert await servers[1].head() == (29, rows[-1].hash)


async def test_a_server_that_was_last_needs_one_statement(database, monkeypatch):
    store = PostgresAudit(database)
    await store.append([entry(1)])
    monkeypatch.setattr(store, "_append", None)
    await store.append([entry(2), entry(3)])
    assert [row.audit_id for row in await store.read()] == ["1", "2", "3"]


async def test_the_database_itself_refuses_to_change_a_row(database):
    store = PostgresAudit(database)
    await store.append([entry(1)])
    for statement in (
        "update noetl.audit set actor = 'bob'", "delete from noetl.audit", "truncate noetl.audit",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await database.execute(statement)
    assert len(await store.read()) == 1


@virtually
async def test_every_write_is_kept_or_named_here() -> None:
    async with rig(**SHUT) as r:
        unkept = {
            route.path
            for route in r.server.asgi.routes
            if "GET" not in route.methods and route.declared.audit is None
        }
        assert unkept == UNKEPT
