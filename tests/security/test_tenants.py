"""Tenants: what is another's is not there."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from noetl.store.identity import TenantRow
from tests.security.people import INNER, ask, asked, code, person, register, started
from tests.unit.server.rig import rig, virtually

SHUT = {"is_open": False, "internal_tokens": (INNER,)}


async def acme(r) -> tuple[str, str]:
    """An admin of a tenant, and a run of his."""
    admin = await person(r, "admin", tenant_id="acme")
    assert await register(r, admin, "a/b") == (201, "")
    return admin, await started(r, admin, "a/b")


def of_runs(r):
    return [
        route
        for route in r.server.asgi.routes
        if "{execution_id}" in route.path and route.permission != "internal"
    ]


@virtually
async def test_a_run_of_another_tenant_is_not_there_on_any_route() -> None:
    async with rig(**SHUT) as r:
        _, run = await acme(r)
        strangers = [
            await person(r, "admin"),
            await person(r, "developer", "operator"),
            await person(r, "admin", tenant_id="other"),
        ]
        wrong = []
        for route in of_runs(r):
            method, path = asked(route, execution_id=run, step="start")
            for stranger in strangers:
                found = await code(r, stranger, method, path)
                if found not in {(404, "unknown_execution"), (403, "forbidden")}:
                    wrong.append((method, path, found))
                if found[0] == 403:  # by the role, whoever the run belongs to
                    gone = asked(route, execution_id="12", step="start")
                    assert await code(r, stranger, *gone) == found
        assert of_runs(r)
        assert wrong == []
        row = await r.store.executions.get(run)
        assert (row.status, row.tenant_id, row.created_by) == ("RUNNING", "acme", "acme-admin")


@virtually
async def test_a_run_is_there_for_its_own_tenant() -> None:
    async with rig(**SHUT) as r:
        admin, run = await acme(r)
        for route in of_runs(r):
            method, path = asked(route, execution_id=run, step="start")
            if method == "GET":
                with suppress(TimeoutError):  # a stream has no end
                    async with asyncio.timeout(1):
                        status, told = await ask(r, admin, method, path)
                        found = told.get("code") if isinstance(told, dict) else None
                        assert (path, status != 403, found) != (path, True, "unknown_execution")


@virtually
async def test_lists_catalogs_and_keys_are_of_one_tenant() -> None:
    async with rig(**SHUT) as r:
        theirs, run = await acme(r)
        ours = await person(r, "admin")
        assert (await ask(r, ours, "GET", "/api/executions"))[1]["items"] == []
        listed = (await ask(r, theirs, "GET", "/api/executions"))[1]["items"]
        assert [item["execution_id"] for item in listed] == [run]
        assert await code(r, ours, "POST", "/api/execute", {"path": "a/b"}) == (404, "unknown_path")
        entry = listed[0]["catalog_id"]
        assert await code(r, ours, "POST", "/api/execute", {"catalog_id": entry}) == (
            404, "unknown_path",
        )  # fmt: skip
        assert await register(r, ours, "a/b") == (201, "")
        same = {"dedup": {"key": "k", "window_secs": 300}}
        mine, again = await started(r, ours, "a/b", **same), await started(r, ours, "a/b", **same)
        assert mine == again != await started(r, theirs, "a/b", **same)
        child = {"path": "a/b", "parent_execution_id": run}
        assert await code(r, ours, "POST", "/api/execute", child) == (404, "unknown_execution")
        own = await started(r, theirs, "a/b", parent_execution_id=run)
        assert (await r.store.executions.get(own)).tenant_id == "acme"
        minted = {**child, "execution_id": "77"}
        worker = await person(r, "worker", pool="shared")
        assert (await code(r, worker, "POST", "/api/execute", minted))[0] == 200
        assert (await r.store.executions.get("77")).tenant_id == "acme"


@virtually
async def test_events_and_commands_of_another_tenant_are_not_there() -> None:
    async with rig(**SHUT) as r:
        theirs, run = await acme(r)
        ours, other = await person(r, "admin"), await person(r, "admin", tenant_id="other")
        event = (await r.store.log.read(run))[0].event_id
        for path in (f"/api/events/{event}", f"/api/events/{event}/result"):
            assert await code(r, ours, "GET", path) == (404, "not_found")
        assert (await ask(r, theirs, "GET", f"/api/events/{event}"))[0] == 200
        (command,) = await r.store.commands.pending("shared", 9)
        one = f"/api/commands/{command.command_id}"
        assert await code(r, ours, "GET", one) == (404, "unknown_command")
        assert await code(r, ours, "POST", f"{one}/claim", {"worker_id": "w"}) == (
            404, "unknown_command",
        )  # fmt: skip
        claim = {"worker_id": "w", "pool": "shared"}
        for person_of_tenant in (theirs, other):
            assert (await code(r, person_of_tenant, "POST", "/api/commands/claim", claim))[0] == 403
        report = {"worker_id": "w", "pool": "shared", "events": [{
            "execution_id": run, "event_id": "9", "event_type": "command.started",
            "command_id": command.command_id, "step": "start",
        }]}  # fmt: skip
        assert await code(r, ours, "POST", "/api/events/batch", report) == (
            404, "unknown_execution",
        )  # fmt: skip
        worker = await person(r, "worker", pool="shared")
        status, told = await ask(r, worker, "POST", "/api/commands/claim", claim)
        assert (status, [item["execution_id"] for item in told["claimed"]]) == (200, [run])


@virtually
async def test_a_reference_of_another_tenant_is_not_there() -> None:
    async with rig(**SHUT) as r:
        theirs, run = await acme(r)
        ours = await person(r, "admin")
        body = {"name": "big", "data": [1, 2, 3]}
        status, kept = await ask(r, theirs, "PUT", f"/api/result/{run}", body)
        assert status == 201
        for path in ("/api/result/resolve", "/api/result"):
            assert (await ask(r, theirs, "GET", f"{path}?ref={kept['ref']}"))[0] == 200
            assert (await ask(r, ours, "GET", f"{path}?ref={kept['ref']}"))[0] == 404
            assert (await ask(r, ours, "GET", f"{path}?ref=nonsense"))[0] == 400


@virtually
async def test_a_tenant_at_its_limit_waits_and_others_do_not() -> None:
    async with rig(**SHUT) as r:
        await r.store.tenants.add(TenantRow(tenant_id="acme", limits={"running_executions": 2}))
        theirs, run = await acme(r)
        ours = await person(r, "admin")
        await register(r, ours, "a/b")
        await asyncio.sleep(1)
        await started(r, theirs, "a/b", dedup={"key": "k"})
        full = await code(r, theirs, "POST", "/api/execute", {"path": "a/b"})
        assert full == (429, "quota_exceeded")
        again = {"path": "a/b", "dedup": {"key": "k"}}
        assert (await ask(r, theirs, "POST", "/api/execute", again))[1]["status"] == "duplicate"
        status, told = await ask(
            r, theirs, "POST", "/api/execute/batch", {"executions": [{"path": "a/b"}] * 3}
        )
        assert (status, told["failed"]) == (200, 3)
        assert told["results"][0]["error"]["code"] == "quota_exceeded"
        await started(r, ours, "a/b")
        assert (await code(r, theirs, "POST", f"/api/executions/{run}/cancel"))[0] == 200
        await started(r, theirs, "a/b")


@virtually
async def test_an_account_asks_for_so_many_runs_a_second() -> None:
    async with rig(**SHUT) as r:
        hasty, calm = await person(r, "admin", name="hasty"), await person(r, "admin", name="calm")
        await register(r, calm, "a/b")
        one = {"path": "a/b"}
        for path, begun in (("a/none", 0), ("a/b", 1000)):
            many = {"executions": [{"path": path}] * 1000}
            told = (await ask(r, hasty, "POST", "/api/execute/batch", many))[1]
            assert told["started"] == begun  # what does not begin counts for nothing
        assert await code(r, hasty, "POST", "/api/execute", one) == (429, "rate_limited")
        assert (await code(r, calm, "POST", "/api/execute", one))[0] == 200
        await asyncio.sleep(0.01)
        found = [(await code(r, hasty, "POST", "/api/execute", one))[0] for _ in range(3)]
        assert found == [200, 200, 429]
