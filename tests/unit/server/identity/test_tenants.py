"""Tenants: who makes them, and with whom they begin."""

from __future__ import annotations

from noetl.api.identity import Login, NewAccount, NewTenant, TenantLimits
from tests.unit.server.identity.people import CHEAP, PASSWORD, caller, client_of, refusal
from tests.unit.server.rig import rig, virtually

INVALID = (422, "validation_failed")


@virtually
async def test_a_tenant_begins_with_its_admin() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        made = await admin.add_tenant(
            NewTenant(
                tenant_id="acme",
                name="Acme",
                limits=TenantLimits(running_executions=5),
                admin=NewAccount(subject="boss", password=PASSWORD),
            )
        )
        assert (made.tenant_id, made.name, made.limits.running_executions) == ("acme", "Acme", 5)
        assert (made.admin.subject, made.admin.tenant_id, made.admin.roles) == (
            "boss", "acme", ("admin",),
        )  # fmt: skip
        assert (await r.store.tenants.get("acme")).limits == {"running_executions": 5}
        door = await caller(r, "gw", "gateway", kind="service")
        opened = await door.login(Login(username="boss", password=PASSWORD, tenant="acme"))
        boss = client_of(r, opened.session_token)
        assert [row.subject for row in (await boss.users()).items] == ["boss"]
        for asked in (boss.tenants(), boss.add_tenant(NewTenant(tenant_id="more"))):
            assert await refusal(asked) == (403, "forbidden")


@virtually
async def test_tenants_are_listed_in_pages() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        for name in ("zoo", "acme"):
            assert (await admin.add_tenant(NewTenant(tenant_id=name))).admin is None
        first = await admin.tenants(limit=2)
        second = await admin.tenants(limit=2, cursor=first.next_cursor)
        found = [row.tenant_id for row in (*first.items, *second.items)]
        assert found == ["acme", "default", "zoo"]
        assert second.next_cursor is None
        assert await refusal(admin.tenants(cursor="x")) == (422, "bad_cursor")


@virtually
async def test_what_cannot_be_a_tenant_is_refused() -> None:
    async with rig(is_open=False, password_kib=CHEAP) as r:
        admin = await caller(r, "root", "admin")
        assert await refusal(admin.add_tenant(NewTenant(tenant_id="default"))) == (409, "in_use")
        for pointer, fields in (
            ("/tenant_id", {"tenant_id": "Two Words"}),
            ("/tenant_id", {"tenant_id": "system"}),
            ("/name", {"name": "x" * 201}),
            ("/limits/schedules", {"limits": TenantLimits(schedules=0)}),
            ("/admin", {"admin": NewAccount(subject="boss", roles=("viewer",))}),
            ("/admin", {"admin": NewAccount(subject="boss", active=False)}),
            ("/subject", {"admin": NewAccount(subject="two words")}),
        ):
            body = NewTenant(**({"tenant_id": "acme"} | fields))
            assert await refusal(admin.add_tenant(body), pointer=pointer) == INVALID
        assert await r.store.tenants.get("acme") is None
