"""Gateways are told at once that what they know of a listener is old."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.api.catalog import Register
from noetl.api.subscriptions import LettersWanted
from noetl.bus import subjects
from noetl.bus.base import BusGone
from tests.unit.server.pushed.stage import LISTENER, PATH, PUSH, pushed, put
from tests.unit.server.rig import Rig, rig, virtually
from tests.unit.server.subscriptions.stage import document, post, registered, report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ALL = subjects.ingress(LISTENER).replace(LISTENER, "*")


@asynccontextmanager
async def heard(r: Rig) -> AsyncIterator[list[str]]:
    """The listeners that are told of, as they are."""
    names: list[str] = []
    async with r.bus.listen(ALL) as words:

        async def listen() -> None:
            async for word in words:
                names.extend(word.subject.rpartition(".")[2:])

        task = asyncio.create_task(listen())
        yield names
        await asyncio.sleep(0.1)
        task.cancel()


@virtually
async def test_every_step_of_its_life_is_a_hint() -> None:
    async with rig() as r:
        async with heard(r) as names:
            sub = await pushed(r)
        assert names == [LISTENER]
        for action in ("activate", "pause", "resume", "drain", "deactivate"):
            async with heard(r) as names:
                await r.client.steer_subscription(sub, action)
            assert names == [LISTENER]


@virtually
async def test_dead_letters_that_somebody_wants_are_a_hint() -> None:
    async with rig() as r:
        sub = await pushed(r)
        async with heard(r) as names:
            nothing = await r.client.redrive(sub, LettersWanted(all=True))
        assert (nothing.status, names) == ("nothing", [])
        await post(r, report(r, sub, "message.dead_lettered", ref="noetl://spool/a/1/m"))
        for ask in (r.client.redrive, r.client.discard):
            async with heard(r) as names:
                assert (await ask(sub, LettersWanted(all=True))).count == 1
            assert names == [LISTENER]


@virtually
async def test_a_new_version_is_a_hint_and_a_new_name_two() -> None:
    async with rig() as r:
        await pushed(r)
        async with heard(r) as names:
            content = document(PATH, PUSH % (LISTENER, ", body_limit: 2Mi"))
            await r.client.register(Register(content=content))
        assert names == [LISTENER]
        async with heard(r) as names:
            await r.client.register(Register(content=document(PATH, PUSH % ("bills", ""))))
        assert names == ["bills", LISTENER]


@virtually
async def test_credentials_of_a_listener_are_hints_and_others_are_none() -> None:
    async with rig() as r:
        await pushed(r)
        await pushed(r, listener="plain", more=", challenge: {type: meta, verify_token: meta}")
        await registered(r)
        async with heard(r) as names:
            await put(r.client, "hook", "another")
        assert names == [LISTENER, "plain"]
        async with heard(r) as names:
            await put(r.client, "meta", "token")
            await r.client.delete_credential("meta", force=True)
        assert names == ["plain", "plain"]
        async with heard(r) as names:
            await put(r.client, "nats_plant", "x")
            await put(r.client, "unnamed", "x")
        assert names == []


@virtually
async def test_without_a_bus_everything_else_goes_on() -> None:
    async with rig() as r:

        async def gone(_subject: str, _payload: bytes) -> None:
            raise BusGone("away")

        r.bus.tell = gone
        sub = await pushed(r)
        assert (await r.client.steer_subscription(sub, "activate")).state == "ACTIVE"

        async def hangs(_subject: str, _payload: bytes) -> None:
            await asyncio.Event().wait()

        r.bus.tell = hangs
        assert (await r.client.steer_subscription(sub, "pause")).state == "PAUSED"
