"""Grants through the routes: a deny on a path beats every role, however it is asked."""

from __future__ import annotations

from tests.security.people import INNER, ask, code, person, register, role, started
from tests.unit.server.rig import rig, virtually

SHUT = {"is_open": False, "internal_tokens": (INNER,)}
FORBIDDEN = (403, "forbidden")


async def two_runs(r) -> tuple[str, str, str]:
    """An admin, a run of `finance/close`, and one of `sales/close`."""
    admin = await person(r, "admin")
    for path in ("finance/close", "sales/close"):
        assert await register(r, admin, path) == (201, "")
    return admin, await started(r, admin, "finance/close"), await started(r, admin, "sales/close")


@virtually
async def test_a_deny_beats_roles_and_allows_on_every_way() -> None:
    async with rig(**SHUT) as r:
        _, finance, sales = await two_runs(r)
        await role(r, "kept out", ("deny", "*", "finance/*"))
        await role(r, "let in", ("allow", "*", "finance/close"))
        who = await person(r, "admin", "let in", "kept out")
        run = {"path": "finance/close"}
        assert await code(r, who, "POST", "/api/execute", run) == FORBIDDEN
        assert await code(r, who, "POST", "/api/execute", {**run, "dry_run": True}) == FORBIDDEN
        assert await register(r, who, "finance/new") == FORBIDDEN
        both = {"executions": [run, {"path": "sales/close"}]}
        _, told = await ask(r, who, "POST", "/api/execute/batch", both)
        assert [item["status"] for item in told["results"]] == ["error", "started"]
        assert told["results"][0]["error"]["code"] == "forbidden"
        for verb in ("cancel", "pause", "resume", "rerun", "fork"):
            path = f"/api/executions/{finance}/{verb}"
            assert await code(r, who, "POST", path, {}) == FORBIDDEN
        end = {"status": "FAILED"}
        assert await code(r, who, "POST", f"/api/executions/{finance}/finalize", end) == FORBIDDEN
        for read in ("", "/status", "/events", "/events/stream", "/logs", "/children", "/why"):
            assert await code(r, who, "GET", f"/api/executions/{finance}{read}") == FORBIDDEN
        event = (await r.store.log.read(finance))[0].event_id
        assert await code(r, who, "GET", f"/api/events/{event}") == FORBIDDEN
        assert (await ask(r, who, "GET", f"/api/executions/{sales}"))[0] == 200
        items = (await ask(r, who, "GET", "/api/executions"))[1]["items"]
        assert {item["path"] for item in items} == {"sales/close"}


@virtually
async def test_a_deny_holds_in_bulk_too() -> None:
    async with rig(**SHUT) as r:
        _, finance, sales = await two_runs(r)
        await role(r, "kept out", ("deny", "execution:control", "finance/*"))
        who = await person(r, "operator", "kept out")
        body = {"action": "cancel", "filter": {"execution_ids": [finance, sales]}}
        status, told = await ask(r, who, "POST", "/api/executions/bulk", body)
        assert (status, told["done"], told["failed"]) == (200, 1, 1)
        (refused,) = [item for item in told["results"] if item["outcome"] == "error"]
        assert (refused["execution_id"], refused["error"]["code"]) == (finance, "forbidden")
        found = [(await r.store.executions.get(run)).status for run in (finance, sales)]
        assert found == ["RUNNING", "CANCELLED"]


@virtually
async def test_who_has_only_a_grant_sees_and_runs_only_its_path() -> None:
    async with rig(**SHUT) as r:
        _, finance, sales = await two_runs(r)
        await role(r, "clerk", ("allow", "view", "finance/*"), ("allow", "execute", "finance/*"))
        clerk = await person(r, "clerk")
        items = (await ask(r, clerk, "GET", "/api/executions"))[1]["items"]
        assert [item["execution_id"] for item in items] == [finance]
        assert (await ask(r, clerk, "GET", f"/api/executions/{finance}"))[0] == 200
        assert await code(r, clerk, "GET", f"/api/executions/{sales}") == FORBIDDEN
        assert await started(r, clerk, "finance/close")
        assert await code(r, clerk, "POST", "/api/execute", {"path": "sales/close"}) == FORBIDDEN
        assert await code(r, clerk, "POST", f"/api/executions/{finance}/rerun", {}) == (200, "")
        assert await code(r, clerk, "POST", f"/api/executions/{finance}/cancel", {}) == FORBIDDEN


@virtually
async def test_a_viewer_runs_what_a_grant_names() -> None:
    async with rig(**SHUT) as r:
        await two_runs(r)
        await role(r, "closer", ("allow", "execute", "finance/close"))
        viewer = await person(r, "viewer", "closer")
        assert await started(r, viewer, "finance/close@1")
        assert await code(r, viewer, "POST", "/api/execute", {"path": "sales/close"}) == FORBIDDEN


@virtually
async def test_what_is_the_platforms_is_kept_from_people() -> None:
    async with rig(**SHUT) as r:
        admin, developer = await person(r, "admin"), await person(r, "developer")
        reserved = (403, "reserved_namespace")
        assert await register(r, developer, "system/x") == reserved
        assert await register(r, developer, "default/system/x") == reserved
        assert await register(r, admin, "system/x") == (201, "")
        assert await register(r, admin, "a/b") == (201, "")
        run = await started(r, admin, "system/x")
        assert await code(r, developer, "POST", "/api/execute", {"path": "system/x"}) == reserved
        assert await code(r, developer, "GET", f"/api/executions/{run}") == reserved
        assert (await ask(r, developer, "GET", "/api/executions"))[1]["items"] == []
        pool = {"path": "a/b", "execution_pool": "system"}
        assert await code(r, developer, "POST", "/api/execute", pool) == (403, "reserved_pool")
        own = await started(r, admin, "a/b", execution_pool="system")
        rerun = f"/api/executions/{own}/rerun"
        assert await code(r, developer, "POST", rerun, {}) == (403, "reserved_pool")
