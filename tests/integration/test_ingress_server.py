"""Push subscriptions on PostgreSQL: keys, the log of deliveries, and gateways over sockets."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from noetl.api.ingress import DeliveryFilter, KeepRejected, ReplayDeliveries, TestDelivery
from noetl.api.problems import Refused
from noetl.clock import SystemClock, rfc3339
from noetl.edge.http import bound, listener
from noetl.secrets.kek.local import LocalKek
from noetl.secrets.wallet import Wallet
from noetl.server.fleet.gateways import over_sockets
from tests.integration.test_two_servers import server
from tests.servers import ENCRYPTION_KEY
from tests.unit.server.pushed.stage import (
    LISTENER,
    SECRET,
    delivery,
    gateway,
    pushed,
    tell,
    wish,
)
from tests.unit.server.wallet.test_listeners import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from noetl.api.subscriptions import PutDelivery
    from tests.unit.server.rig import Rig


class Wire:
    """A gateway behind a socket that writes down what it is sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, dict[str, str]]] = []
        self.app = Starlette(routes=[Route("/{rest:path}", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> JSONResponse:
        body = await request.body()
        self.asked.append((request.url.path, body, dict(request.headers)))
        told = {"status": "accepted", "execution_id": "77", "delivery_id": "9"}
        return JSONResponse(told, 202)


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[tuple[Rig, Rig]]:
    wallet = Wallet(LocalKek(ENCRYPTION_KEY), SystemClock())
    more = {"wallet": wallet, "gateways": over_sockets, "internal_tokens": ("an-inner-token",)}
    async with server(postgres_url, 1, **more) as one, server(postgres_url, 2, **more) as two:
        yield one, two


def lately(number: int, **more: Any) -> PutDelivery:
    """A delivery of this day: older ones are purged."""
    at = SystemClock().now() + timedelta(milliseconds=number)
    return delivery(number, at=rfc3339(at), **more)


async def test_either_key_finds_the_first_run_whichever_server_is_asked(
    pair: tuple[Rig, Rig],
) -> None:
    one, two = pair
    sub = await pushed(one)
    bodies = [
        msgspec.structs.replace(
            wish(sub, n), dedup=msgspec.structs.replace(wish(sub, n).dedup, replay_key="r:same")
        )
        for n in range(1, 9)
    ]
    batches = await asyncio.gather(
        *(r.client.execute_batch(tuple(bodies[n : n + 4])) for r, n in ((one, 0), (two, 4))),
        *(r.client.execute_batch(tuple(bodies[n : n + 4])) for r, n in ((two, 0), (one, 4))),
    )
    items = [item for batch in batches for item in batch.results]
    assert [item.status for item in items].count("started") == 1
    assert len({item.execution_id for item in items}) == 1
    later = await two.client.execute(bodies[0])
    assert (later.status, later.execution_id) == ("duplicate", items[0].execution_id)
    assert len((await one.client.children(sub)).items) == 1


async def test_what_waited_is_linked_with_its_run_and_replayed(pair: tuple[Rig, Rig]) -> None:
    one, two = pair
    sub = await pushed(one)
    first = (await one.client.execute(wish(sub, 1))).execution_id
    await tell(one.client, sub, lately(1, execution_id=first), lately(2, outcome="spooled"))
    drained = await two.client.execute(wish(sub, 2, ingress={"spool_ref": "noetl://spool/a/1/m"}))
    assert (await one.client.delivery(sub, "2")).execution_id == drained.execution_id
    done = await two.client.replay_deliveries(sub, ReplayDeliveries(filter=DeliveryFilter()))
    assert [(item.delivery_id, item.status) for item in done.items] == [
        ("1", "started"), ("2", "started"),
    ]  # fmt: skip
    rows = (await one.client.events(done.items[0].execution_id, limit=2)).items
    assert rows[0]["meta"]["replay_of"] == "1"
    assert rows[1]["event_type"] == "subscription.message.accepted"
    found = await one.client.execution(done.items[0].execution_id)
    assert found.workload == (await two.client.execution(first)).workload
    again = await one.client.replay_deliveries(sub, ReplayDeliveries(filter=DeliveryFilter()))
    assert [item.delivery_id for item in again.items] == ["1", "2"], "replays are not replayed"
    assert len((await one.client.deliveries(sub)).items) == 6


async def test_a_gateway_is_told_the_same_by_every_server(pair: tuple[Rig, Rig]) -> None:
    one, two = pair
    await pushed(one)
    keys = await gateway(one.client)
    found = [await r.client.ingress_listener(LISTENER, "gw-1") for r in (one, two)]
    assert opened(found[1], keys, "hook")["data"] == {"value": SECRET}
    assert [told.state for told in found] == ["REGISTERED"] * 2
    assert (await two.client.ingress_listeners()).listeners == (LISTENER,)
    with pytest.raises(Refused) as refused:
        await two.client.ingress_listener("nobody", "gw-1")
    assert refused.value.problem.code == "unknown_listener"


async def test_trials_and_rejected_ones_go_to_a_gateway_over_a_socket(
    pair: tuple[Rig, Rig],
) -> None:
    one, two = pair
    sub = await pushed(one, more=", keep_rejected: true")
    wire = Wire()
    with bound("127.0.0.1", 0) as socket:
        served = listener(wire.app)
        task = asyncio.create_task(served.serve([socket]))
        await served.heard.wait()
        await gateway(one.client, "gone", "http://127.0.0.1:1")
        await gateway(one.client, uri=f"http://127.0.0.1:{socket.getsockname()[1]}")
        sent = await two.client.test_delivery(sub, TestDelivery(body="{}", query="a=1"))
        assert (sent.status, sent.outcome, sent.execution_id) == (202, "accepted", "77")
        kept = KeepRejected(body=base64.b64encode(b"x").decode())
        told = lately(3, outcome="rejected", reason="stale_timestamp", rejected=kept)
        await tell(one.client, sub, told)
        again = await one.client.replay_delivery(sub, "3")
        assert (again.status, again.execution_id) == ("started", "77")
        served.stop()
        await task
    path, body, headers = wire.asked[0]
    assert (path, body) == (f"/ingress/{LISTENER}", b"{}")
    assert "authorization" not in headers
    assert wire.asked[1][0] == f"/api/internal/ingress/{LISTENER}/again"
    assert wire.asked[1][2]["authorization"] == "Bearer an-inner-token"
