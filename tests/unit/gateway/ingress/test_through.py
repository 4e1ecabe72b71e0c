"""The whole way: a subscription is registered, a sender delivers, and its runs are there."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

from noetl.api.catalog import Register
from noetl.api.credentials import CredentialPut
from tests.unit.gateway.ingress.house import SECRET, SERVICE, signed
from tests.unit.gateway.rig import INTERNAL, gateway_rig
from tests.unit.server.rig import ONE_STEP, virtually

DOCUMENT = """
apiVersion: noetl.io/v1
kind: Subscription
metadata: {{ name: orders, path: subscriptions/orders }}
spec:
  source: webhook
  mode: push
  ingress:
    gateway_path: /ingress/orders
    verify: {{ type: hmac_sha256, header: x-sign, secret: [hook] }}
    keep_rejected: true
  dispatch: {{ playbook: demo/it, execution_pool: shared }}
  spool: {spool}
"""
OFF = "{ mode: off }"


@asynccontextmanager
async def town(spool=OFF):
    """A gateway and a server that know a listener `orders`."""
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        await rig.admin.put_credential(
            CredentialPut(name="hook", type="secret", data={"value": SECRET})
        )
        await rig.admin.register(Register(content=DOCUMENT.format(spool=spool)))
        made = await rig.admin.register_subscription("subscriptions/orders")
        await rig.admin.steer_subscription(made.subscription_id, "activate", "a test")
        await asyncio.sleep(1)  # the gateway is known to the server by then
        yield rig, made.subscription_id


async def sent(rig, body, **headers):
    return await rig.caller().post(
        "/ingress/orders", body, {"x-sign": signed(body), "content-type": "text/plain", **headers}
    )


async def runs(rig):
    return [one.execution_id for one in (await rig.admin.executions(limit=50)).items]


@virtually
async def test_a_delivery_is_one_run_however_often_it_comes():
    async with town() as (rig, _):
        first = await sent(rig, b"hello")
        told = json.loads(first.body)
        assert (first.status, told["status"]) == (202, "accepted")
        again = await sent(rig, b"hello", **{"x-github-delivery": "another"})
        assert (again.status, json.loads(again.body)) == (
            202,
            {"status": "duplicate", "execution_id": told["execution_id"]},
        )
        assert await runs(rig) == [told["execution_id"]]


@virtually
async def test_what_was_tampered_with_is_a_row_and_an_event_and_nothing_else():
    async with town() as (rig, subscription_id):
        told = await rig.caller().post("/ingress/orders", b"hellO", {"x-sign": signed(b"hello")})
        assert (told.status, json.loads(told.body)["code"]) == (401, "bad_signature")
        await asyncio.sleep(2)
        assert await runs(rig) == []
        rows = (await rig.admin.deliveries(subscription_id)).items
        assert [(one.outcome, one.reason, one.status) for one in rows] == [
            ("rejected", "bad_signature", 401)
        ]


@virtually
async def test_states_are_followed_within_two_seconds():
    async with town() as (rig, subscription_id):
        assert (await sent(rig, b"1")).status == 202
        await rig.admin.steer_subscription(subscription_id, "pause", "a test")
        await asyncio.sleep(2)
        told = await sent(rig, b"2")
        assert (told.status, told.headers["retry-after"]) == (503, "30")
        await rig.admin.steer_subscription(subscription_id, "resume", "a test")
        await asyncio.sleep(2)
        assert (await sent(rig, b"2")).status == 202
        assert len(await runs(rig)) == 2


@virtually
async def test_a_secret_that_is_replaced_counts_no_more():
    async with town() as (rig, _):
        assert (await sent(rig, b"1")).status == 202
        await rig.admin.put_credential(
            CredentialPut(name="hook", type="secret", data={"value": "canary-next-secret-01234567"})
        )
        await asyncio.sleep(2)
        assert (await sent(rig, b"2")).status == 401


@virtually
async def test_only_the_server_sends_again():
    async with town() as (rig, _):
        asked = {"replay_of": "5", "headers": [["x-sign", signed(b"{}")]], "body": "e30="}
        path = "/api/internal/ingress/orders/again"
        admin = await rig.login("root", "admin")
        assert (await rig.caller().post(path, asked)).status == 401
        assert (await rig.caller(authorization=SERVICE).post(path, asked)).status == 401
        assert (await rig.caller(admin).post(path, asked)).status == 403
        assert await runs(rig) == []
        told = await rig.caller(authorization=f"Bearer {INTERNAL}").post(path, asked)
        assert json.loads(told.body)["status"] == 202
        assert len(await runs(rig)) == 1
