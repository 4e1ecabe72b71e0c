"""The kind `gateway` with real processes: a page hears how far its run is, and its result early."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.web import Web
from tests.integration.test_gateway_requests import page
from tests.servers.gateway import GatewayStack
from tests.servers.stack import full_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.api.client import Client
    from tests.fakes.web import Asked
    from tests.integration.test_gateway_requests import Page
    from tests.servers.stack import FullStack

__all__ = ("full_stack",)

EXAMPLE = (Path(__file__).parents[2] / "examples" / "client_progress.yaml").read_text("utf-8")
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: told, path: PATH}\n"
CANARY = """
workflow:
  - step: learn
    tool: {kind: http, method: POST, url: "{{ workload.hold }}",
           json: {token: "{{ workload.callback_token }}"}}
    next: {arcs: [{step: going_on}]}
  - step: going_on
    tool: {kind: gateway, operation: progress, message: half way, progress: 0.5, data: 1}
    next: {arcs: [{step: answer}]}
  - step: answer
    tool: {kind: gateway, data: {n: 5}}
"""
REFUSED = """
workflow:
  - step: other
    tool: {kind: gateway, operation: progress, request_id: "{{ workload.hold }}", progress: 1}
    next: {arcs: [{step: answer, on: error, set: {ctx.why: "{{ output.error.code }}"}}]}
  - step: answer
    tool: {kind: gateway, status: FAILED, message: no stock, data: {left: 0}}
    next: {arcs: [{step: late}]}
  - step: late
    tool: {kind: gateway, operation: progress, progress: 1}
    next: {arcs: [{step: again}]}
  - step: again
    tool: {kind: gateway, data: {n: 2}}
result: {why: "{{ ctx.why }}", late: "{{ late }}", again: "{{ again }}"}
"""
GUARDED = """
executor: {spec: {pool: guarded}}
workflow:
  - step: elsewhere
    tool: {kind: http, url: "{{ workload.hold }}"}
    next: {arcs: [{step: answer, on: error, set: {ctx.why: "{{ output.error.code }}"}}]}
  - step: answer
    tool: {kind: gateway, data: {why: "{{ ctx.why }}"}}
"""
PARENT = """
workflow:
  - step: start
    tool:
      kind: playbook
      path: told/child
      input:
        request_id: "{{ workload.request_id }}"
        gateway_url: "{{ workload.gateway_url }}"
        callback_token: "{{ workload.callback_token }}"
"""
CHILD = """
workload: {request_id: "", gateway_url: ""}
workflow:
  - step: tell
    tool: {kind: gateway, data: {by: child}}
"""


BODIES = {
    "canary": CANARY, "refused": REFUSED, "guarded": GUARDED, "parent": PARENT, "child": CHILD,
}  # fmt: skip
_IDS = ("requestId", "executionId")


class Confidant(Web):
    """Is told the token, since nobody else may know it."""

    def answer(self, asked: Asked) -> dict[str, str]:
        """Nothing that could be kept."""
        del asked
        return {}


@pytest.fixture(scope="module")
def gateway(
    full_stack: FullStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayStack]:
    """A gateway whose playbooks send word."""
    made = GatewayStack(full_stack, tmp_path_factory.mktemp("gateway"))
    try:
        made.register(EXAMPLE)
        for path, body in BODIES.items():
            made.register(HEAD.replace("PATH", f"told/{path}") + body)
        yield made
    finally:
        made.stop()


async def kept(gateway: GatewayStack, path: str) -> tuple[Any, str]:
    """The last run of a playbook, and everything that the server tells of it."""

    async def read(client: Client) -> tuple[Any, str]:
        (item,) = (await client.executions(path=path, limit=1)).items
        run = await client.execution(item.execution_id)
        events = await client.events(item.execution_id, limit=1000)
        lines = await client.logs(item.execution_id)
        return run, f"{run} {json.dumps(events.items, default=str)} {lines}"

    return await asyncio.to_thread(gateway.ask, read)


def told(there: Page, request_id: str, method: str) -> list[dict[str, Any]]:
    """What a page heard of a request, without the ids of the run."""
    return [
        {name: value for name, value in each["params"].items() if name not in _IDS}
        for each in there.told
        if each["method"] == method and each["params"]["requestId"] == request_id
    ]


async def test_a_page_is_told_how_far_its_run_is_and_its_result_before_the_end(
    gateway: GatewayStack,
) -> None:
    async with page(gateway) as (here,), here.connected():
        request = await here.start("examples/client_progress", "")
        await here.until(
            ("playbook/progress", request, ""),
            ("playbook/result", request, ""),
            ("playbook/state", request, "playbook.completed"),
        )
    assert told(here, request, "playbook/progress") == [
        {"step": "half_way", "message": "the order is priced", "progress": 0.5}
    ]
    assert told(here, request, "playbook/result") == [
        {"status": "COMPLETED", "data": {"total_cents": 2150}}
    ]
    order = [each["method"] for each in here.told if each["method"] != "playbook/state"]
    assert order == ["playbook/progress", "playbook/result"]
    run, _ = await kept(gateway, "examples/client_progress")
    assert (run.status, run.result) == ("COMPLETED", {"booked_cents": 2150, "was_told": True})


async def test_the_token_is_in_no_event_line_result_or_message(gateway: GatewayStack) -> None:
    confidant = Confidant()
    try:
        async with page(gateway) as (here,), here.connected():
            request = await here.start("told/canary", confidant.url)
            await here.until(
                ("playbook/result", request, ""),
                ("playbook/state", request, "playbook.completed"),
            )
    finally:
        confidant.stop()
    token = confidant.asked[0].json["token"]
    run, log = await kept(gateway, "told/canary")
    said = "".join(gateway.process.lines) + "".join(gateway.stack.said.values())
    assert (len(token), run.status) == (43, "COMPLETED")
    assert run.workload["callback_token"] == "***"  # noqa: S105 - a mask
    assert "left out, since this progress has no place for it: `data`" in log
    assert told(here, request, "playbook/result") == [{"status": "COMPLETED", "data": {"n": 5}}]
    assert [text for text in (log, said, str(here.told)) if token in text] == []


async def test_a_failure_has_its_reason_and_what_comes_late_is_told_so(
    gateway: GatewayStack,
) -> None:
    async with page(gateway) as (here,), here.connected():
        first = await here.start("examples/client_progress", "")
        request = await here.start("told/refused", first)
        done = "playbook.completed"
        await here.until(
            ("playbook/state", first, done),
            ("playbook/result", request, ""),
            ("playbook/state", request, done),
        )
    run, _ = await kept(gateway, "told/refused")
    assert run.result == {
        "why": "callback_token_wrong",
        "late": {"delivered": False, "status": "ignored"},
        "again": {"delivered": True, "status": "duplicate"},
    }
    error = {"executionId": run.execution_id, "data": {"left": 0}}
    assert told(here, request, "playbook/result") == [
        {"status": "FAILED", "error": {"code": -32000, "message": "no stock", "data": error}}
    ]
    assert told(here, request, "playbook/progress") == []


async def test_a_child_sends_word_with_what_its_parent_hands_on(gateway: GatewayStack) -> None:
    async with page(gateway) as (here,), here.connected():
        request = await here.start("told/parent", "")
        await here.until(("playbook/result", request, ""))
    assert told(here, request, "playbook/result") == [
        {"status": "COMPLETED", "data": {"by": "child"}}
    ]


async def test_a_guarded_worker_reaches_the_gateway_that_its_operator_names(
    gateway: GatewayStack,
) -> None:
    more = {"NOETL_HTTP_EGRESS": "guarded", "NOETL_GATEWAY_URL": gateway.url}
    await asyncio.to_thread(gateway.stack.serve, "guarded", 1, **more)
    async with page(gateway) as (here,), here.connected():
        request = await here.start("told/guarded", gateway.hold.url("never"))
        await here.until(("playbook/result", request, ""))
    assert told(here, request, "playbook/result") == [
        {"status": "COMPLETED", "data": {"why": "egress_denied"}}
    ]
