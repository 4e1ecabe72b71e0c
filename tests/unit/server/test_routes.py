"""What the door refuses, and how it says so."""

from __future__ import annotations

import msgspec
import pytest

from noetl.api.commands import Claim, Heartbeat, Held
from noetl.api.events import Reports
from noetl.api.http import AsgiTransport
from noetl.edge.errors import Forbidden
from noetl.server.access.entry import Caller
from tests.unit.server.rig import HEAD, ONE_STEP, many, rig, virtually


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


@virtually
async def test_ids_are_numbers_or_their_digits() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        (work,) = await r.claim()
        event = {
            "event_id": 77, "execution_id": int(work.execution_id), "event_type": "command.started",
            "step": "start", "command_id": int(work.command_id), "attempt": 1,
        }  # fmt: skip
        body = {"worker_id": "w", "pool": "shared", "events": [event]}
        _, told = await call(r, "POST", "/api/events/batch", msgspec.json.encode(body))
        assert [(item["event_id"], item["outcome"]) for item in told["results"]] == [
            ("77", "stored")
        ]
        for wrong in (True, 12.5, "0x10", [1], -1, 2**63, "1_0", "", None):
            changed = {**body, "events": [{**event, "event_id": wrong}]}
            answer, problem = await call(
                r, "POST", "/api/events/batch", msgspec.json.encode(changed)
            )
            assert (answer.status, problem["code"]) == (422, "invalid_id")
        held = {"command_id": int(work.command_id), "attempt": 1}
        beat = {"worker_id": "w", "commands": [held]}
        _, told = await call(r, "POST", "/api/commands/heartbeat", msgspec.json.encode(beat))
        assert told["extended"] == [work.command_id]


@virtually
async def test_reports_have_other_words_and_a_default_run() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        named = f"{run}:start:{work.command_id}"
        body = {
            "worker_id": "w", "pool": "shared", "execution_id": run, "free_slots": 1,
            "events": [
                {"event_id": "71", "name": "command.started", "command_id": named},
                {"event_id": "72", "name": "call.done", "command_id": named, "status": "success",
                 "context": {"rows": 3}, "created_at": "2026-01-01T01:00:00+01:00"},
                {"event_id": "73", "event_type": "playbook.completed"},
                {"event_id": "74", "event_type": "no.such"},
            ],
        }  # fmt: skip
        _, told = await call(r, "POST", "/api/events/batch", msgspec.json.encode(body))
        assert [(item["outcome"], item.get("code")) for item in told["results"]] == [
            ("stored", None), ("stored", None), ("rejected", "forbidden_event"),
            ("rejected", "unknown_event_type"),
        ]  # fmt: skip
        assert (await r.client.execution(run)).result == {"rows": 3}
        for field, value, code in (
            ("status", "green", "bad_status"),
            ("created_at", "noon", "bad_time"),
            ("name", "", "validation_failed"),
        ):
            event = {"event_id": "75", "name": "call.done", "command_id": "1", field: value}
            changed = {**body, "events": [event]}
            answer, problem = await call(
                r, "POST", "/api/events/batch", msgspec.json.encode(changed)
            )
            assert (answer.status, problem["code"]) == (422, code)


@virtually
async def test_a_single_event_is_stored_once() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        event = {
            "execution_id": run, "step": "start", "event_type": "call.done", "worker_id": "w",
            "command_id": work.command_id, "attempt": 1, "payload": {"rows": 3}, "event_id": "88",
        }  # fmt: skip
        outcomes = []
        for _ in range(3):
            _, told = await call(r, "POST", "/api/events", msgspec.json.encode(event))
            outcomes.append((told["outcome"], told["event_id"], told["claimed"]))
        assert outcomes == [(word, "88", []) for word in ("stored", "duplicate", "duplicate")]
        assert (await r.types(run)).count("call.done") == 1
        late = {**event, "event_id": "89"}
        _, told = await call(r, "POST", "/api/events", msgspec.json.encode(late))
        assert told["outcome"] == "late"
        del late["event_id"]
        _, told = await call(r, "POST", "/api/events", msgspec.json.encode(late))
        assert told["event_id"].isdigit()
        assert await codes(
            r,
            ("POST", "/api/events", msgspec.json.encode({**event, "execution_id": "9"})),
            (
                "POST",
                "/api/events",
                msgspec.json.encode({**event, "event_type": "playbook.completed"}),
            ),
            ("POST", "/api/events", msgspec.json.encode({**event, "event_type": "no.such"})),
        ) == [(404, "unknown_execution"), (403, "forbidden_event"), (422, "unknown_event_type")]


@virtually
async def test_an_error_of_a_single_event_is_the_error_of_its_step() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        event = {
            "execution_id": run, "event_type": "call.error", "worker_id": "w",
            "command_id": work.command_id, "error": {"kind": "x", "code": "boom", "message": "no"},
        }  # fmt: skip
        _, told = await call(r, "POST", "/api/events", msgspec.json.encode(event))
        assert told["outcome"] == "stored"
        assert (await r.client.status(run)).error["code"] == "boom"


@virtually
async def test_an_empty_batch_is_a_poll() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        told = await r.report(slots=2)
        assert (told.event_ids, len(told.claimed)) == ((), 1)


@virtually
async def test_a_single_command_is_shown_kept_and_given_back() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        path = f"/api/commands/{work.command_id}"
        _, told = await call(r, "GET", path)
        assert (told["status"], told["worker_id"], told["action"]) == ("CLAIMED", "w", "python")
        assert told["context"]["tool"] == {"kind": "python"}
        await r.report(r.event(work, "command.started"))
        assert (await call(r, "GET", path))[1]["status"] == "RUNNING"
        far = b'{"worker_id":"w","attempt":2147483648}'
        assert (await call(r, "POST", f"{path}/heartbeat", far))[0].status == 422
        _, beat = await call(r, "POST", f"{path}/heartbeat", b'{"worker_id":"w","attempt":1}')
        assert (beat["status"], beat["lease_until"] >= work.lease_until) == ("ok", True)
        assert await codes(
            r,
            ("POST", f"{path}/heartbeat", b'{"worker_id":"other","attempt":1}'),
            ("POST", "/api/commands/77/heartbeat", b'{"worker_id":"w","attempt":1}'),
            ("GET", "/api/commands/77", b""),
            ("GET", "/api/commands/x", b""),
        ) == [
            (409, "stale_attempt"), (404, "unknown_command"), (404, "unknown_command"),
            (422, "invalid_id"),
        ]  # fmt: skip
        answer, _ = await call(r, "POST", f"{path}/release", b'{"worker_id":"w","attempt":1}')
        assert answer.status == 200
        (again,) = await r.claim("other")
        await r.done(again, worker_id="other")
        assert await r.status(run) == "COMPLETED"
        assert (await call(r, "GET", path))[1]["status"] == "COMPLETED"
        assert await codes(r, ("POST", f"{path}/heartbeat", b'{"worker_id":"w","attempt":1}')) == [
            (409, "already_terminal")
        ]


@virtually
async def test_a_worker_acts_only_in_its_own_pool() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        foreign = Caller("w", ("worker",), "gpu")
        (work,) = await r.claim()
        for refused in (
            r.plane.claims.claim(Claim(worker_id="w", pool="shared"), foreign),
            r.plane.claims.claim_one(work.command_id, "w", foreign),
            r.plane.claims.command(work.command_id, foreign),
            r.plane.intake.report(Reports(worker_id="w", pool="shared"), foreign),
        ):
            with pytest.raises(Forbidden) as refusal:
                await refused
            assert refusal.value.code == "pool_forbidden"


@virtually
async def test_a_result_has_a_tag_and_is_read_in_parts() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        body = msgspec.json.encode({"name": "out/a", "data": [1, 2, 3]})
        answer, put = await call(r, "PUT", f"/api/result/{run}", body)
        assert (answer.status, put["size"], put["scope"]) == (201, 7, "execution")
        again, same = await call(r, "PUT", f"/api/result/{run}", body)
        assert (again.status, same["ref"]) == (201, put["ref"])
        path = f"/api/result/resolve?ref={put['ref']}"
        request = AsgiTransport(r.server.asgi).request
        whole = await request("GET", path)
        assert (whole.body, whole.headers["etag"]) == (b"[1,2,3]", f'"{put["sha256"]}"')
        for asked, status, part in (
            ("bytes=1-3", 206, b"1,2"), ("bytes=5-", 206, b"3]"), ("bytes=-2", 206, b"3]"),
            ("bytes=0-99", 206, b"[1,2,3]"), ("bytes=9-", 416, b""), ("lines=1-2", 200, b"[1,2,3]"),
        ):  # fmt: skip
            got = await request("GET", path, b"", {"Range": asked})
            assert (got.status, got.body) == (status, part)
        unchanged = await request("GET", path, b"", {"If-None-Match": whole.headers["etag"]})
        assert (unchanged.status, unchanged.body) == (304, b"")
        gone = put["ref"][:-4] + "0000"
        answer, problem = await call(r, "GET", f"/api/result/resolve?ref={gone}")
        assert (answer.status, problem["code"]) == (404, "result_gone")


@virtually
async def test_a_cancelled_run_gives_no_work_and_its_late_result_is_late() -> None:
    async with rig() as r:
        run = await r.start(many(2, 2))
        (mine,) = await r.claim()
        answer, told = await call(r, "POST", f"/api/executions/{run}/cancel", b"")
        assert (answer.status, told["status"], told["commands_cancelled"]) == (200, "CANCELLED", 2)
        assert (await call(r, "POST", f"/api/executions/{run}/cancel", b""))[1] == told
        assert await r.claim("other") == []
        beat = await r.client.heartbeat(
            Heartbeat(worker_id="w", commands=(Held(command_id=mine.command_id, attempt=1),))
        )
        assert beat.cancel == (mine.command_id,)
        reported = await r.done(mine)
        assert {item.outcome for item in reported.results} == {"late"}
