"""Secrets of tenants: nobody sees, uses, changes or deletes those of another one."""

from __future__ import annotations

import pytest

from noetl.store.identity import TenantRow
from tests.security.people import INNER, ask, code, person
from tests.unit.server.rig import virtually
from tests.unit.server.wallet.scene import HEAD, scene

SHUT = {"is_open": False, "internal_tokens": (INNER,)}
TENANTS = ("default", "acme", "other")
SOON = "2026-01-01T12:00:00Z"
FLOW = "workflow:\n  - {step: start, tool: {kind: postgres, auth: pg, command: select 1}}\n"


def canary(tenant: str) -> str:
    return f"tenant-canary-of-{tenant}"


async def filled(r) -> dict[str, tuple[str, str]]:
    """A credential `pg`, one of an own name and a kept value in each tenant: admin, document."""
    found = {}
    for tenant in TENANTS:
        await r.store.tenants.add(TenantRow(tenant_id=tenant, name=tenant))
        admin = await person(r, "admin", tenant_id=tenant)
        for name in ("pg", f"only_{tenant}"):
            body = {"name": name, "type": "postgres", "data": {"password": canary(tenant)},
                    "meta": {"expires_at": SOON}}  # fmt: skip
            assert (await code(r, admin, "POST", "/api/credentials", body))[0] == 200
        _, entry = await ask(r, admin, "POST", "/api/catalog/register", {"content": HEAD + FLOW})
        value = {"data": {"v": canary(tenant)}, "expires_in": 60}
        path = f"/api/keychain/{entry['catalog_id']}/x"
        assert (await code(r, admin, "POST", path, value))[0] == 200
        found[tenant] = (admin, entry["catalog_id"])
    return found


@virtually
async def test_each_tenant_sees_its_own() -> None:
    async with scene(**SHUT) as s:
        known = await filled(s.r)
        for tenant, (admin, document) in known.items():
            _, page = await ask(s.r, admin, "GET", "/api/credentials")
            assert [one["name"] for one in page["items"]] == [f"only_{tenant}", "pg"]
            revealing = "?include_data=true"
            _, found = await ask(s.r, admin, "GET", f"/api/credentials/pg{revealing}")
            assert found["data"] == {"password": canary(tenant)}
            _, value = await ask(s.r, admin, "GET", f"/api/keychain/{document}/x{revealing}")
            assert value["data"] == {"v": canary(tenant)}


@virtually
async def test_what_is_of_another_tenant_is_not_there() -> None:
    async with scene(**SHUT) as s:
        r, known = s.r, await filled(s.r)
        for owner, (theirs, document) in known.items():
            _, found = await ask(r, theirs, "GET", f"/api/credentials/only_{owner}")
            run = (await ask(r, theirs, "POST", "/api/execute", {"path": "demo/it"}))[1]
            claim = {"worker_id": "w", "pool": "shared", "free_slots": 1}
            worker = await person(r, "worker", pool="shared")
            await ask(r, worker, "POST", "/api/worker/pool/register", {
                "name": "w", "runtime": {"pool": "shared", "worker_public_key": s.keys.public},
            })  # fmt: skip
            _, told = await ask(r, worker, "POST", "/api/commands/claim", claim)
            (command,) = told["claimed"]
            sealed = (
                f"sealed?worker_id=w&execution_id={run['execution_id']}"
                f"&command_id={command['command_id']}"
            )
            for stranger in TENANTS:
                if stranger == owner:
                    continue
                admin = known[stranger][0]
                for method, path, body in (
                    ("GET", f"/api/credentials/only_{owner}", None),
                    ("GET", f"/api/credentials/{found['id']}", None),
                    ("GET", f"/api/credentials/{found['id']}?include_data=true", None),
                    ("POST", f"/api/credentials/{found['id']}/test", None),
                    ("DELETE", f"/api/credentials/only_{owner}?force=true", None),
                    ("DELETE", f"/api/credentials/{found['id']}?force=true", None),
                    ("GET", f"/api/keychain/{document}/x", None),
                    ("GET", f"/api/keychain/{document}/x?include_data=true", None),
                    ("GET", f"/api/keychain/catalog/{document}", None),
                    ("POST", f"/api/keychain/{document}/x", {"data": {"v": "mine"}}),
                    ("DELETE", f"/api/keychain/{document}/x", None),
                    ("GET", f"/api/credentials/pg/{sealed}", None),
                ):
                    status, told = await ask(r, admin, method, path, body)
                    assert status == 404, (method, path, told)
                    assert canary(owner) not in str(told)
            status, _ = await ask(r, worker, "GET", f"/api/credentials/pg/{sealed}")
            assert status == 200  # the worker of the platform serves all tenants
            status, _ = await ask(r, theirs, "GET", f"/api/credentials/only_{owner}")
            assert status == 200  # it is still there


@virtually
async def test_a_run_is_given_the_credential_of_its_own_tenant() -> None:
    async with scene(**SHUT) as s:
        r, known = s.r, await filled(s.r)
        worker = await person(r, "worker", pool="shared")
        await ask(r, worker, "POST", "/api/worker/pool/register", {
            "name": "w", "runtime": {"pool": "shared", "worker_public_key": s.keys.public},
        })  # fmt: skip
        for tenant, (admin, _) in known.items():
            _, run = await ask(r, admin, "POST", "/api/execute", {"path": "demo/it"})
            claim = {"worker_id": "w", "pool": "shared", "free_slots": 1}
            _, told = await ask(r, worker, "POST", "/api/commands/claim", claim)
            (command,) = told["claimed"]
            path = (
                f"/api/credentials/pg/sealed?worker_id=w&execution_id={run['execution_id']}"
                f"&command_id={command['command_id']}"
            )
            _, answer = await ask(r, worker, "GET", path)
            found = s.opened(Given(answer), "pg", run["execution_id"])
            assert found["data"] == {"password": canary(tenant)}


class Given:
    def __init__(self, answer):
        self.__dict__.update(answer)


@virtually
async def test_what_ends_soon_is_told_to_the_platform_for_all_tenants_and_to_nobody_else() -> None:
    path = "/api/internal/credentials/expiring?within_seconds=86400"
    async with scene(**SHUT) as s:
        known = await filled(s.r)
        _, found = await ask(s.r, INNER, "GET", path)
        names = sorted(one["name"] for one in found["credentials"])
        assert names == sorted([*(f"only_{tenant}" for tenant in TENANTS), *["pg"] * 3])
        assert {one["catalog_id"] for one in found["items"]} == {one[1] for one in known.values()}
        assert not any(canary(tenant) in str(found) for tenant in TENANTS)
        _, few = await ask(s.r, INNER, "GET", f"{path}&limit=2")
        assert (len(few["items"]), len(few["credentials"])) == (2, 2)
        for admin, _ in known.values():
            assert (await code(s.r, admin, "GET", path))[0] == 403
        _, now = await ask(s.r, INNER, "GET", path.replace("86400", "1"))
        assert now["credentials"] == []


@pytest.mark.parametrize("said", ["2026-01-01", "2026-01-01T00:00:00+00:00", "2025-12-31 23:59"])
def test_an_end_is_understood_however_it_is_written(said: str) -> None:
    @virtually
    async def test() -> None:
        async with scene(**SHUT) as s:
            admin = await person(s.r, "admin")
            for name, end in (("it", said), ("odd", "soon"), ("none", None), ("number", 7)):
                body = {"name": name, "type": "secret", "data": {"value": "v"},
                        "meta": {"expires_at": end}}  # fmt: skip
                assert (await code(s.r, admin, "POST", "/api/credentials", body))[0] == 200
            _, found = await ask(
                s.r, INNER, "GET", "/api/internal/credentials/expiring?within_seconds=60"
            )
            assert [one["name"] for one in found["credentials"]] == ["it"]

    test()
