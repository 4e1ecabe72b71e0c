"""What callers may do where: roles, grants, and what is kept for the platform."""

from __future__ import annotations

import pytest

from noetl.errors import NoetlError
from noetl.server.access.caller import LOCAL, SYSTEM, Caller, free_pool, grantable, must, must_serve
from noetl.server.access.grants import GRANTABLE, allowed, denied, is_fit, space_of
from noetl.store.identity import Grant

DENY = Grant(effect="deny", actions=("execute", "view", "modify"), path="finance/*")
ALLOW = Grant(effect="allow", actions=("execute",), path="finance/close")


def caller(
    *roles: str, grants: tuple[Grant, ...] = (), own: tuple[str, ...] = (), **more
) -> Caller:
    return Caller("ann", roles, grants=grants, own=frozenset(own), **more)


def code(who: Caller, permission: str, path: str) -> str:
    try:
        must(who, permission, path)
    except NoetlError as refusal:
        return refusal.code
    return "ok"


def test_a_pattern_is_a_path_or_what_it_begins_with() -> None:
    found = [
        is_fit("finance/*", path) for path in ("finance/a", "finance", "finances/a", "Finance/a")
    ]
    assert found == [True, False, False, False]
    assert [is_fit("*", "x"), is_fit("a.b", "a.b"), is_fit("a.b", "axb")] == [True, True, False]


def test_words_stand_for_permissions() -> None:
    grants = (Grant(effect="allow", actions=("view",), path="a"),)
    assert allowed(grants, "catalog:read") == allowed(grants, "execution:read") == ("a",)
    assert allowed(grants, "result:read") == allowed(grants, "vars:read") == ("a",)
    assert allowed(grants, "execution:run") == denied(grants, "catalog:read") == ()
    every = (Grant(effect="deny", actions=("*",), path="b"),)
    assert all(denied(every, permission) == ("b",) for permission in GRANTABLE)
    assert denied(every, "user:admin") == ()
    strange = (Grant(effect="allow", actions=("user:admin", "internal"), path="*"),)
    assert not caller(grants=strange).holds("user:admin")
    assert not caller(grants=strange).holds("internal")


def test_a_deny_beats_every_role_and_every_allow() -> None:
    for roles in (("admin",), ("developer", "operator"), ("made-here",)):
        who = caller(*roles, grants=(ALLOW, DENY), own=("execution:run",))
        assert code(who, "execution:run", "finance/close") == "forbidden"
        assert who.may("execution:run", "sales/close")


def test_a_grant_opens_its_path_alone() -> None:
    viewer = caller("viewer", grants=(ALLOW,))
    assert viewer.holds("execution:run")
    assert code(viewer, "execution:run", "finance/close") == "ok"
    assert code(viewer, "execution:run", "finance/open") == "forbidden"
    assert not caller("viewer").holds("execution:run")
    alone = caller("made-here", grants=(ALLOW,))
    assert (alone.holds("execution:run"), alone.holds("execution:read")) == (True, False)


def test_a_role_that_was_made_here_gives_its_permissions() -> None:
    who = caller("made-here", own=("catalog:write", "audit:read"))
    assert [who.mark(name) for name in ("catalog:write", "audit:read", "catalog:read")] == [
        "s", "s", "-",
    ]  # fmt: skip
    assert code(who, "catalog:write", "a/b") == "ok"
    assert code(who, "catalog:write", "system/b") == "reserved_namespace"
    assert grantable(frozenset({"audit:read", "internal", "auth:session", "nonsense"})) == {
        "audit:read"
    }


@pytest.mark.parametrize("path", ["system", "system/x", "System/x", "/system/x"])
def test_what_is_the_platforms_is_kept_from_others(path: str) -> None:
    assert space_of(path, "acme") == "system:write"
    developer, operator, admin = caller("developer"), caller("operator"), caller("admin")
    reserved = "reserved_namespace"
    assert code(developer, "catalog:write", path) == reserved
    assert code(developer, "execution:run", path) == reserved
    assert code(developer, "execution:read", path) == reserved
    assert code(operator, "catalog:delete", path) == reserved
    assert code(operator, "schedule:write", path) == reserved
    assert code(operator, "execution:control", path) == "ok"
    assert code(operator, "execution:read", path) == "ok"
    assert code(caller("worker"), "execution:run", path) == reserved
    assert code(caller("gateway"), "execution:read", path) == "ok"
    wide = caller("viewer", grants=(Grant(effect="allow", actions=("execute",), path="*"),))
    assert code(wide, "execution:run", path) == reserved
    for who in (admin, SYSTEM, LOCAL):
        for permission in ("catalog:write", "catalog:delete", "execution:run", "execution:read"):
            assert code(who, permission, path) == "ok"


def test_what_is_the_tenants_own_is_kept_for_its_admin() -> None:
    path = "acme/system/auth"
    assert space_of(path, "acme") == "tenant:system"
    assert space_of(path, "other") == space_of("acme/systems/x", "acme") == ""
    assert (
        code(caller("developer", tenant_id="acme"), "catalog:write", path) == "reserved_namespace"
    )
    assert code(caller("developer", tenant_id="acme"), "catalog:read", path) == "ok"
    assert code(caller("admin", tenant_id="acme"), "catalog:write", path) == "ok"


def test_the_reach_of_a_list() -> None:
    assert caller("admin").reach("execution:read") == (None, ())
    assert caller("viewer").reach("execution:read") == (None, ("system", "system/*"))
    assert caller("admin", grants=(DENY,)).reach("execution:read") == (None, ("finance/*",))
    alone = caller("x", grants=(Grant(effect="allow", actions=("view",), path="a/*"),))
    assert alone.reach("execution:read") == (("a/*",), ("system", "system/*"))
    assert caller("x").reach("execution:read")[0] == ()
    assert LOCAL.reach("execution:read") == (None, ())


def test_the_platforms_pool_and_commands_are_its_own() -> None:
    free_pool(caller("developer"), "shared")
    free_pool(caller("admin"), "system")
    with pytest.raises(NoetlError) as pool:
        free_pool(caller("operator"), "system")
    assert (pool.value.status, pool.value.code) == (403, "reserved_pool")
    must_serve(caller("admin"))
    must_serve(caller("worker", tenant_id="acme"))
    with pytest.raises(NoetlError) as commands:
        must_serve(caller("admin", tenant_id="acme"))
    assert commands.value.status == 403
