"""The routes of requests and callbacks, as HTTP answers."""

from __future__ import annotations

import json
from typing import Any

from noetl.api.gateway import Wish
from noetl.gateway.person import Person
from tests.unit.gateway.requests.desk import ONE
from tests.unit.gateway.rig import INTERNAL, GatewayRig, Signed, gateway_rig
from tests.unit.server.rig import virtually

CALLBACK = "/api/internal/callback"
ASYNC = "/api/internal/callback/async"
PROGRESS = "/api/internal/progress"
UNKNOWN = "3f0c5f1e-0000-4000-8000-000000000000"


async def started(rig: GatewayRig, who: Signed) -> tuple[str, str]:
    """A request of somebody and its callback token."""
    person = Person(
        user_id=who.user_id, subject="ann", roles=("developer",), session_id=who.session_id
    )
    made = await rig.gate.requests.start(person, Wish(name="demo/it", delivery="session"))
    secrets = rig.server.plane.runs.inputs._secrets  # noqa: SLF001 - what only workers see
    found = await secrets.of("default", made.execution_id)
    return made.request_id, str(found["callback_token"])


def told(answer: Any) -> tuple[int, Any]:
    body = json.loads(answer.body)
    return answer.status, body.get("code", body)


@virtually
async def test_17_callbacks_are_answered_as_the_contract_says() -> None:
    async with gateway_rig() as rig:
        who = await rig.login()
        await rig.playbook(ONE)
        name, token = await started(rig, who)
        anybody = rig.caller()
        shown = {"x-noetl-callback-token": token}

        async def post(body: Any, headers: Any = None, path: str = ASYNC) -> tuple[int, Any]:
            return told(await anybody.post(path, body, headers))

        assert await post({"request_id": name}) == (401, "callback_token_missing")
        wrong = {"x-noetl-callback-token": "wrong"}
        assert await post({"request_id": name}, wrong) == (403, "callback_token_wrong")
        other = {"request_id": name, "execution_id": "5"}
        assert await post(other, shown) == (409, "execution_mismatch")
        assert await post({"request_id": UNKNOWN}, shown) == (404, "unknown_request")
        weird = {"request_id": name, "status": "weird"}
        assert await post(weird, shown) == (422, "bad_status")
        large = {"request_id": name, "data": "x" * (9 * 1024 * 1024)}
        assert await post(large, shown) == (413, "body_too_large")
        assert await post(b"{", {"content-type": "application/json"}) == (400, "bad_json")
        assert await post({}, shown) == (422, "validation_failed")
        good = {"request_id": name, "status": "COMPLETED", "data": {"a": 1}, "extra": True}
        queued = (202, {"status": "queued", "clientDisconnected": True})
        assert await post(good, shown) == queued
        assert await post(good, shown) == (200, {"status": "duplicate"})
        counted = rig.gate.metrics.callback.value
        assert counted("async", "queued") == 1
        assert counted("async", "duplicate") == 1
        assert counted("async", "callback_token_missing") == 1
        assert counted("async", "body_too_large") == 1
        text = (await anybody.get("/metrics", {"authorization": f"Bearer {INTERNAL}"})).body
        assert token.encode() not in text


@virtually
async def test_the_other_two_callback_routes() -> None:
    async with gateway_rig() as rig:
        who = await rig.login()
        await rig.playbook(ONE)
        name, token = await started(rig, who)
        anybody, shown = rig.caller(), {"x-noetl-callback-token": token}
        going_on = {"request_id": name, "step": "a", "message": "half", "progress": 0.5}
        assert told(await anybody.post(PROGRESS, going_on, shown)) == (200, {"status": "sent"})
        beyond = {"request_id": name, "progress": 1.5}
        assert told(await anybody.post(PROGRESS, beyond, shown)) == (422, "validation_failed")
        absent = {"request_id": UNKNOWN}
        assert told(await anybody.post(PROGRESS, absent, shown)) == (404, "unknown_request")
        status, body = told(await anybody.post(CALLBACK, absent, shown))
        assert (status, body["delivered"]) == (200, False)
        service = {"authorization": f"Bearer {INTERNAL}"}
        status, body = told(await anybody.post(CALLBACK, {"request_id": name}, service))
        assert (status, body["delivered"]) == (200, True)
        assert told(await anybody.post(PROGRESS, going_on, shown)) == (200, {"status": "ignored"})


@virtually
async def test_callbacks_of_one_request_have_a_rate() -> None:
    async with gateway_rig() as rig:
        who = await rig.login()
        await rig.playbook(ONE)
        name, token = await started(rig, who)
        anybody, shown = rig.caller(), {"x-noetl-callback-token": token}
        answers = [await anybody.post(PROGRESS, {"request_id": name}, shown) for _ in range(60)]
        assert {answer.status for answer in answers} == {200, 429}
        assert rig.gate.metrics.callback.value("progress", "rate_limited") > 0


@virtually
async def test_a_request_is_made_as_on_every_other_way() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE)
        who = await rig.login()
        ann, viewer = rig.caller(who), rig.caller(await rig.login("eve", "viewer"))
        wish = {"name": "demo/it", "variables": {"a": 1}, "delivery": "session"}
        made = await ann.post("/api/requests", wish)
        body = json.loads(made.body)
        assert (made.status, set(body)) == (202, {"requestId", "executionId", "status"})
        assert body["status"] == "PENDING"
        assert made.headers["location"] == f"/api/requests/{body['requestId']}"
        status, found = told(await ann.get(made.headers["location"]))
        assert (status, found["executionId"]) == (200, body["executionId"])
        run = await rig.admin.execution(body["executionId"])
        assert run.path == "demo/it"
        path, as_json = "/api/requests", {"content-type": "application/json"}
        assert told(await viewer.post(path, wish)) == (403, "forbidden")
        assert told(await rig.caller().post(path, wish)) == (401, "missing_token")
        assert told(await ann.post(path, {"name": "no/such"})) == (404, "unknown_path")
        theirs = {**wish, "clientId": "of-others"}
        assert told(await ann.post(path, theirs)) == (403, "client_not_yours")
        assert told(await ann.post(path, b"{", as_json)) == (400, "bad_json")
        large = {**wish, "variables": {"a": "x" * 1_100_000}}
        assert told(await ann.post(path, large)) == (413, "body_too_large")
        for wrong in ({}, {"name": "demo/it", "variables": "x"}, {**wish, "timeoutSecs": 0}):
            assert told(await ann.post(path, wrong)) == (422, "validation_failed")


@virtually
async def test_a_request_with_one_key_is_made_once() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE)
        ann = rig.caller(await rig.login())
        wish, key = {"name": "demo/it"}, {"idempotency-key": "k1"}
        first = await ann.post("/api/requests", wish, key)
        in_body = await ann.post("/api/requests", {**wish, "idempotencyKey": "k1"})
        assert first.body == in_body.body
        other = await ann.post("/api/requests", {**wish, "variables": {"a": 2}}, key)
        assert told(other) == (409, "dedup_conflict")


@virtually
async def test_requests_have_the_rate_of_every_start() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE)
        ann = rig.caller(await rig.login())
        answers = [await ann.post("/api/requests", {"name": "demo/it"}) for _ in range(45)]
        assert {answer.status for answer in answers} == {202, 429}
        assert rig.gate.metrics.rate_limited.value("execute") > 0


@virtually
async def test_requests_are_polled_read_and_cancelled() -> None:
    async with gateway_rig() as rig:
        who = await rig.login()
        await rig.playbook(ONE)
        name, token = await started(rig, who)
        ann, nobody = rig.caller(who), rig.caller()
        path = f"/api/requests/{name}"
        assert (await nobody.get(path)).status == 401
        status, body = told(await ann.get(path))
        assert (status, body["requestId"], body["state"]) == (200, name, "running")
        assert set(body) == {
            "requestId", "executionId", "playbookPath", "state", "createdAt", "deadline",
        }  # fmt: skip
        assert told(await ann.get(f"{path}?wait=31")) == (422, "validation_failed")
        assert told(await ann.get(f"/api/requests/{UNKNOWN}")) == (404, "unknown_request")
        assert told(await ann.get(f"{path}/result")) == (404, "not_found")
        shown = {"x-noetl-callback-token": token}
        await nobody.post(ASYNC, {"request_id": name, "data": [1]}, shown)
        status, body = told(await ann.get(f"{path}?wait=5"))
        assert (status, body["state"], body["result"]) == (200, "completed", [1])
        assert (await ann.get(f"{path}/result")).body == b"[1]"
        listed = json.loads((await ann.get("/api/requests?limit=5")).body)
        assert [each["requestId"] for each in listed["items"]] == [name]
        status, body = told(await ann.post(f"{path}/cancel", {"reason": "enough"}))
        assert (status, body["status"]) == (200, "CANCELLED")
        bob = rig.caller(await rig.login("bob"))
        assert (await bob.get(path)).status == 200, "a developer may read every run"
