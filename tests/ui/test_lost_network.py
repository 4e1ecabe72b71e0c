"""A run that a page waits for while it has no network, on every way that the client knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.servers.gateway import GatewayStack
    from tests.ui.conftest import Visitor

WAYS = ("ws", "sse", "eventsource")
CONNECT = """async (transport) => {
  const { NoetlClient } = await import("/client/noetl-client.js");
  const kept = new Map();  // the page's own client has the storage of this tab
  const storage = {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => kept.set(key, value),
    removeItem: (key) => kept.delete(key),
  };
  const client = new NoetlClient({ transport, storage });
  window.client = client;
  window.told = { progress: [], ended: [], results: [], inits: [] };
  client.on("frame", ({ method, params }) => {
    if (method === "playbook/result") told.results.push(params.requestId);
  });
  client.on("init", ({ recovery }) => told.inits.push(recovery.recovered));
}"""
EXECUTE = """([path, hold]) => {
  const onProgress = (one) => told.progress.push(one);
  client.executePlaybookAsync(path, { hold }, { onProgress, timeoutMs: 60000 }).then(
    (data) => told.ended.push(data),
    ({ code, message }) => told.ended.push({ code, message }),
  );
}"""


def told(page: Page, name: str, count: int) -> list[Any]:
    """What the page has been told, once there is so much of it."""
    page.wait_for_function("([name, count]) => told[name].length >= count", arg=[name, count])
    found: list[Any] = page.evaluate("(name) => told[name]", name)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_the_data_of_a_run_arrives_once_over_a_lost_network(
    visitor: Visitor, gateway_stack: GatewayStack, waiting: str, way: str
) -> None:
    name = gateway_stack.name("offline")
    page = visitor.signed_in()
    page.evaluate(CONNECT, way)
    page.evaluate(EXECUTE, [waiting, gateway_stack.hold.url(name)])
    (progress,) = told(page, "progress", 1)
    seen = (progress["step"], progress["message"], progress["progress"])
    assert seen == ("begin", "half of it", 0.5)
    gateway_stack.hold.arrived(name)

    visitor.lose_network()
    page.wait_for_function("client.state === 'reconnecting'")
    gateway_stack.hold.release(name)
    assert gateway_stack.ended(progress["executionId"]) == "COMPLETED"
    assert told(page, "ended", 0) == []

    visitor.find_network()
    assert told(page, "ended", 1) == [{"parcels": 3}]
    assert told(page, "results", 1) == [progress["requestId"]]
    assert len(told(page, "inits", 2)) == 2

    # A second run is a fence: what the first still had to say would have come before its result.
    page.evaluate(EXECUTE, [waiting, gateway_stack.hold.url(name)])
    assert told(page, "ended", 2) == [{"parcels": 3}, {"parcels": 3}]
    second = told(page, "progress", 2)[1]["requestId"]
    assert told(page, "results", 2) == [progress["requestId"], second]
