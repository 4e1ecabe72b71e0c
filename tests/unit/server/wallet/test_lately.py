"""Credentials of a moment ago: for a second, and none that was changed here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from noetl.clock import LoopClock
from noetl.server.wallet.lately import KEPT_S, MOST, Lately
from tests.unit.server.rig import virtually
from tests.unit.server.test_publish import START
from tests.unit.server.wallet.scene import scene
from tests.unit.server.wallet.test_delivery import PUT, USES

if TYPE_CHECKING:
    from noetl.store.secrets import CredentialRow


class Rows:
    """A store that counts its reads, each of which takes a while."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], object] = {}
        self.reads = 0

    async def get(self, tenant_id: str, name: str) -> object:
        self.reads += 1
        row = self.held.get((tenant_id, name))
        await asyncio.sleep(0.1)
        return row


def lately() -> tuple[Rows, Lately]:
    rows = Rows()
    return rows, Lately(rows, LoopClock(asyncio.get_running_loop(), START))


@virtually
async def test_a_row_is_read_once_a_second_for_each_tenant() -> None:
    rows, known = lately()
    rows.held = {("a", "pg"): "of a", ("b", "pg"): "of b"}
    for _ in range(3):
        assert [await known.get(tenant, "pg") for tenant in ("a", "b")] == ["of a", "of b"]
    assert rows.reads == 2
    rows.held["a", "pg"] = "changed elsewhere"
    await asyncio.sleep(KEPT_S)
    assert await known.get("a", "pg") == "changed elsewhere"


@virtually
async def test_what_is_missing_is_looked_for_every_time() -> None:
    rows, known = lately()
    assert await known.get("a", "pg") is None
    rows.held["a", "pg"] = "made"
    assert await known.get("a", "pg") == "made"


@virtually
async def test_what_was_changed_here_is_forgotten_also_while_it_is_read() -> None:
    rows, known = lately()
    rows.held["a", "pg"] = "old"
    await known.get("a", "pg")
    known.forget("a", "pg")
    reading = asyncio.create_task(known.get("a", "pg"))
    await asyncio.sleep(0.05)
    rows.held["a", "pg"] = "new"
    known.forget("a", "pg")
    assert await reading == "old"
    assert await known.get("a", "pg") == "new"


@virtually
async def test_the_last_ones_are_kept() -> None:
    rows, known = lately()
    names = [str(number) for number in range(MOST + 1)]
    rows.held = {("a", name): name for name in names}
    await asyncio.gather(*(known.get("a", name) for name in names))
    assert rows.reads == MOST + 1
    await known.get("a", names[-1])
    assert rows.reads == MOST + 1
    await known.get("a", names[0])
    assert rows.reads == MOST + 2


@virtually
async def test_a_command_gets_what_was_put_a_moment_ago() -> None:
    async with scene() as s:
        await s.client.put_credential(PUT)
        command = await s.claimed(USES)
        reads, store = [], s.r.plane.parts.store.credentials
        get = store.get

        async def counted(tenant_id: str, name: str) -> CredentialRow | None:
            reads.append(name)
            return await get(tenant_id, name)

        store.get = counted
        for _ in range(3):
            assert (await s.sealed("pg", command))["data"] == PUT.data
        assert reads == ["pg"]
        for number in range(3):
            changed = {**PUT.data, "password": f"another-password-{number}"}
            await s.client.put_credential(msgspec.structs.replace(PUT, data=changed))
            assert (await s.sealed("pg", command))["data"] == changed
