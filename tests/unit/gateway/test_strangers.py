"""Callbacks of strangers: limited by their address, whatever they try, and nobody else is."""

from __future__ import annotations

import asyncio
import json

import pytest

from noetl.gateway.limits import SCOPES
from noetl.gateway.routes.callbacks import STRANGERS
from tests.unit.gateway.requests.test_routes import started
from tests.unit.gateway.rig import INTERNAL, gateway_rig
from tests.unit.gateway.test_hooks import GOOD, TOKEN, hooked, login
from tests.unit.server.rig import ONE_STEP, virtually

ASYNC, CALLBACK = "/api/internal/callback/async", "/api/internal/callback"
PROGRESS = "/api/internal/progress"
AT_ONCE = int(SCOPES[STRANGERS].burst)
UNKNOWN = "0" * 32


def shown(token):
    return {"x-noetl-callback-token": token}


async def flood(rig, path, body, headers=None, count=AT_ONCE):
    return [await rig.caller().post(path, body, headers) for _ in range(count)]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        (ASYNC, {"request_id": "{name}"}, {}, 401),
        (ASYNC, {"request_id": UNKNOWN}, shown("x"), 404),
        (ASYNC, b"{no json", shown("x"), 400),
        (ASYNC, {"what": 1}, shown("x"), 422),
        (CALLBACK, {"request_id": UNKNOWN}, shown("x"), 200),
        (CALLBACK, {"request_id": "{name}"}, {}, 401),
        (PROGRESS, {"request_id": "{name}"}, {}, 401),
        (PROGRESS, {"request_id": UNKNOWN, "progress": 7}, shown("x"), 422),
    ],
    ids=str,
)
def test_a_stranger_is_told_to_come_back_later(path, body, headers, status):
    @virtually
    async def story():
        async with gateway_rig() as rig:
            who = await rig.login()
            await rig.playbook(ONE_STEP)
            name, _ = await started(rig, who)
            sent = body
            if isinstance(body, dict) and body.get("request_id") == "{name}":
                sent = {**body, "request_id": name}
            answers = await flood(rig, path, sent, headers, 40)
            assert {one.status for one in answers} == {status}
            answers = await flood(rig, ASYNC, b"{", None, AT_ONCE)
            assert [one.status for one in answers] == [400] * (AT_ONCE - 40) + [429] * 40
            last = await rig.caller().post(path, sent, headers)
            assert last.status == 429
            assert int(last.headers["retry-after"]) >= 1
            assert json.loads(last.body)["code"] == "rate_limited"
            assert rig.gate.metrics.rate_limited.value(STRANGERS) > 0
            await asyncio.sleep(2)
            assert (await rig.caller().post(path, sent, headers)).status == status

    story()


@virtually
async def test_whoever_shows_the_right_token_is_let_in_from_the_same_address():
    async with gateway_rig() as rig:
        who = await rig.login()
        await rig.playbook(ONE_STEP)
        name, token = await started(rig, who)
        for count in range(3 * AT_ONCE):
            forged = {"request_id": name, "callback_token": f"forged-{count}"}
            await rig.caller().post(ASYNC, forged)
        body = {"request_id": name, "data": {"a": 1}}
        assert (await rig.caller().post(ASYNC, body, shown("forged"))).status == 429
        going_on = {"request_id": name, "progress": 0.5}
        assert (await rig.caller().post(PROGRESS, going_on, shown(token))).status == 200
        by_body = {**going_on, "callback_token": token}
        assert (await rig.caller().post(PROGRESS, by_body)).status == 200
        service = {"authorization": f"Bearer {INTERNAL}"}
        unknown = {"request_id": UNKNOWN, "data": 1}
        assert (await rig.caller().post(ASYNC, unknown, service)).status == 404
        answer = await rig.caller().post(ASYNC, body, shown(token))
        assert json.loads(answer.body)["status"] == "queued"


@virtually
async def test_good_callers_take_nothing_from_the_bucket_of_their_address():
    async with gateway_rig() as rig:
        who = await rig.login()
        await rig.playbook(ONE_STEP)
        for _ in range(6):
            name, token = await started(rig, who)
            for _ in range(40):
                answer = await rig.caller().post(PROGRESS, {"request_id": name}, shown(token))
                assert answer.status == 200
        assert rig.gate.metrics.rate_limited.value(STRANGERS) == 0
        assert (await rig.caller().post(ASYNC, {"request_id": UNKNOWN})).status == 401


@virtually
async def test_a_stranger_who_is_limited_does_not_reach_the_server():
    async with gateway_rig() as rig:
        await flood(rig, ASYNC, b"{", None, 2 * AT_ONCE)
        found, asked = rig.gate.requests.parts.rebuilds.of_request, []

        async def noted(request_id):
            asked.append(request_id)
            return await found(request_id)

        rig.gate.requests.parts.rebuilds.of_request = noted
        answers = await flood(rig, ASYNC, {"request_id": UNKNOWN}, shown("x"), 20)
    assert {one.status for one in answers} == {429}
    assert asked == []


@virtually
async def test_hooks_hear_of_their_playbooks_while_strangers_call():
    async with hooked(GOOD) as (rig, _):
        await flood(rig, CALLBACK, {"request_id": UNKNOWN}, shown("x"), 50)
        await flood(rig, ASYNC, b"{", None, 2 * AT_ONCE)
        answer = await login(rig)
    assert json.loads(answer.body)["session_token"] == TOKEN


@virtually
async def test_without_tokens_a_known_request_is_enough():
    async with gateway_rig(needs_callback_token=False) as rig:
        who = await rig.login()
        await rig.playbook(ONE_STEP)
        name, _ = await started(rig, who)
        await flood(rig, ASYNC, b"{", None, 2 * AT_ONCE)
        assert (await rig.caller().post(PROGRESS, {"request_id": name})).status == 200
        rig.bus.requests.close()
        assert (await rig.caller().post(PROGRESS, {"request_id": UNKNOWN})).status in {429, 503}
