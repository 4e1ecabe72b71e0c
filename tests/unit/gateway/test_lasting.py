"""Streams and their session: one lasts as long as the other, whatever token it has by now."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from noetl.api.identity import Login
from tests.unit.gateway.rig import PASSWORD, GatewayRig, Signed, gateway_rig
from tests.unit.gateway.streaming import Events, Socket, events, socket
from tests.unit.gateway.test_graphql_socket import Client, line
from tests.unit.server.rig import virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOUR_S = 3600
BEAT_S = 30


@dataclass
class Tab:
    """All that somebody may hold open, and a program that answers every ping."""

    sse: Events
    ws: Socket
    graphql: Client

    @property
    def ends(self) -> tuple[bool, int | None, int | None]:
        """Whether each has ended, and how."""
        return self.sse.is_over, self.ws.code, self.graphql.line.code

    async def wait(self, seconds: float) -> None:
        """Let time pass with nobody before the page."""
        for _ in range(int(seconds // BEAT_S)):
            await asyncio.sleep(BEAT_S)
            self.ws.text('{"jsonrpc":"2.0","method":"pong"}')
            self.graphql.say("pong")


OPEN = (False, None, None)


@asynccontextmanager
async def tab(rig: GatewayRig, who: Signed) -> AsyncIterator[Tab]:
    """A stream of each kind."""
    async with AsyncExitStack() as stack:
        sse = await stack.enter_async_context(events(rig.gateway.asgi, who.headers))
        ws = await stack.enter_async_context(socket(rig.gateway.asgi, who.headers))
        await ws.call("initialize")
        graphql = await stack.enter_async_context(line(rig, who.headers))
        await graphql.begin()
        yield Tab(sse, ws, graphql)


async def signed_for(rig: GatewayRig, hours: int) -> Signed:
    """Somebody who has signed in for so many hours."""
    user_id = await rig.account("ann", "developer")
    wish = Login(email="ann@example.com", password=PASSWORD, session_duration_hours=hours)
    made = await rig.system.login(wish)
    return Signed(made.session_token, made.session_id, user_id, "ann@example.com")


async def refreshed(rig: GatewayRig, who: Signed) -> Signed:
    """The same with another token."""
    answer = await rig.caller(who).post("/api/auth/refresh")
    return replace(who, token=json.loads(answer.body)["session_token"])


@virtually
async def test_streams_go_on_when_their_session_is_given_another_token() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with tab(rig, ann) as held:
            fresh = await refreshed(rig, ann)
            await held.wait(800)
            assert held.ends == OPEN
            answer = await held.ws.call("subscribe", {"executionIds": [], "channels": ["state"]})
            assert "result" in answer
            held.graphql.ask("1", "{health}")
            await held.graphql.got("complete", "1")
            assert held.ends == OPEN
        assert (await rig.caller(ann).get("/api/auth/whoami")).status == 401
        assert (await rig.caller(fresh).get("/api/auth/whoami")).status == 200


@virtually
async def test_streams_last_as_long_as_a_session_that_was_made_longer_at_its_end() -> None:
    async with gateway_rig() as rig, rig.replica() as other:
        ann = await signed_for(rig, 1)
        async with tab(rig, ann) as held:
            await held.wait(HOUR_S - BEAT_S)
            assert len(held.sse.bodies("session/expiring")) == 1
            fresh = await refreshed(other, ann)
            await held.wait(1800)
            assert held.ends == OPEN
            await held.ws.call("ping")
            await held.wait(1800)
            (_, second) = held.sse.bodies("session/expiring")
            assert second["reason"] == "expires"
            assert second["expiresAt"] > held.sse.bodies("session/expiring")[0]["expiresAt"]
            await held.wait(60)
            assert held.ends == (True, 4401, 4401)
            assert [one["reason"] for one in held.sse.bodies("session/closed")] == ["expired"]
        assert (await rig.caller(fresh).get("/api/auth/whoami")).status == 401


@virtually
async def test_a_session_with_nobody_before_its_streams_goes_idle() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with tab(rig, ann) as held:
            await held.wait(2 * HOUR_S - 60)
            assert held.ends == OPEN
            await held.wait(500)
            assert held.ends == (True, 4401, 4401)
        assert (await rig.caller(ann).get("/api/auth/whoami")).status == 401


@virtually
async def test_what_somebody_asks_for_on_a_socket_is_a_use_of_his_session() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        fresh = await refreshed(rig, ann)
        async with tab(rig, fresh) as held:
            for _ in range(3):
                await held.wait(HOUR_S)
                params = {"executionIds": [], "channels": ["state"]}
                assert "result" in await held.ws.call("subscribe", params)
            assert held.ends == OPEN
        assert (await rig.caller(fresh).get("/api/auth/whoami")).status == 200


@virtually
async def test_a_session_that_was_ended_by_its_id_ends_streams_opened_with_its_first_token() -> (
    None
):
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with tab(rig, ann) as held:
            fresh = await refreshed(rig, ann)
            await held.wait(90)
            assert (await rig.caller(fresh).post("/api/auth/logout")).status == 204
            await held.sse.over()
            assert await held.ws.closed() == 4401
            assert await held.graphql.line.closed() == 4401
