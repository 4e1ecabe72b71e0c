"""What the door refuses, and how it says so."""

from __future__ import annotations

import msgspec

from noetl.api.http import AsgiTransport
from tests.unit.server.rig import HEAD, ONE_STEP, rig, virtually


async def call(r, method: str, path: str, body: bytes = b"", **headers: str):
    answer = await AsgiTransport(r.server.asgi).request(method, path, body, headers)
    return answer, msgspec.json.decode(answer.body) if answer.body else None


async def codes(r, *calls: tuple[str, str, bytes]) -> list[tuple[int, str]]:
    found = []
    for method, path, body in calls:
        answer, problem = await call(r, method, path, body)
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["status"] == answer.status
        found.append((answer.status, problem["code"]))
    return found


@virtually
async def test_bodies_that_cannot_be_meant_are_refused_with_a_code() -> None:
    async with rig() as r:
        assert await codes(
            r,
            ("POST", "/api/execute", b"{"),
            ("POST", "/api/execute", b'{"path":"a","colour":1}'),
            ("POST", "/api/execute", b'{"path":7}'),
            ("POST", "/api/execute", b"{}"),
            ("POST", "/api/execute", b'{"path":"a","catalog_id":"1"}'),
            ("POST", "/api/execute", b'{"path":"nowhere"}'),
            ("POST", "/api/execute", b'{"path":"a","version":"x"}'),
            ("POST", "/api/execute", b'{"path":"a","execution_pool":"No Pool"}'),
            ("POST", "/api/execute", b'{"path":"a","priority":10}'),
            ("POST", "/api/execute", b'{"catalog_id":"0x1"}'),
            ("POST", "/api/execute", b'{"path":"a","dedup":{"key":""}}'),
            ("POST", "/api/execute", b'{"path":"a","parent_execution_id":"5"}'),
        ) == [
            (400, "bad_json"), (422, "unknown_field"), (422, "validation_failed"),
            (422, "validation_failed"), (422, "validation_failed"), (404, "unknown_path"),
            (422, "validation_failed"), (422, "pool_invalid"), (422, "validation_failed"),
            (422, "invalid_id"), (422, "validation_failed"), (404, "unknown_execution"),
        ]  # fmt: skip


@virtually
async def test_paths_and_queries_that_do_not_exist_are_problems_too() -> None:
    async with rig() as r:
        assert await codes(
            r,
            ("GET", "/api/executions/0x10", b""),
            ("GET", "/api/executions/12", b""),
            ("GET", "/api/executions/12/events", b""),
            ("GET", "/api/executions/12/events?colour=1", b""),
            ("GET", "/api/executions/12/events?limit=many", b""),
            ("GET", "/api/executions/12/why", b""),
            ("GET", "/api/executions/12/logs", b""),
            ("GET", "/api/executions/12/steps/a/result", b""),
            ("POST", "/api/executions/12/rerun", b""),
            ("GET", "/api/catalog/resource", b""),
            ("GET", "/api/catalog/resource?catalog_id=9", b""),
            ("GET", "/api/result", b""),
            ("GET", "/api/result?ref=x", b""),
            ("PUT", "/api/result/12?step=a", b"1"),
            ("GET", "/api/nothing", b""),
            ("DELETE", "/api/execute", b""),
        ) == [
            (422, "invalid_id"), (404, "unknown_execution"), (404, "unknown_execution"),
            (422, "unknown_parameter"), (422, "validation_failed"), (404, "unknown_execution"),
            (404, "unknown_execution"), (404, "unknown_execution"), (404, "unknown_execution"),
            (422, "validation_failed"), (404, "unknown_path"), (400, "bad_ref"),
            (400, "bad_ref"), (404, "unknown_execution"), (404, "not_found"),
            (405, "bad_method"),
        ]  # fmt: skip


@virtually
async def test_an_unknown_field_names_its_place() -> None:
    async with rig() as r:
        body = b'{"worker_id":"w","pool":"p","events":[{"event_id":"1","execution_id":"1",'
        body += b'"event_type":"x","step":"s","command_id":"1","attempt":1,"colour":2}]}'
        _, problem = await call(r, "POST", "/api/events/batch", body)
        assert problem["errors"] == [{"pointer": "/events/0/colour", "code": "unknown_field"}]


@virtually
async def test_too_much_is_too_much() -> None:
    async with rig() as r:
        event = {
            "event_id": "1", "execution_id": "1", "event_type": "call.done", "step": "s",
            "command_id": "1", "attempt": 1,
        }  # fmt: skip
        batch = {"worker_id": "w", "pool": "p", "events": [event] * 257}
        lines = {"entries": [
            {"execution_id": "1", "command_id": "1", "attempt": 1, "n": 1, "ts": "", "text": ""}
        ] * 1001}  # fmt: skip
        assert await codes(
            r,
            ("POST", "/api/events/batch", msgspec.json.encode(batch)),
            ("POST", "/api/logs/batch", msgspec.json.encode(lines)),
            ("POST", "/api/execute", b" " * (2 * 1024 * 1024 + 1)),
        ) == [(422, "batch_size_invalid"), (422, "batch_size_invalid"), (413, "body_too_large")]


@virtually
async def test_a_document_is_kept_once_and_a_broken_one_never() -> None:
    async with rig() as r:
        content = HEAD + ONE_STEP
        body = msgspec.json.encode({"content": content})
        first, made = await call(r, "POST", "/api/catalog/register", body)
        again, same = await call(r, "POST", "/api/catalog/register", body)
        crlf = msgspec.json.encode({"content": content.replace("\n", "\r\n")})
        _, third = await call(r, "POST", "/api/catalog/register", crlf)
        assert (first.status, again.status) == (201, 200)
        assert (made["changed"], same["changed"], third["changed"]) == (True, False, False)
        assert {item["catalog_id"] for item in (made, same, third)} == {made["catalog_id"]}
        broken = msgspec.json.encode({"content": HEAD + "workflow: 7\n"})
        answer, problem = await call(r, "POST", "/api/catalog/register", broken)
        assert (answer.status, problem["code"]) == (422, "invalid_playbook")
        assert problem["errors"][0]["line"] == 4
        entry = await r.client.resolve("demo/it", 1)
        assert entry == await r.client.entry(made["catalog_id"])
        assert entry.content == content


@virtually
async def test_a_taken_command_says_when_to_come_back() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        (mine,) = await r.claim()
        path = f"/api/commands/{mine.command_id}/claim"
        answer, problem = await call(r, "POST", path, b'{"worker_id":"other"}')
        assert (answer.status, answer.headers["retry-after"]) == (409, "15")
        assert problem["detail"] == f"worker w holds attempt 1 until {mine.lease_until}"
