"""Steps of kind http on a worker: retries that park, pages that resume, keys that stay."""

from __future__ import annotations

import asyncio

import pytest

from noetl.tools.http.egress import Egress
from noetl.tools.http.tool import HttpTool
from tests.servers.http_stage import FakeClock, reply, stage
from tests.unit.worker.fakes import FakeServer, Stage

RETRIED = """\
- step: s
  tool:
    kind: http
    method: POST
    url: "{url}/things"
    spec: {{retry: {{attempts: 5, delay: 1, jitter: 0}}}}
"""
PAGES = """\
- step: s
  tool:
    kind: http
    url: "{url}/p"
    paginate: {{next: "{{{{ page.body.next }}}}", items: $.items}}
    spec: {{retry: {{attempts: 5, delay: 0, jitter: 0}}}}
"""
JUMPING = """\
- step: s
  tool:
    - name: again
      kind: http
      method: POST
      url: "{url}/things"
      spec:
        policy:
          rules:
            - when: "{{{{ output.data.body.more }}}}"
              then: {{do: jump, to: again}}
"""


async def played(workflow, answer, attempts):
    """The reports of a command that is offered again from its checkpoint, and what was asked."""
    async with stage(answer) as at:
        server = FakeServer(workflow.format(url=at.base))
        tool = HttpTool(Egress(mode="open"), FakeClock())
        async with asyncio.timeout(30), Stage(server, tool):
            checkpoint = None
            for number in range(attempts):
                server.offer(server.command(attempt=number + 1, checkpoint=checkpoint))
                last = (await server.finals(number + 1))[number]
                checkpoint = last.payload.get("checkpoint")
        await tool.close()
    return server.ended, at.seen


def answering(*answers):
    left = list(answers)
    return lambda _seen: left.pop(0)


async def test_a_server_that_asks_for_time_gets_it_without_a_slot():
    busy = reply({}, 503, ("Retry-After", "30"))
    (parked, done), seen = await played(RETRIED, answering(busy, reply({"ok": 1})), 2)
    assert (parked.event_type, parked.payload["reason"]) == ("command.parked", "retry")
    assert parked.payload["delay_ms"] >= 30_000
    assert parked.payload["error"]["kind"] == "server_error"
    assert (done.event_type, done.payload["result"]["body"]) == ("call.done", {"ok": 1})
    assert len(seen) == 2


async def test_a_missing_page_fails_at_once_and_keeps_its_body():
    [failed], seen = await played(RETRIED, answering(reply({"why": "gone"}, 404)), 1)
    error = failed.payload["error"]
    assert (failed.event_type, error["kind"]) == ("call.error", "not_found")
    assert (error["details"]["body"], len(seen)) == ({"why": "gone"}, 1)


@pytest.mark.parametrize("headers", [(("Retry-After", "3"),), ()])
async def test_a_page_that_is_refused_is_where_it_goes_on(headers):
    failing = [2]

    def answer(seen):
        number = int(dict(seen.query).get("page", 1))
        if number in failing:
            failing.clear()
            return reply({"slow": "down"}, 429, *headers)
        page = {"items": [number * 10, number * 10 + 1]}
        return reply(page | ({"next": f"/p?page={number + 1}"} if number < 3 else {}))

    ended, seen = await played(PAGES, answer, 2 if headers else 1)
    assert ended[-1].payload["result"]["items"] == [10, 11, 20, 21, 30, 31]
    assert [dict(one.query).get("page", "1") for one in seen] == ["1", "2", "2", "3"]


async def test_a_write_keeps_its_key_over_attempts_and_tries():
    busy = reply({}, 503)
    ended, seen = await played(RETRIED, answering(busy, busy, reply({"ok": 1})), 3)
    assert [one.event_type for one in ended][-1] == "call.done"
    assert {one.headers["idempotency-key"] for one in seen} == {"81/s/-/1"}
    assert len(seen) == 3


async def test_another_pass_of_a_jump_is_another_write():
    more = [reply({"more": True}), reply({"more": False})]
    [done], seen = await played(JUMPING, answering(*more), 1)
    assert done.event_type == "call.done", done.payload
    first, second = (one.headers["idempotency-key"] for one in seen)
    assert (first, second) == ("81/s/-/1/again", "81/s/-/1/again~2")
