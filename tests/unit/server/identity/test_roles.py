"""Roles: the built-in ones, and those that a tenant makes."""

from __future__ import annotations

from noetl.api.identity import NewRole, PathGrant, RoleChange
from noetl.server.access.permissions import ROLES
from tests.unit.server.identity.people import account, caller, refusal
from tests.unit.server.rig import rig, virtually

INVALID = (422, "validation_failed")
IN_USE = (409, "in_use")
UNKNOWN = (404, "not_found")


def grant(**fields) -> PathGrant:
    return PathGrant(**({"effect": "allow", "actions": ("execute",), "path": "a/*"} | fields))


@virtually
async def test_a_role_is_made_changed_and_forgotten() -> None:
    async with rig(is_open=False) as r:
        admin = await caller(r, "root", "admin")
        body = NewRole(
            name="finance",
            permissions=("execution:read", "execution:read"),
            grants=(grant(), grant(effect="deny", actions=("catalog:write", "*"), path="a/b")),
        )
        made = await admin.add_role(body)
        assert (made.name, made.permissions, made.grants, made.is_built_in) == (
            "finance", ("execution:read",), body.grants, False,
        )  # fmt: skip
        listed = (await admin.roles()).items
        assert [role.name for role in listed] == [*ROLES, "finance"]
        assert listed[-1] == made
        changed = await admin.change_role("finance", RoleChange(permissions=("audit:read",)))
        assert (changed.permissions, changed.grants) == (("audit:read",), ())
        await admin.remove_role("finance")
        assert await refusal(admin.remove_role("finance")) == UNKNOWN
        assert await refusal(admin.change_role("finance", RoleChange())) == UNKNOWN


@virtually
async def test_built_in_roles_are_shown_with_their_marks_and_stay() -> None:
    async with rig(is_open=False) as r:
        admin = await caller(r, "root", "admin")
        shown = {role.name: role for role in (await admin.roles()).items}
        assert shown["viewer"].is_built_in
        assert shown["viewer"].marks["execution:run"] == "g"
        assert "user:admin" not in shown["viewer"].permissions
        for asked in (
            admin.add_role(NewRole(name="admin")),
            admin.change_role("viewer", RoleChange()),
            admin.remove_role("worker"),
        ):
            assert await refusal(asked) == IN_USE


@virtually
async def test_a_role_that_somebody_has_stays() -> None:
    async with rig(is_open=False) as r:
        admin = await caller(r, "root", "admin")
        await admin.add_role(NewRole(name="clerk"))
        assert await refusal(admin.add_role(NewRole(name="clerk"))) == IN_USE
        row = await account(r, "anna", "clerk", active=False)
        assert await refusal(admin.remove_role("clerk")) == IN_USE
        await admin.remove_user(row.account_id)
        await admin.remove_role("clerk")


@virtually
async def test_what_no_role_can_give_is_refused() -> None:
    async with rig(is_open=False) as r:
        admin = await caller(r, "root", "admin")
        for pointer, fields in (
            ("/name", {"name": "Two Words"}),
            ("/name", {"name": ""}),
            ("/permissions/1", {"permissions": ("catalog:read", "catalog:eat")}),
            ("/permissions/0", {"permissions": ("internal",)}),
            ("/permissions/0", {"permissions": ("auth:session",)}),
            ("/grants/0/actions/0", {"grants": (grant(actions=("fly",)),)}),
            ("/grants/0/actions/0", {"grants": (grant(actions=("user:admin",)),)}),
            ("/grants/1/actions", {"grants": (grant(), grant(actions=()))}),
            ("/grants/0/path", {"grants": (grant(path=""),)}),
            ("/grants/0/path", {"grants": (grant(path="a/*/b"),)}),
            ("/grants/0/path", {"grants": (grant(path="a" * 513),)}),
            ("/grants", {"grants": (grant(),) * 201}),
        ):
            body = NewRole(**({"name": "clerk"} | fields))
            assert await refusal(admin.add_role(body), pointer=pointer) == INVALID
        assert await r.store.rights.listed("default") == []


@virtually
async def test_roles_are_those_of_the_tenant() -> None:
    async with rig(is_open=False) as r:
        admin = await caller(r, "root", "admin")
        other = await caller(r, "boss", "admin", tenant_id="acme")
        await other.add_role(NewRole(name="clerk", permissions=("audit:read",)))
        assert [role.name for role in (await admin.roles()).items] == list(ROLES)
        assert await refusal(admin.remove_role("clerk")) == UNKNOWN
        assert await refusal(admin.change_role("clerk", RoleChange())) == UNKNOWN
        row = await account(r, "anna")
        asked = admin.give_roles(row.account_id, ("clerk",))
        assert await refusal(asked, pointer="/roles/0") == INVALID
