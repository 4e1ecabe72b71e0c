"""Tests of playbooks on the server, and the gates that they make."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from noetl.api.catalog import CaseResult, Register, RunTests
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.local.trials.player import TrialPlayer
from noetl.server.plays import Play, Script
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig, virtually

EXAMPLES = Path(__file__).parents[4] / "examples"
PATH = "demo/it"
TEST = "apiVersion: noetl.io/v2\nkind: PlaybookTest\nmetadata: {name: t, path: demo/t}\n"


def suite(*cases: str, gate: bool = False, path: str = "demo/t", of: str = PATH) -> Register:
    listed = ", ".join(f"{{name: {case}}}" for case in cases)
    spec = f"spec: {{playbook: {of}, gate: {str(gate).lower()}, cases: [{listed}]}}"
    return Register(content=TEST.replace("demo/t", path) + spec)


class ScriptedPlayer:
    """Lets cases fail that are named so, and playbooks that hold a word."""

    def __init__(self) -> None:
        self.asked: list[Play] = []

    async def play(self, asked: Play) -> list[CaseResult]:
        self.asked.append(asked)
        bad = "broken" in asked.playbook
        return [
            CaseResult(
                name=name,
                ok=not (bad or "fails" in name),
                suite=script.path,
                diff=("status: expected COMPLETED, found FAILED",) if bad else (),
            )
            for script in asked.scripts
            for name in script.cases
        ]


async def refused(call):
    with pytest.raises(Refused) as caught:
        await call
    return caught.value.problem.status, caught.value.code


@virtually
async def test_the_cases_of_a_document_or_of_a_playbook_are_played() -> None:
    player = ScriptedPlayer()
    async with rig(player=player) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        await r.client.register(suite("one", "it fails"))
        await r.client.register(suite("more", path="demo/more"))
        done = await r.client.run_tests("demo/t", RunTests())
        assert (done.passed, done.failed) == (1, 1)
        assert [(case.name, case.ok, case.suite) for case in done.cases] == [
            ("one", True, "demo/t"),
            ("it fails", False, "demo/t"),
        ]
        done = await r.client.run_tests(PATH, RunTests())
        assert [case.name for case in done.cases] == ["more", "one", "it fails"]
        chosen = await r.client.run_tests("demo/t", RunTests(cases=("one",)))
        assert (chosen.passed, chosen.failed) == (1, 0)
        unknown = r.client.run_tests("demo/t", RunTests(cases=("one", "nothing")))
        assert await refused(unknown) == (422, "validation_failed")
        assert player.asked[0].playbook == HEAD + ONE_STEP


@virtually
async def test_a_version_that_is_not_the_meaning_is_tested_by_its_number() -> None:
    player = ScriptedPlayer()
    async with rig(player=player) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        await r.client.register(Register(content=HEAD + TWO_STEPS + "# broken", activate=False))
        await r.client.register(suite("one"))
        assert (await r.client.run_tests("demo/t", RunTests())).failed == 0
        assert (await r.client.run_tests("demo/t", RunTests(version=2))).failed == 1
        assert await refused(r.client.run_tests("demo/t", RunTests(version=3))) == (
            404,
            "unknown_path",
        )


@virtually
async def test_what_cannot_be_played_is_refused() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        assert (await r.client.run_tests(PATH, RunTests())).cases == ()
        await r.client.register(suite("one"))
        assert await refused(r.client.run_tests(PATH, RunTests())) == (422, "not_executable")
        of_file = TEST + "spec: {file: ./it.yaml, cases: [{name: a}]}"
        await r.client.register(Register(content=of_file))
        assert await refused(r.client.run_tests("demo/t", RunTests())) == (422, "not_executable")
        assert await refused(r.client.run_tests("nowhere", RunTests())) == (404, "unknown_path")


@virtually
async def test_playbooks_that_are_called_come_along() -> None:
    player = ScriptedPlayer()
    async with rig(player=player) as r:
        call = "workflow: [{step: start, tool: {kind: playbook, path: %s}}]"
        many = "workflow: [{step: start, tool: {kind: playbooks, items: [{path: c}, {path: d}]}}]"
        for path, body in (("a", call % "b"), ("b", many), ("c", call % "a"), ("d", ONE_STEP)):
            await r.client.register(Register(content=HEAD.replace(PATH, path) + body))
        await r.client.register(suite("one", of="a"))
        await r.client.run_tests("demo/t", RunTests())
        heads = [text.splitlines()[2] for text in player.asked[0].called]
        assert heads == [f"metadata: {{name: demo, path: {path}}}" for path in ("b", "c", "d")]


@virtually
async def test_a_gate_keeps_back_what_does_not_pass() -> None:
    player = ScriptedPlayer()
    async with rig(player=player) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        await r.client.register(suite("one", gate=True))
        await r.client.register(suite("it fails", path="demo/open"))
        bad = Register(content=HEAD + TWO_STEPS + "# broken")
        answer = await AsgiTransport(r.server.asgi).request(
            "POST", "/api/catalog/register", msgspec.json.encode(bad)
        )
        problem = msgspec.json.decode(answer.body)
        assert (answer.status, problem["code"]) == (409, "test_gate")
        assert problem["errors"] == [
            {
                "pointer": "",
                "code": "test_failed",
                "suite": "demo/t",
                "case": "one",
                "message": "status: expected COMPLETED, found FAILED",
            }
        ]
        assert (await r.client.resolve(PATH)).version == 1
        waiting = msgspec.structs.replace(bad, activate=False)
        assert (await r.client.register(waiting)).version == 2
        assert await refused(r.client.promote(PATH, 2)) == (409, "test_gate")
        assert (await r.client.register(Register(content=HEAD + TWO_STEPS))).version == 3
        count = len(player.asked)
        assert not (await r.client.register(Register(content=HEAD + TWO_STEPS))).changed
        assert len(player.asked) == count
        assert (await r.client.promote(PATH, 1)).previous == 3


@virtually
async def test_without_a_player_a_gate_stays_closed() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        await r.client.register(suite("one", gate=True))
        made = r.client.register(Register(content=HEAD + TWO_STEPS))
        assert await refused(made) == (409, "test_gate")


# ------------------------------------------------------------------------- the child


def asked(playbook: str, test: str, cases: tuple[str, ...], called: tuple[str, ...] = ()) -> Play:
    return Play(
        path=PATH,
        playbook=playbook,
        called=called,
        scripts=(Script(path="demo/t", content=test, cases=cases),),
    )


def played(play: Play, **more) -> list[CaseResult]:
    return list(asyncio.run(TrialPlayer(must_be_shut_in=True, **more).play(play)))


STEPS = """
workflow:
  - step: start
    tool:
      kind: http
      url: https://shop.example.com
      spec: {retry: {attempts: 3, delay: 10m}}
    next: {arcs: [{step: child}]}
  - step: child
    tool: {kind: playbook, path: demo/child, input: {n: "{{ start.n }}"}}
result: "{{ child.n }}"
"""
CHILD = """
workload: {n: 0}
workflow:
  - step: start
    tool: {kind: noop}
result: {n: "{{ workload.n + 1 }}"}
"""
CASES = """
spec:
  playbook: demo/it
  cases:
    - name: waits and calls
      mocks:
        - {step: start, sequence: [{raise: {kind: server_error, status: 503}}, {return: {n: 6}}]}
      expect: {result: 7, calls: {start: 2}}
    - name: is wrong
      mocks: [{step: start, return: {n: 6}}]
      expect: {result: 8}
    - name: mocks nothing
    - {name: wants files, mocks: [{step: start, return_file: /etc/passwd}]}
    - {name: wants a network, allow: [http]}
"""
NAMES = ("waits and calls", "is wrong", "mocks nothing", "wants files", "wants a network")


def test_a_child_plays_the_cases_apart_from_the_server() -> None:
    child = HEAD.replace(PATH, "demo/child") + CHILD
    found = played(asked(HEAD + STEPS, TEST + CASES, NAMES, (child,)))
    assert [(case.name, case.ok) for case in found] == [(name, name == NAMES[0]) for name in NAMES]
    assert found[1].diff == ("result: expected 8, found 7",)
    assert found[2].diff[0].startswith("unmocked_tool: step `start` calls `http`")
    assert found[3].diff == ("return_file: `/etc/passwd` is not on the server; write the value",)
    assert found[4].diff == ("allow: `http` does not run on the server; mock the step",)


def test_a_case_that_does_not_end_in_time_has_failed() -> None:
    found = played(asked(HEAD + STEPS, TEST + CASES, NAMES[:1]), limit_s=0.05)
    assert [(case.ok, case.diff) for case in found] == [
        (False, ("the case did not end within 0.05 s of all cases",))
    ]
