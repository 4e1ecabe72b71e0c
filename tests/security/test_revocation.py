"""What is taken away is gone within five seconds, for open streams too."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.server.access.tokens import SESSION, digest, new_token
from noetl.store.identity import AccountRow, SessionRow
from tests.security.people import INNER, ask, code, person, register, role, started
from tests.unit.server.reading.test_stream import listening
from tests.unit.server.rig import rig, virtually

SHUT = {"is_open": False, "internal_tokens": (INNER,)}
NOW = "2026-01-01T00:00:00.000000Z"


async def revoked(r, token: str) -> None:
    row = await r.store.tokens.find(digest(token))
    await r.store.tokens.revoke(row.token_id, NOW)


async def deactivated(r, token: str) -> None:
    row = await r.store.tokens.find(digest(token))
    account = await r.store.accounts.get(row.account_id)
    await r.store.accounts.change(msgspec.structs.replace(account, active=False))


async def without_role(r, token: str) -> None:
    row = await r.store.tokens.find(digest(token))
    account = await r.store.accounts.get(row.account_id)
    await r.store.accounts.change(msgspec.structs.replace(account, roles=()))


async def denied(r, token: str) -> None:
    del token
    await role(r, "reader", ("deny", "view", "a/*"), permissions=("execution:read",))


@pytest.mark.parametrize("change", [revoked, deactivated, without_role, denied])
def test_a_reader_is_cut_off_within_five_seconds(change) -> None:
    async def steps() -> None:
        async with rig(**SHUT) as r:
            admin = await person(r, "admin")
            await register(r, admin, "a/b")
            run = await started(r, admin, "a/b")
            await role(r, "reader", permissions=("execution:read",))
            reader = await person(r, "reader")
            bearer = {"authorization": f"Bearer {reader}"}
            path = f"/api/executions/{run}"
            async with (
                listening(r, run, **bearer) as events,
                listening(r, run, at="logs?follow=true", **bearer) as lines,
                listening(r, run, authorization=f"Bearer {admin}") as other,
            ):
                await asyncio.sleep(60)
                assert not events.task.done()
                assert not lines.task.done()
                await change(r, reader)
                await asyncio.sleep(5)
                assert events.task.done()
                assert lines.task.done()
                assert not other.task.done()
                assert (await code(r, reader, "GET", path))[0] in {401, 403}
                assert (await ask(r, admin, "GET", path))[0] == 200
            assert r.plane.streams.count == 0

    virtually(steps)()


async def signed_in(r, *roles: str, **more) -> str:
    """The token of a session that begins now."""
    token = await person(r, *roles)  # for its account
    row = await r.store.tokens.find(digest(token))
    account: AccountRow = await r.store.accounts.get(row.account_id)
    text = new_token(SESSION)
    given = {
        "session_id": r.ids.new(), "sha256": digest(text), "account_id": account.account_id,
        "created_at": NOW, "expires_at": "2026-01-01T08:00:00.000000Z",
        "idle_until": "2026-01-01T02:00:00.000000Z", **more,
    }  # fmt: skip
    await r.store.sessions.put(SessionRow(**given))
    return text


@virtually
async def test_a_session_lives_while_it_is_used_and_not_beyond_its_end() -> None:
    async with rig(**SHUT) as r:
        used, idle = await signed_in(r, "viewer"), await signed_in(r, "operator")
        path = "/api/executions"
        for _ in range(7):
            await asyncio.sleep(3600)
            assert (await ask(r, used, "GET", path))[0] == 200
        assert await code(r, idle, "GET", path) == (401, "session_expired")
        await asyncio.sleep(3601)
        assert await code(r, used, "GET", path) == (401, "session_expired")


@virtually
async def test_a_session_that_was_ended_ends_within_five_seconds() -> None:
    async with rig(**SHUT) as r:
        session = await signed_in(r, "viewer")
        assert (await ask(r, session, "GET", "/api/executions"))[0] == 200
        row = await r.store.sessions.find(digest(session))
        await r.store.sessions.revoke(row.session_id, NOW)
        await asyncio.sleep(5)
        assert await code(r, session, "GET", "/api/executions") == (401, "session_expired")
