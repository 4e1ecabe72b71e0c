"""Every route and every role: who is let in is what the table says, and nothing else."""

from __future__ import annotations

import re

import msgspec

from noetl.api.http import AsgiTransport
from noetl.server.permissions import PUBLIC, ROLES, TABLE
from noetl.server.tokens import digest, new_token
from noetl.store.base import TokenRow
from tests.unit.server.rig import rig, virtually

REFUSED = (401, 403)
LET_IN = "yso"


def asked(route) -> tuple[str, str]:
    method = next(iter(sorted(route.methods - {"HEAD"})))
    return method, re.sub(r"{[^}]*}", "12", route.path)


async def status(r, method: str, path: str, bearer: str | None):
    headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
    answer = await AsgiTransport(r.server.asgi).request(method, path, b"{}", headers)
    problem = (
        msgspec.json.decode(answer.body) if "problem" in answer.headers["content-type"] else {}
    )
    return answer.status, problem.get("code")


@virtually
async def test_every_route_lets_in_exactly_the_roles_of_the_table() -> None:
    async with rig(is_open=False) as r:
        tokens = {}
        for role in ROLES:
            tokens[role] = new_token()
            await r.store.tokens.put(
                TokenRow(
                    token_id=r.ids.new(),
                    sha256=digest(tokens[role]),
                    account=role,
                    roles=(role,),
                    pool="shared" if role == "worker" else None,
                )
            )
        wrong = []
        for route in r.server.asgi.routes:
            method, path = asked(route)
            for role, token in tokens.items():
                before = r.plane.access.outcomes["ok"]
                found = await status(r, method, path, token)
                is_let_in = route.permission == PUBLIC or r.plane.access.outcomes["ok"] > before
                marks = TABLE.get(route.permission, {})
                may = route.permission == PUBLIC or marks.get(role, "-") in LET_IN
                if may != is_let_in:
                    wrong.append((method, path, role, route.permission, found))
        assert wrong == []


@virtually
async def test_without_a_token_only_public_routes_answer() -> None:
    async with rig(is_open=False) as r:
        for route in r.server.asgi.routes:
            method, path = asked(route)
            code, _ = await status(r, method, path, None)
            assert (path, code == 401) == (path, route.permission != PUBLIC)


@virtually
async def test_tricks_with_paths_open_nothing() -> None:
    async with rig(is_open=False) as r:
        for route in r.server.asgi.routes:
            if route.permission == PUBLIC:
                continue
            method, path = asked(route)
            for trick in (f"/{path}", f"{path}/", path.upper(), f"/health/..{path}", path + "%2f"):
                assert (await status(r, method, trick, None))[0] in (*REFUSED, 404)


@virtually
async def test_public_routes_are_known_by_name() -> None:
    async with rig(is_open=False) as r:
        found = {route.path for route in r.server.asgi.routes if route.permission == PUBLIC}
        assert found == {
            "/health", "/livez", "/ready", "/readyz", "/api/health", "/api/callbacks/{key}",
            "/api/runtime/shard-info",
        }  # fmt: skip
