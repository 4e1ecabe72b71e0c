"""Trial deliveries: signed here, sent the way that all of them come."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging

import pytest

from noetl.api.http import Answer
from noetl.api.ingress import Sent, TestDelivery
from noetl.api.problems import Refused
from tests.unit.server.identity.people import caller, refusal
from tests.unit.server.pushed.stage import LISTENER, SECRET, FakeGateway, gateway, pushed, put
from tests.unit.server.rig import rig, virtually
from tests.unit.server.subscriptions.stage import registered

INNER = "the-internal-token-of-this-rig"
BODY = '{"order": 7, "note": "ein Gruß"}'


def digest(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@virtually
async def test_a_trial_is_signed_with_the_secret_and_sent_to_the_listener() -> None:
    gate = FakeGateway()
    async with rig(gateways=gate.way, internal_tokens=(INNER,)) as r:
        sub = await pushed(r)
        await gateway(r.client)
        gate.says(202, status="accepted", execution_id="77", delivery_id="9")
        body = TestDelivery(body=BODY, headers={"X-Kind": "order"}, query="a=1")
        sent = await r.client.test_delivery(sub, body)
        assert sent == Sent(status=202, delivery_id="9", execution_id="77", outcome="accepted")
        method, path, raw, headers = gate.asked[0]
        assert (method, path, raw) == ("POST", f"/ingress/{LISTENER}?a=1", BODY.encode())
        assert headers == {
            "x-kind": "order", "content-type": "application/json",
            "x-signature": digest(BODY.encode()),
        }  # fmt: skip
        assert INNER not in str(headers), "senders do not know our token"
        packed = TestDelivery(body=base64.b64encode(b"\x00\xff").decode(), is_base64=True)
        gate.says(202, status="duplicate", execution_id="77")
        assert (await r.client.test_delivery(sub, packed)).outcome == "duplicate"
        assert gate.asked[1][2] == b"\x00\xff"
        gate.says(401, type="t", title="t", status=401, code="bad_signature")
        refused = await r.client.test_delivery(sub, TestDelivery())
        assert refused == Sent(status=401, code="bad_signature")
        gate.answers.append(Answer(502, {}, b"<html>"))
        assert await r.client.test_delivery(sub, TestDelivery()) == Sent(status=502)
        gate.answers.append(Answer(200, {}, b'[{"status": 1}]'))
        assert await r.client.test_delivery(sub, TestDelivery()) == Sent(status=200)


@virtually
async def test_the_newest_secret_of_a_rotation_signs() -> None:
    gate = FakeGateway()
    async with rig(gateways=gate.way) as r:
        sub = await pushed(r)
        await put(r.client, "hook_old", "the old one")
        await gateway(r.client)
        for secret in (SECRET, "the old one"):
            gate.says(202, status="accepted")
            await r.client.test_delivery(sub, TestDelivery(body="x"))
            assert gate.asked[-1][3]["x-signature"] == digest(b"x", secret)
            if secret == SECRET:
                await r.client.delete_credential("hook", force=True)
        await r.client.delete_credential("hook_old", force=True)
        assert await refusal(r.client.test_delivery(sub, TestDelivery())) == (422, "cannot_sign")


@virtually
async def test_without_a_gateway_it_is_503_and_a_pull_takes_no_delivery() -> None:
    async with rig() as r:
        sub = await pushed(r)
        assert await refusal(r.client.test_delivery(sub, TestDelivery())) == (503, "no_gateway")
        await gateway(r.client)
        assert await refusal(r.client.test_delivery(sub, TestDelivery())) == (503, "no_gateway")
        pull = await registered(r)
        assert (await refusal(r.client.test_delivery(pull, TestDelivery())))[0] == 422


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (TestDelivery(body="?", is_base64=True), "/body"),
        (TestDelivery(headers={"host": "evil"}), "/headers/host"),
        (TestDelivery(headers={"Content-Length": "1"}), "/headers/Content-Length"),
        (TestDelivery(headers={"x": "a\r\nb: c"}), "/headers/x"),
        (TestDelivery(headers={"a b": "c"}), "/headers/a b"),
        (TestDelivery(headers={"x": "\u20ac"}), "/headers/x"),
        (TestDelivery(headers={f"x-{n}": "v" for n in range(65)}), "/headers"),
        (TestDelivery(query="a b"), "/query"),
        (TestDelivery(query="a#b"), "/query"),
        (TestDelivery(query="a\r\n"), "/query"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(body: TestDelivery, pointer: str) -> None:
    gate = FakeGateway()

    @virtually
    async def check() -> None:
        async with rig(gateways=gate.way) as r:
            sub = await pushed(r)
            await gateway(r.client)
            with pytest.raises(Refused) as refused:
                await r.client.test_delivery(sub, body)
            assert refused.value.problem.status == 422
            assert refused.value.problem.errors[0]["pointer"] == pointer
            assert gate.asked == []

    check()


@virtually
async def test_a_viewer_tries_nothing_and_what_a_developer_tries_is_audited(
) -> None:  # fmt: skip
    gate = FakeGateway()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(repr(record.__dict__))  # type: ignore[method-assign] # all that is needed of one
    root = logging.getLogger("noetl")
    root.addHandler(handler)
    try:
        async with rig(gateways=gate.way, is_open=False, internal_tokens=(INNER,)) as r:
            admin = await caller(r, "ada", "admin")
            sub = await pushed(r, admin)
            await gateway(await caller(r, "gate", "gateway"))
            for role in ("viewer", "worker", "gateway"):
                other = await caller(r, f"a-{role}", role)
                assert (await refusal(other.test_delivery(sub, TestDelivery())))[0] in {403, 404}
            assert gate.asked == []
            developer = await caller(r, "dan", "developer")
            gate.says(202, status="accepted", execution_id="77", delivery_id="9")
            await developer.test_delivery(sub, TestDelivery(body="a body-canary"))
            (row,) = [one for one in await r.store.audit.read() if one.actor == "dan"]
            assert (row.action, row.resource, row.outcome) == ("subscription.test", sub, "ok")
            assert row.details == {"bytes": 13, "status": 202}
            told = repr([*lines, *await r.store.audit.read()])
            assert "body-canary" not in told
            assert SECRET not in told
    finally:
        root.removeHandler(handler)
