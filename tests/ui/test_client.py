"""The browser client in a browser, on every way that it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.servers.gateway import GatewayStack
    from tests.ui.conftest import Visitor

WAYS = ("ws", "sse", "eventsource")
CALLBACK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: callback, path: {path}}}
workload: {{request_id: "", gateway_url: "", value: 0}}
workflow:
  - step: start
    tool:
      kind: http
      method: POST
      url: "{{{{ workload.gateway_url }}}}/api/internal/progress"
      json:
        request_id: "{{{{ workload.request_id }}}}"
        step: start
        message: on the way
        progress: 0.5
    next: {{arcs: [{{step: report}}]}}
  - step: report
    tool:
      kind: http
      method: POST
      url: "{{{{ workload.gateway_url }}}}/api/internal/callback/async"
      json:
        request_id: "{{{{ workload.request_id }}}}"
        status: COMPLETED
        data: {{answer: "{{{{ workload.value }}}}"}}
"""
LARGE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: large, path: {path}}}
workflow:
  - step: start
    tool: {{kind: python, code: "return {{'text': 'x' * 5 * 1024 * 1024}}"}}
"""
FAILING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: failing, path: {path}}}
workflow:
  - step: broken
    tool: {{kind: python, code: "raise ValueError('no such parcel')"}}
"""
RUN = """async ([transport, path, variables]) => {
  const { NoetlClient } = await import("/client/noetl-client.js");
  const client = new NoetlClient({ transport });
  const told = { progress: [], frames: [] };
  client.on("frame", (frame) => told.frames.push(frame));
  try {
    const onProgress = (one) => told.progress.push([one.step, one.message, one.progress]);
    const options = { onProgress, timeoutMs: 60000 };
    told.data = await client.executePlaybookAsync(path, variables, options);
  } catch ({ name, code, message, data, requestId, executionId }) {
    told.error = { name, code, message, data, requestId, executionId };
  }
  client.close();
  return told;
}"""


@pytest.fixture(scope="module")
def playbooks(gateway_stack: GatewayStack) -> dict[str, str]:
    """The paths of playbooks, by what they do."""
    texts = {"callback": CALLBACK, "large": LARGE, "failing": FAILING}
    paths = {name: f"ui/{gateway_stack.name(name)}" for name in texts}
    for name, text in texts.items():
        gateway_stack.register(text.format(path=paths[name]))
    return paths


def run(page: Page, way: str, path: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the client is told of one run."""
    told: dict[str, Any] = page.evaluate(RUN, [way, path, variables or {}])
    return told


def results(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The results among the frames."""
    return [one["params"] for one in told["frames"] if one.get("method") == "playbook/result"]


@pytest.mark.parametrize("way", WAYS)
def test_a_step_that_posts_its_data_resolves_the_call(
    visitor: Visitor, playbooks: dict[str, str], way: str
) -> None:
    page = visitor.signed_in()
    told = run(page, way, playbooks["callback"], {"value": 42})
    assert told["data"] == {"answer": 42}
    assert told["progress"] == [["start", "on the way", 0.5]]
    assert [one["status"] for one in results(told)] == ["COMPLETED"]
    assert isinstance(results(told)[0]["executionId"], str)
    taken = {"ws": "/ws?", "sse": "/events?", "eventsource": "/events?"}[way]
    assert any(taken in url for url in visitor.requests)


@pytest.mark.parametrize("way", WAYS)
def test_a_large_result_is_fetched_by_the_client(
    visitor: Visitor, playbooks: dict[str, str], way: str
) -> None:
    page = visitor.signed_in()
    told = run(page, way, playbooks["large"])
    assert "error" not in told
    assert told["data"] == {"text": "x" * 5 * 1024 * 1024}
    (result,) = results(told)
    assert result["data"] is None
    assert result["dataRef"]["bytes"] > 5 * 1024 * 1024
    assert result["dataRef"]["ref"].startswith("noetl://")


def test_a_failing_playbook_rejects_with_its_step(
    visitor: Visitor, playbooks: dict[str, str]
) -> None:
    page = visitor.signed_in()
    error = run(page, "auto", playbooks["failing"])["error"]
    assert (error["name"], error["code"]) == ("NoetlError", -32000)
    assert error["data"]["step"] == "broken"
    assert error["requestId"]
    assert error["executionId"].isdigit()
