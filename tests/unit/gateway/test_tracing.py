"""Traces: from the caller through the gateway to the server."""

from __future__ import annotations

import pytest

from noetl.gateway.declaring import Declared, name_of
from noetl.telemetry.traces.context import parsed
from noetl.telemetry.traces.tracer import Tracer
from tests.unit.gateway.rig import gateway_rig
from tests.unit.gateway.test_limits import Still

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/events", "events"),
        ("/api/auth/login", "auth.login"),
        ("/api/requests/{request_id}/result", "requests.result"),
        ("/", "ui"),
    ],
)
def test_a_span_has_the_name_of_its_route(path, name):
    assert name_of(path, Declared(about="Is.")) == name


def test_a_route_may_choose_the_name_of_its_span():
    assert name_of("/noetl/{path:path}", Declared(about="Is.", span="proxy")) == "proxy"


async def test_a_call_goes_on_with_the_trace_that_it_came_with():
    spans, heard = [], []

    async with gateway_rig(tracer=Tracer(Still(), spans.append)) as rig:
        ann = await rig.login()
        inner = rig.server.server.asgi

        async def listened(scope, receive, send):
            heard.append(dict(scope["headers"]))
            await inner(scope, receive, send)

        rig.gate.upstream._ways[0]._app = listened  # noqa: SLF001 - hears what the server hears
        spans.clear()
        heard.clear()
        await rig.caller(ann, traceparent=PARENT, tracestate="a=b").get("/noetl/auth/whoami?")
        (span,) = [one for one in spans if one.parent_id]
        assert span.name.startswith("gateway.")
        assert (span.context.trace_id, span.parent_id) == (TRACE, "00f067aa0ba902b7")
        sent = heard[-1]
        context = parsed(sent[b"traceparent"].decode())
        assert (context.trace_id, context.span_id) == (TRACE, span.context.span_id)
        assert sent[b"tracestate"] == b"a=b"


async def test_without_a_tracer_the_trace_still_goes_on():
    async with gateway_rig() as rig:
        heard = []
        ann = await rig.login()
        inner = rig.server.server.asgi

        async def listened(scope, receive, send):
            heard.append(dict(scope["headers"]))
            await inner(scope, receive, send)

        rig.gate.upstream._ways[0]._app = listened  # noqa: SLF001 - as above
        await rig.caller(ann, traceparent=PARENT).get("/noetl/auth/whoami")
        assert heard[-1][b"traceparent"] == PARENT.encode()


async def test_no_span_holds_a_query_or_a_token():
    spans = []
    async with gateway_rig(tracer=Tracer(Still(), spans.append)) as rig:
        ann = await rig.login()
        await rig.caller(ann).get("/noetl/executions?path=secret-path")
        await rig.caller().get("/events?session_token=nts_secret")
        told = str([(one.name, one.attributes, one.error) for one in spans])
        assert spans
        assert "secret" not in told
        assert ann.token not in told
