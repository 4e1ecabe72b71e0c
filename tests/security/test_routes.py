"""Roles that were made here, and routes that are public: beside the matrix of `test_matrix`."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from noetl.server.access.grants import GRANTABLE
from noetl.server.access.permissions import ANYBODY, PUBLIC, TABLE
from tests.security.people import INNER, ask, asked, code, person, role
from tests.unit.server.rig import rig, virtually

SHUT = {"is_open": False, "internal_tokens": (INNER,)}


async def is_let_in(r, route, bearer: str) -> bool:
    before = r.plane.access.outcomes["ok"]
    with suppress(TimeoutError):  # a stream has no end
        async with asyncio.timeout(1):
            await ask(r, bearer, *asked(route))
    return route.permission == PUBLIC or r.plane.access.outcomes["ok"] > before


@virtually
async def test_a_role_that_was_made_here_opens_what_it_names_and_services_have_for_themselves():
    async with rig(**SHUT) as r:
        wrong = []
        for permission, marks in TABLE.items():
            made = await role(r, f"only {permission}", permissions=(permission,))
            token = await person(r, made)
            for route in r.server.asgi.routes:
                given = route.permission == permission and marks["admin"] == "y"
                expected = given or route.permission in {PUBLIC, ANYBODY}
                if await is_let_in(r, route, token) != expected:
                    wrong.append((*asked(route), permission))
        assert wrong == []


@virtually
async def test_a_grant_opens_the_door_of_its_permission_alone() -> None:
    async with rig(**SHUT) as r:
        wrong = []
        for permission in TABLE:
            made = await role(r, f"grant {permission}", ("allow", permission, "finance/*"))
            token = await person(r, made)
            meant = {permission} & GRANTABLE
            if permission == "execution:read":
                meant |= {"result:read", "vars:read"}
            for route in r.server.asgi.routes:
                expected = route.permission in {*meant, PUBLIC, ANYBODY}
                if await is_let_in(r, route, token) != expected:
                    wrong.append((*asked(route), permission))
        assert wrong == []


@virtually
async def test_public_routes_are_known_by_name() -> None:
    async with rig(**SHUT) as r:
        found = {route.path for route in r.server.asgi.routes if route.permission == PUBLIC}
        assert found >= {"/health", "/api/health", "/api/callbacks/{key}"}
        assert found <= {
            "/health", "/livez", "/ready", "/readyz", "/api/health", "/api/callbacks/{key}",
            "/api/runtime/shard-info", "/api/schema", "/api/schema/{kind}", "/metrics",
            "/api/runtime/contract", "/api/openapi.json", "/api/docs",
        }  # fmt: skip


@virtually
async def test_a_token_of_a_worker_does_not_list_people_or_claim_of_another_pool() -> None:
    async with rig(**SHUT) as r:
        worker = await person(r, "worker", pool="shared")
        claim = {"worker_id": "w", "pool": "other"}
        assert await code(r, worker, "GET", "/api/users") == (403, "forbidden")
        assert await code(r, worker, "POST", "/api/commands/claim", claim) == (
            403, "pool_forbidden",
        )  # fmt: skip
