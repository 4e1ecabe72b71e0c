"""Who is let in, and who is not."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.http import AsgiTransport
from noetl.errors import NoetlError
from noetl.server.access.entry import Caller, must, own_pool
from noetl.server.access.permissions import ROLES, TABLE, allows
from noetl.server.access.tokens import digest, is_token, new_token
from noetl.store.identity import TokenRow
from tests.unit.server.rig import rig, virtually

RUN = "/api/executions/12"


async def token(r, *roles: str, **more) -> str:
    text = new_token()
    row = TokenRow(
        token_id=r.ids.new(), sha256=digest(text), account=f"the {roles[0]}", roles=roles, **more
    )
    await r.store.tokens.put(row)
    return text


async def ask(r, bearer: str | None, method: str = "GET", path: str = RUN):
    headers = {} if bearer is None else {"authorization": bearer}
    answer = await AsgiTransport(r.server.asgi).request(method, path, b"", headers)
    return answer.status, msgspec.json.decode(answer.body).get("code", "")


def test_a_token_is_recognised_and_a_slip_is_found() -> None:
    made = new_token()
    assert made.startswith("ntk_")
    assert is_token(made)
    assert made != new_token()
    swapped = made[:-1] + ("0" if made[-1] != "0" else "1")
    assert not any(is_token(text) for text in (swapped, made[:-1], made + "0", "", "ntk_"))
    assert digest(made) != digest(swapped)


def test_the_table_has_a_mark_for_every_role() -> None:
    assert all(set(marks) == set(ROLES) for marks in TABLE.values())
    assert allows(("viewer",), "execution:run") == "g"
    assert allows(("viewer", "operator"), "execution:run") == "s"
    assert allows(("worker",), "command:claim") == "o"
    assert allows(("admin",), "internal") == "-"
    assert allows((), "catalog:read") == "-"
    assert allows(("nobody",), "catalog:read") == "-"


@virtually
async def test_an_open_server_asks_nobody() -> None:
    async with rig() as r:
        assert await ask(r, None) == (404, "unknown_execution")


@virtually
async def test_a_request_needs_a_token_that_is_known() -> None:
    async with rig(is_open=False) as r:
        good = await token(r, "viewer")
        assert await ask(r, None) == (401, "auth_required")
        assert await ask(r, f"Basic {good}") == (401, "auth_required")
        assert await ask(r, "Bearer ") == (401, "auth_required")
        assert await ask(r, "Bearer nonsense") == (401, "auth_required")
        assert await ask(r, f"Bearer {new_token()}") == (401, "auth_required")
        assert await ask(r, f"Bearer {good}") == (404, "unknown_execution")
        assert await ask(r, f"bearer {good}") == (404, "unknown_execution")
        assert await ask(r, f"Bearer {good}", "POST", "/api/execute") == (403, "forbidden")
        assert await ask(r, f"Bearer {good}", "POST", f"{RUN}/cancel") == (403, "forbidden")
        assert r.plane.access.outcomes == {
            "ok": 2, "auth_required": 5, "token_expired": 0, "session_expired": 0, "forbidden": 2,
            "rate_limited": 0, "bad_identity": 0, "internal": 0,
        }  # fmt: skip


@virtually
async def test_a_refusal_says_which_scheme_is_wanted() -> None:
    async with rig(is_open=False) as r:
        answer = await AsgiTransport(r.server.asgi).request("GET", RUN)
        assert answer.headers["www-authenticate"] == "Bearer"


@virtually
async def test_a_token_ends_by_its_time() -> None:
    async with rig(is_open=False) as r:
        good = await token(r, "viewer", expires_at="2026-01-01T00:01:00.000000Z")
        assert await ask(r, f"Bearer {good}") == (404, "unknown_execution")
        await asyncio.sleep(61)
        assert await ask(r, f"Bearer {good}") == (401, "token_expired")


@virtually
async def test_a_revoked_token_ends_within_five_seconds() -> None:
    async with rig(is_open=False) as r:
        good = await token(r, "viewer")
        assert await ask(r, f"Bearer {good}") == (404, "unknown_execution")
        row = await r.store.tokens.find(digest(good))
        assert row is not None
        await r.store.tokens.revoke(row.token_id, "2026-01-01T00:00:00.000000Z")
        await asyncio.sleep(5)
        assert await ask(r, f"Bearer {good}") == (401, "auth_required")


@virtually
async def test_ten_wrong_tokens_a_minute_are_enough() -> None:
    async with rig(is_open=False) as r:
        good = await token(r, "viewer")
        assert (await ask(r, f"Bearer {good}"))[0] == 404
        found = [await ask(r, f"Bearer {new_token()}") for _ in range(12)]
        assert found == [(401, "auth_required")] * 10 + [(429, "rate_limited")] * 2
        late = await token(r, "viewer")
        assert await ask(r, f"Bearer {late}") == (429, "rate_limited")
        await asyncio.sleep(6)  # what was good is looked up again, whatever its neighbours do
        assert (await ask(r, f"Bearer {good}"))[0] == 404
        await asyncio.sleep(60)
        assert (await ask(r, f"Bearer {late}"))[0] == 404


@virtually
async def test_the_internal_token_is_the_systems() -> None:
    async with rig(is_open=False, internal_tokens=("inner", "older")) as r:
        for bearer in ("Bearer inner", "Bearer older"):
            assert await ask(r, bearer) == (404, "unknown_execution")
        assert (await ask(r, "Bearer innerer"))[0] == 401


@virtually
async def test_internal_routes_have_refusals_of_their_own() -> None:
    async with rig(is_open=False) as closed:
        with pytest.raises(NoetlError) as unset:
            await closed.plane.access.caller(_Request("Bearer inner"), "internal")
    async with rig(is_open=False, internal_tokens=("inner",)) as r:
        admin = await token(r, "admin")
        found = []
        for header in ("", "Basic inner", "Bearer ", "Bearer wrong", f"Bearer {admin}"):
            with pytest.raises(NoetlError) as refused:
                await r.plane.access.caller(_Request(header), "internal")
            found.append((refused.value.status, refused.value.code))
        caller = await r.plane.access.caller(_Request("Bearer inner"), "internal")
    assert (unset.value.status, unset.value.code) == (503, "internal_token_unset")
    assert found == [(403, "internal_token_mismatch")] * 5
    assert caller.roles == ("system", "gateway")


def test_a_workers_token_is_for_its_pool() -> None:
    worker = Caller("w", ("worker",), "shared")
    own_pool(worker, "shared")
    own_pool(Caller("a", ("admin",)), "shared")
    with pytest.raises(NoetlError) as refused:
        own_pool(worker, "system")
    assert (refused.value.status, refused.value.code) == (403, "pool_forbidden")


def test_what_is_under_system_is_not_a_developers() -> None:
    developer = Caller("d", ("developer",))
    must(developer, "catalog:write", "systems/x")
    must(Caller("a", ("admin",)), "catalog:write", "system/x")
    for path in ("system/x", "system"):
        with pytest.raises(NoetlError) as refused:
            must(developer, "catalog:write", path)
        assert (refused.value.status, refused.value.code) == (403, "reserved_namespace")


class _Request:
    """As much of a request as the door looks at."""

    client = None

    def __init__(self, authorization: str) -> None:
        self.scope = {"headers": [(b"authorization", authorization.encode())] * bool(authorization)}
