"""A collector for one person, and the tool that shows what it takes."""

from __future__ import annotations

import json
import sys

from noetl.api.sockets import SocketTransport
from noetl.telemetry.traces.__main__ import main
from noetl.telemetry.traces.collector import Collector
from noetl.telemetry.traces.context import Context
from noetl.telemetry.traces.otlp import PATH, encoded
from noetl.telemetry.traces.span import Span

TRACE = "0af7651916cd43dd8448eb211c80319c"
BODY = encoded([Span("it", Context(TRACE, "b7ad6b7169203331"), 1, end_ns=2)], {}, "1")
SEND = """
import sys, urllib.request
from noetl.settings import variable
url = variable("OTEL_EXPORTER_OTLP_ENDPOINT")
urllib.request.urlopen(urllib.request.Request(url + "/v1/traces", sys.argv[1].encode()))
raise SystemExit(3)
"""


async def test_spans_are_taken_and_nonsense_is_refused() -> None:
    with Collector() as collector:
        transport = SocketTransport(collector.url)
        try:
            collector.refusals = [503]
            statuses = [
                (await transport.request("POST", path, body)).status
                for path, body in [(PATH, BODY), (PATH, BODY), (PATH, b"{}"), ("/other", BODY)]
            ]
        finally:
            await transport.close()
    assert statuses == [503, 200, 400, 404]
    assert [span.name for span in collector.spans] == ["it"]
    assert [span.trace_id for span in collector.taken()] == [TRACE]
    assert collector.taken() == []


def test_the_traces_of_a_command_are_shown_when_it_has_ended(capfd) -> None:
    code = main(["--", sys.executable, "-c", SEND, json.dumps(json.loads(BODY))])
    assert code == 3
    assert capfd.readouterr().out.splitlines() == [
        f"trace {TRACE}: 1 spans, 0.0 ms",
        "  it () +0.0 ms, 0.0 ms",
    ]
