"""A whole worker on a fake server, in virtual time."""

import asyncio

import msgspec
import pytest

from noetl.api.commands import Beat
from noetl.api.http import NoAnswer
from noetl.dsl.views import Outcome
from noetl.telemetry.redact import Redactor
from noetl.tools.base import Parked, ToolError
from noetl.worker.pace import MOST_AHEAD
from tests.unit.worker.fakes import FakeServer, Scripted, Stage, play, refusal


def payloads(reports):
    return [(report.event_type, report.payload) for report in reports]


def of_task(**more):
    return {"name": "", "kind": "noop", "try": 1, "status": "ok", "ms": 0.0, **more}


def test_a_command_is_executed_and_reported_with_its_start():
    async def scene():
        server = FakeServer()
        server.offer(server.command())
        async with Stage(server):
            await server.finals()
        return server

    server = play(scene)
    assert payloads(server.reports) == [
        ("command.started", {}),
        ("call.done", {"result": {"status": "ok"}, "tasks": [of_task()]}),
    ]
    assert len(server.batches) == 1
    assert (server.batches[0].worker_id, server.batches[0].pool) == ("w-1", "shared")


def test_work_in_the_answer_to_a_report_starts_at_once():
    async def scene():
        server = FakeServer()
        server.offer(*(server.command() for _ in range(20)))
        async with Stage(server, slots=1):
            await server.finals(20)
        return server

    server = play(scene)
    assert len(server.claims) <= 2
    assert len(server.batches) == 20
    asked = [batch.free_slots for batch in server.batches]
    assert asked[0] == 1  # nothing is known yet
    assert max(asked) == 1 + MOST_AHEAD  # they take no time: some are held beforehand


def test_an_idle_worker_parks_one_claim_and_soon_for_all_its_slots():
    async def scene():
        server = FakeServer()
        async with Stage(server, slots=3):
            await server.until(lambda: len(server.claims) == 3)
            return server.claims, asyncio.get_running_loop().time()

    claims, now = play(scene)
    assert [(claim.free_slots, claim.wait_seconds) for claim in claims] == [
        (2, 20.0),
        (3, 20.0),
        (3, 20.0),
    ]
    assert now == pytest.approx(40.0, abs=1)


def test_slots_bound_what_runs_and_what_is_asked_for():
    async def scene():
        server, go = FakeServer(), asyncio.Event()
        most = 0

        async def hold(_ctx):
            nonlocal most
            most = max(most, stage.worker.running)
            await go.wait()

        tool = Scripted(*[hold] * 5)
        server.offer(*(server.command() for _ in range(5)))
        async with Stage(server, tool, slots=2) as stage:
            await server.until(lambda: len(tool.contexts) == 2 or bool(server.batches))
            go.set()
            await server.finals(5)
            return most, max(claim.free_slots for claim in server.claims)

    assert play(scene) == (2, 1)


def test_a_long_tool_is_announced_before_it_ends():
    async def scene():
        server = FakeServer()
        tool = Scripted(lambda _ctx: asyncio.sleep(5))
        server.offer(server.command())
        async with Stage(server, tool):
            await server.until(lambda: bool(server.reports))
            early = asyncio.get_running_loop().time()
            await server.finals()
        return early, [report.event_type for report in server.reports], len(server.batches)

    early, told, batches = play(scene)
    assert early == pytest.approx(0.25, abs=0.01)
    assert (told, batches) == (["command.started", "call.done"], 2)


def test_a_tool_that_must_not_run_twice_starts_after_its_start_is_stored():
    async def scene():
        server = FakeServer()
        seen = []

        async def look(_ctx):
            seen.extend(report.event_type for report in server.reports)

        server.offer(server.command(idempotent=False))
        async with Stage(server, Scripted(look)):
            await server.finals()
        return seen

    assert play(scene) == ["command.started"]


def test_a_tool_whose_start_came_late_does_not_run():
    async def scene():
        server, tool = FakeServer(), Scripted()
        server.verdicts["command.started"] = ("late", "")
        server.offer(server.command(idempotent=False))
        async with Stage(server, tool) as stage:
            await server.until(lambda: bool(server.batches))
            await stage.emptied()
        return tool.contexts, server.reports

    assert play(scene) == ([], [])


def test_an_error_of_a_tool_is_a_call_error():
    async def scene():
        server = FakeServer()
        fault = ToolError("not_found", "HTTP_404", "gone", status_code=404)
        server.offer(server.command())
        async with Stage(server, Scripted(fault)):
            return (await server.finals())[0]

    report = play(scene)
    assert report.event_type == "call.error"
    assert report.payload["error"] == {
        "kind": "not_found", "code": "HTTP_404", "message": "gone", "step": "s",
        "details": {"status_code": 404},
    }  # fmt: skip
    assert report.payload["tasks"] == [of_task(status="error")]


def test_an_unknown_kind_is_a_config_error_without_a_start():
    async def scene():
        server = FakeServer("- step: s\n  tool: {kind: shell, command: ls}\n")
        server.offer(server.command())
        async with Stage(server):
            return (await server.finals())[0]

    error = play(scene).payload["error"]
    assert (error["kind"], error["code"]) == ("config", "unknown_kind")


def test_a_broken_template_fails_before_the_tool():
    async def scene():
        server = FakeServer("- step: s\n  tool: {kind: noop, message: '{{ nowhere.x }}'}\n")
        server.offer(server.command())
        tool = Scripted()
        async with Stage(server, tool):
            await server.finals()
        return tool.contexts, [report.event_type for report in server.reports]

    assert play(scene) == ([], ["call.error"])


PIPELINE = """\
- step: s
  tool:
  - {name: a, kind: noop, set: {ctx.seen: "{{ output.n }}"}}
  - name: b
    kind: noop
    input: {n: "{{ a.n }}"}
    spec: {retry: {attempts: 3, delay: 60, jitter: 0}}
"""
DOWN = ToolError("connection", "CONN_REFUSED", "refused")


def test_a_retry_with_delay_parks_and_the_resumed_command_repeats_nothing():
    async def scene():
        server = FakeServer(PIPELINE)
        tool = Scripted({"n": 4}, DOWN, {"ok": True})
        server.offer(server.command())
        async with Stage(server, tool):
            parked = (await server.finals())[0]
            resumed = server.command(attempt=2, checkpoint=parked.payload["checkpoint"])
            server.offer(resumed)
            done = (await server.finals(2))[1]
        return parked, done, [(ctx.task, dict(ctx.input)) for ctx in tool.contexts]

    parked, done, runs = play(scene)
    assert parked.event_type == "command.parked"
    assert {name: parked.payload[name] for name in ("reason", "delay_ms", "task")} == {
        "reason": "retry", "delay_ms": 60_000, "task": "b",
    }  # fmt: skip
    assert parked.payload["error"]["code"] == "CONN_REFUSED"
    assert (done.event_type, done.attempt) == ("call.done", 2)
    assert done.payload["result"] == {"a": {"n": 4}, "b": {"ok": True}}
    assert done.payload["ctx"] == {"seen": 4}
    assert runs == [("a", {}), ("b", {"n": 4}), ("b", {"n": 4})]


def test_a_parked_tool_gives_its_slot_back_and_takes_what_it_waited_for():
    async def scene():
        server = FakeServer(PIPELINE)
        request = {"children": [{"path": "c"}], "many": False}
        tool = Scripted({"n": 1}, Parked(reason="child", request=request))
        server.offer(server.command())
        async with Stage(server, tool):
            parked = (await server.finals())[0]
            checkpoint, awaited = parked.payload["checkpoint"], {"status": "ok", "data": 9}
            server.offer(server.command(attempt=2, checkpoint=checkpoint, awaited=awaited))
            done = (await server.finals(2))[1]
        return parked.payload, done.payload["result"], len(tool.contexts)

    parked, result, runs = play(scene)
    assert (parked["reason"], parked["request"], parked["task"]) == (
        "child", {"children": [{"path": "c"}], "many": False}, "b",
    )  # fmt: skip
    assert (result, runs) == ({"a": {"n": 1}, "b": 9}, 2)


def test_a_large_checkpoint_lies_apart_and_is_fetched_again():
    async def scene():
        server = FakeServer(PIPELINE)
        tool = Scripted({"n": "x" * 300_000}, DOWN, 1)
        server.offer(server.command())
        async with Stage(server, tool):
            parked = (await server.finals())[0]
            server.offer(server.command(attempt=2, checkpoint=parked.payload["checkpoint"]))
            done = (await server.finals(2))[1]
        return list(parked.payload["checkpoint"]), done.payload["reference"]["size"]

    keys, size = play(scene)
    assert keys == ["_ref"]
    assert size > 300_000


@pytest.mark.parametrize("over", [0, 1])
def test_64_kib_are_inline_and_one_byte_more_lies_apart(over):
    text = "x" * ((64 << 10) - 2 + over)

    async def scene():
        server = FakeServer()
        server.offer(server.command())
        async with Stage(server, Scripted(text)):
            return server, (await server.finals())[0].payload

    server, payload = play(scene)
    if not over:
        assert payload["result"] == text
        return
    assert "result" not in payload
    assert msgspec.json.decode(server.objects[payload["reference"]["ref"]]) == text


def test_nothing_secret_leaves_the_worker():
    async def scene():
        server = FakeServer(
            "- step: s\n  tool:\n"
            "  - {name: a, kind: noop, set: {ctx.x: '{{ output }} {{ workload.s }}'}}\n"
            '  - {name: b, kind: noop, spec: {policy: {rules: [{when: "{{ output.status =='
            " 'error' }}\", then: {do: fail, message: 'got {{ workload.s }}'}}]}}}\n"
        )

        async def talk(ctx):
            ctx.log("the key is hunter2222")
            ctx.progress(50, "with hunter2222")
            return "hunter2222"

        redactor = Redactor(["hunter2222"])
        bindings = {"workload": {"s": "hunter2222"}}
        server.offer(server.command(bindings=bindings), server.command(bindings=bindings))
        fault = ToolError("client_error", "x", "hunter2222", details={"k": "hunter2222"})
        tool = Scripted(talk, 1, 1, fault)
        async with Stage(server, tool, redactor=redactor, slots=1) as stage:
            await server.finals(2)
            stage.worker.drain()
            await stage.task
        return server

    server = play(scene)
    heard = msgspec.json.encode([server.reports, server.lines])
    assert b"hunter2222" not in heard
    assert [report.event_type for report in server.ended] == ["call.done", "call.error"]
    assert server.ended[0].payload["ctx"] == {"x": "*** ***"}
    assert b"got ***" in heard


def test_a_cancelled_command_ends_its_tool_and_reports_nothing():
    async def scene():
        server = FakeServer()
        tool = Scripted(lambda _ctx: asyncio.sleep(1000))
        first = server.command()
        server.offer(first)
        async with Stage(server, tool) as stage:
            await server.until(lambda: bool(server.reports))
            server.beat = Beat(cancel=(first.command_id,))
            await stage.emptied()
            when = asyncio.get_running_loop().time()
        return tool.cancels, server.ended, when

    cancels, ended, when = play(scene)
    assert (cancels, ended) == (1, [])
    assert when <= 6


def test_a_lost_command_ends_and_another_attempt_of_it_may_run_here():
    async def scene():
        server = FakeServer()
        tool = Scripted(lambda _ctx: asyncio.sleep(1000), 2)
        first = server.command()
        server.offer(first)
        async with Stage(server, tool) as stage:
            await server.until(lambda: bool(server.reports))
            server.beat = Beat(lost=(first.command_id,))
            server.offer(msgspec.structs.replace(first, attempt=2))
            done = (await server.finals())[0]
            return stage.worker.heart.lost, done.attempt, done.payload["result"]

    lost, attempt, result = play(scene)
    assert (attempt, result) == (2, 2)
    assert lost in {0, 1}


def test_a_cancel_in_the_answer_to_a_report_is_heeded():
    async def scene():
        server = FakeServer()
        tool = Scripted(lambda _ctx: asyncio.sleep(1000), 1)
        first = server.command()
        server.offer(first)
        async with Stage(server, tool) as stage:
            await server.until(lambda: bool(server.reports))
            server.cancelled = (first.command_id,)
            server.offer(server.command())
            await server.finals()
            await stage.emptied()
        return [report.command_id for report in server.ended]

    assert play(scene) == ["c2"]


def test_a_tool_that_ignores_its_end_loses_its_slot():
    async def scene():
        server, end = FakeServer(), asyncio.Event()

        async def stubborn(_ctx):
            while not end.is_set():
                try:
                    await end.wait()
                except asyncio.CancelledError:
                    continue

        first = server.command()
        server.offer(first)
        async with Stage(server, Scripted(stubborn, 1), slots=1) as stage:
            await server.until(lambda: bool(server.reports))
            server.beat = Beat(cancel=(first.command_id,))
            server.offer(server.command())
            await server.finals()
            end.set()
            await stage.emptied()
            await stage.worker.reporter.flushed()
            return stage.worker.held.abandoned, [report.command_id for report in server.ended]

    assert play(scene) == (1, ["c2"])


def test_a_report_survives_a_server_that_is_away():
    async def scene():
        server = FakeServer()
        server.fail("report", *[NoAnswer("away")] * 5, refusal(503), refusal(500))
        server.offer(server.command())
        async with Stage(server):
            await server.finals()
        return server

    server = play(scene)
    bodies = [[event.event_id for event in batch.events] for batch in server.batches]
    assert bodies == [bodies[0]] * 8
    assert [report.event_type for report in server.reports] == ["command.started", "call.done"]


def test_a_rejected_report_fails_its_command_and_not_its_neighbours():
    async def scene():
        server = FakeServer(PIPELINE + "- step: t\n  tool: {kind: noop}\n")
        server.verdicts["command.parked"] = ("rejected", "bad_park")
        server.offer(server.command("t"), server.command())
        async with Stage(server, Scripted(5, {"n": 1}, DOWN)):
            await server.finals(2)
        return sorted((report.step, report.event_type) for report in server.ended), server.ended

    kinds, ended = play(scene)
    assert kinds == [("s", "call.error"), ("t", "call.done")]
    error = next(report for report in ended if report.step == "s").payload["error"]
    assert (error["kind"], error["code"]) == ("internal", "report_rejected")


def test_a_batch_that_is_refused_is_halved_until_the_cause_is_alone():
    async def scene():
        server = FakeServer()
        server.fail("report", refusal(422), refusal(422), refusal(422))
        server.offer(server.command(), server.command())
        async with Stage(server):
            await server.finals(2)
        return server

    server = play(scene)
    assert [len(batch.events) for batch in server.batches][:3] == [4, 2, 1]
    assert sorted(report.command_id for report in server.ended) == ["c1", "c2"]


@pytest.mark.parametrize("fault", [refusal(429, retry_after=3), refusal(503), NoAnswer("x"),
                                   refusal(403), refusal(422)])  # fmt: skip
def test_a_claim_that_fails_is_made_again_after_a_while(fault):
    async def scene():
        server = FakeServer()
        server.fail("claim", *[fault] * 3)
        server.offer(server.command())
        async with Stage(server):
            await server.finals()
        return asyncio.get_running_loop().time(), len(server.claims)

    passed, claims = play(scene)
    assert claims <= 5
    assert passed >= (9 if getattr(fault, "problem", None) and fault.problem.retry_after else 0.3)


def test_a_claim_that_is_never_parked_does_not_become_a_busy_loop():
    class Hasty(FakeServer):
        async def claim(self, body):
            return await super().claim(msgspec.structs.replace(body, wait_seconds=0.0))

    async def scene():
        server = Hasty()
        async with Stage(server):
            await asyncio.sleep(60)
        return len(server.claims)

    assert play(scene) < 40


def test_a_playbook_is_read_once_and_an_unreadable_one_fails_the_command():
    async def scene():
        server = FakeServer()
        server.offer(*(server.command() for _ in range(3)))
        async with Stage(server, slots=1):
            await server.finals(3)
            server.content = "kind: Playbook"
            server.offer(server.command(catalog_id="8"), server.command("gone"))
            await server.finals(5)
        return server

    server = play(scene)
    assert server.entries == 2
    errors = [report.payload["error"] for report in server.ended[3:]]
    assert [error["code"] for error in errors] == ["invalid_playbook", "unknown_step"]


def test_a_command_whose_playbook_cannot_be_had_is_given_back():
    async def scene():
        server = FakeServer()
        server.fail("entry", *[NoAnswer("away")] * 100)
        server.offer(server.command())
        async with Stage(server):
            await server.until(lambda: bool(server.released))
            return server.released, server.reports, asyncio.get_running_loop().time()

    released, reports, now = play(scene)
    assert [(one.command_id, one.attempt) for one in released[0].commands] == [("c1", 1)]
    assert reports == []
    assert 30 <= now < 45


def test_a_drained_worker_finishes_what_runs_and_leaves():
    async def scene():
        server = FakeServer()

        async def slow(ctx):
            ctx.log("a line")
            await asyncio.sleep(10)

        server.offer(server.command())
        async with Stage(server, Scripted(slow)) as stage:
            await server.until(lambda: bool(server.reports))
            stage.worker.drain()
            server.offer(server.command())
            await stage.task
            assert stage.worker.idle
        return server

    server = play(scene)
    assert [report.command_id for report in server.ended] == ["c1"]
    assert (server.left, [line.text for line in server.lines]) == (["w-1"], ["a line"])
    assert [one.command_id for one in server.released[0].commands] == ["c2"]


def test_a_drain_gives_back_what_outlasts_the_grace():
    async def scene():
        server = FakeServer()
        server.offer(server.command())
        tool = Scripted(lambda _ctx: asyncio.sleep(600))
        async with Stage(server, tool) as stage:
            await server.until(lambda: bool(server.reports))
            stage.worker.drain()
            await stage.task
        return server.released, server.ended, asyncio.get_running_loop().time()

    released, ended, now = play(scene)
    assert [one.command_id for one in released[0].commands] == ["c1"]
    assert ended == []
    assert 25 <= now < 36


def test_the_server_may_ask_for_a_drain():
    async def scene():
        server = FakeServer()
        server.beat = Beat(drain=True)
        async with Stage(server) as stage:
            await stage.task
        return server.left

    assert play(scene) == ["w-1"]


def test_an_unknown_worker_registers_again():
    async def scene():
        server = FakeServer()
        server.fail("heartbeat", refusal(404, "unknown_worker"))
        async with Stage(server):
            await server.until(lambda: len(server.entered) == 2)
        return server.entered

    assert play(scene) == ["w-1", "w-1"]


def test_beats_carry_a_checkpoint_once_after_a_task_with_effects():
    async def scene():
        server = FakeServer(PIPELINE)
        server.offer(server.command())
        tool = Scripted({"n": 1}, lambda _ctx: asyncio.sleep(20))
        async with Stage(server, tool):
            await server.until(lambda: len(server.beats) == 3)
        return [beat["commands"] for beat in server.beats]

    first, second, third = play(scene)
    assert first[0]["checkpoint"]["results"] == {"a": {"n": 1}}
    assert second == third == [{"command_id": "c1", "attempt": 1}]


def test_beats_carry_what_a_running_task_keeps():
    async def scene():
        server = FakeServer()
        server.offer(server.command())

        async def keeping(ctx):
            ctx.keep({"query": "q-1"})
            await asyncio.sleep(20)

        async with Stage(server, Scripted(keeping)):
            await server.until(lambda: len(server.beats) == 2)
        return [beat["commands"] for beat in server.beats]

    first, second = play(scene)
    assert first[0]["checkpoint"]["kept"] == {"query": "q-1"}
    assert second == [{"command_id": "c1", "attempt": 1}]


def test_no_task_starts_while_the_leases_are_in_doubt():
    async def scene():
        server = FakeServer(PIPELINE)
        server.fail("heartbeat", *[NoAnswer("away")] * 5)
        server.offer(server.command())
        loop = asyncio.get_running_loop()
        begun = []

        async def second(_ctx):
            begun.append(loop.time())

        async with Stage(server, Scripted(lambda _ctx: asyncio.sleep(16, {"n": 1}), second)):
            await server.finals()
        return begun[0]

    assert play(scene) == pytest.approx(30, abs=1)


def test_a_deadline_of_the_command_bounds_its_tool_whatever_the_clock_here_says():
    async def scene():
        server = FakeServer()
        lease = "1999-12-31T23:59:15.000000Z"
        server.offer(server.command(deadline="1999-12-31T23:59:07.000000Z", lease_until=lease))
        async with Stage(server, Scripted(lambda _ctx: asyncio.sleep(1000))):
            report = (await server.finals())[0]
            return report.payload["error"]["code"], asyncio.get_running_loop().time()

    code, now = play(scene)
    assert code == "tool_timeout"
    assert now == pytest.approx(7, abs=0.1)


@pytest.mark.parametrize(("timeout", "code", "took"), [("null", "tool_timeout", 300),
                                                       ("2", "tool_timeout", 2),
                                                       ("3601", "invalid_config", 0)])  # fmt: skip
def test_every_try_has_a_limit(timeout, code, took):
    async def scene():
        server = FakeServer(f"- step: s\n  tool: {{kind: noop, timeout: {timeout}}}\n")
        server.offer(server.command())
        async with Stage(server, Scripted(lambda _ctx: asyncio.sleep(5000))):
            report = (await server.finals())[0]
            return report.payload["error"]["code"], asyncio.get_running_loop().time()

    found, now = play(scene)
    assert (found, round(now)) == (code, took)


def test_a_pipeline_ends_after_as_many_task_runs_as_the_worker_allows():
    async def scene():
        again = "{policy: {rules: [{then: {do: jump, to: one}}]}}"
        server = FakeServer(f"- step: s\n  tool:\n    - one: {{kind: noop, spec: {again}}}\n")
        server.offer(server.command())
        async with Stage(server, most_runs=7):
            report = (await server.finals())[0]
            return report.payload["error"]["code"], report.payload["error"]["message"]

    assert play(scene) == ("pipeline_limit", "the pipeline ran 7 tasks and did not end")


def test_progress_is_told_once_a_second_and_the_latest_wins():
    async def scene():
        server = FakeServer()

        async def work(ctx):
            for number in range(1000):
                ctx.progress(number / 10, "on")
            await asyncio.sleep(1.5)
            ctx.progress(100, "nobody waits for this")

        server.offer(server.command())
        async with Stage(server, Scripted(work)):
            await server.finals()
        return [one.payload["percent"] for one in server.reports if "percent" in one.payload]

    assert play(scene) == [0.0, 99.9]


def test_a_result_without_a_form_in_json_fails_with_its_type():
    async def scene():
        server = FakeServer()
        server.offer(server.command())
        async with Stage(server, Scripted(Outcome(data={"x": object()}))):
            return (await server.finals())[0].payload["error"]

    error = play(scene)
    assert (error["kind"], error["code"]) == ("schema", "not_serialisable")


def test_a_cancelled_worker_stops_its_tools():
    async def scene():
        server = FakeServer()
        tool = Scripted(lambda _ctx: asyncio.sleep(1000))
        server.offer(server.command())
        async with Stage(server, tool):
            await server.until(lambda: bool(server.reports))
        return tool.cancels, server.ended

    assert play(scene) == (1, [])


def test_a_command_whose_report_is_on_the_way_is_not_run_again():
    async def scene():
        server, tool = FakeServer(), Scripted()
        command = server.command()
        server.gate = asyncio.Event()
        server.offer(command)
        async with Stage(server, tool):
            await server.until(lambda: bool(server.claims))
            server.offer(command)
            server.gate.set()
            await server.finals()
            await asyncio.sleep(5)
        return len(tool.contexts), len(server.ended)

    assert play(scene) == (1, 1)


def test_a_result_that_the_store_refuses_fails_its_command():
    async def scene():
        server = FakeServer()
        server.fail("put_result", NoAnswer("away"), refusal(413, "too_large"))
        server.offer(server.command())
        async with Stage(server, Scripted("x" * 100_000)):
            return (await server.finals())[0].payload["error"]

    error = play(scene)
    assert (error["kind"], error["code"]) == ("storage_quota", "too_large")


@pytest.mark.parametrize(("size", "is_inline"), [(1022, True), (1023, False)])
def test_a_worker_may_keep_less_in_its_reports(size, is_inline):
    async def scene():
        server = FakeServer()
        server.offer(server.command())
        async with Stage(server, Scripted("x" * size), inline_bytes=1024):
            return (await server.finals())[0].payload

    assert ("result" in play(scene)) is is_inline


def test_a_result_without_the_store_that_it_wants_is_a_fault_of_the_configuration():
    async def scene():
        server = FakeServer()
        server.fail("put_result", refusal(422, "no_object_store"))
        server.offer(server.command())
        async with Stage(server, Scripted("x" * 100_000)):
            return (await server.finals())[0].payload["error"]

    error = play(scene)
    assert (error["kind"], error["code"]) == ("config", "no_object_store")


def test_a_drain_gives_back_with_the_checkpoint():
    async def scene():
        server = FakeServer(PIPELINE)
        server.offer(server.command())
        tool = Scripted({"n": 1}, lambda _ctx: asyncio.sleep(600))
        async with Stage(server, tool, drain_s=1) as stage:
            await server.until(lambda: bool(server.reports))
            stage.worker.drain()
            await stage.task
        return server.released[0].commands[0].checkpoint

    assert play(scene)["results"] == {"a": {"n": 1}}


def test_a_defect_of_the_worker_fails_the_command_and_not_the_worker(caplog):
    async def scene():
        server = FakeServer()
        server.offer(server.command(checkpoint={"task": "nowhere"}), server.command())
        async with Stage(server, slots=1):
            first, second = await server.finals(2)
            return first.payload["error"]["kind"], second.event_type

    assert play(scene) == ("internal", "call.done")
    assert "a command failed in the worker" in caplog.text


def test_registering_waits_for_the_server_and_gives_up_when_refused():
    async def scene():
        server = FakeServer()
        server.fail("register_worker", NoAnswer("away"), refusal(403, "pool_forbidden"))
        async with Stage(server) as stage:
            return await asyncio.gather(stage.task, return_exceptions=True)

    assert [fault.code for fault in play(scene)] == ["pool_forbidden"]


def test_a_report_that_nobody_answers_is_sent_again():
    async def scene():
        server = FakeServer()
        server.offer(server.command())
        server.gate = asyncio.Event()
        async with Stage(server):
            await asyncio.sleep(5)
            server.gate, _silent = None, server.gate  # the connection stays dead, the server lives
            await server.finals()
        return asyncio.get_running_loop().time()

    assert 10 <= play(scene) < 21
