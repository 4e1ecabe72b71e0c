"""Deliveries to a gateway before a server, both in this process: what their runs see of them.

The numbers in names are those of the acceptance in gateway.md B9.
"""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from noetl.clock import SystemClock
from noetl.telemetry.traces.tracer import Tracer
from tests.servers.push import SECRET, body_of, pushed, signature, signed, virtually, yard

CANARIES = (
    "canary-authorization", "canary-cookie", "canary-api-key", "canary-proxy", "canary-session",
)  # fmt: skip
ROUTED = {
    "directives": [
        {"header": "x-route", "controls": "dispatch.playbook", "allowed": ["hooks/other"]}
    ],
    "trace": {"propagate": "w3c", "baggage_allowlist": ["tenant"]},
}


@virtually
async def test_b21_nothing_that_proves_who_sends_is_kept_anywhere(tmp_path, caplog):
    caplog.set_level("DEBUG")
    spans = []
    async with yard(tmp_path, tracer=Tracer(SystemClock(), spans.append)) as y:
        spool = {"mode": "buffer_and_ack", "backend": "local_disk", "path": "spool"}
        sub = await y.listen(spool=spool, headers=ROUTED)
        headers = dict(zip(
            ("authorization", "cookie", "x-api-key", "proxy-authorization", "x-session-token"),
            CANARIES, strict=True,
        ))  # fmt: skip
        body = b'{"n": 1}'
        assert (await y.send(body, {**signed(body), **headers})).both == (202, "accepted")
        await y.admin.steer_subscription(sub, "pause")
        body2 = b'{"n": 2}'
        assert (await y.send(body2, {**signed(body2), **headers})).both == (202, "spooled")
        assert (await y.send(b"{", {**signed(body2), **headers})).status == 401
        [run] = await y.runs()
        rows = [*(await y.admin.events(run.execution_id)).items, *await y.events(sub)]
        kept = [json.dumps(rows, default=str), caplog.text]
        kept.append(str((await y.admin.execution(run.execution_id)).workload))
        kept += [str(row) for row in await y.log(sub, 3)]
        kept += [f"{span.name} {span.attributes}" for span in spans]
        names = {span.name: span.attributes for span in spans}
        assert names["gateway.ingress"]["listener"] == "orders"
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        kept += [file.read_bytes().decode("latin-1") for file in files]
        assert any(str(file).find("spool") > 0 for file in files)
        secrets = (*CANARIES, SECRET, signature(body), signature(body2))
        for text in kept:
            for secret in secrets:
                assert secret not in text


@virtually
async def test_b22_a_push_of_pubsub_keeps_what_it_tells(tmp_path):
    async with pushed(tmp_path) as (y, _, _, push):
        message = {
            "data": base64.b64encode(b'{"n": 1}').decode(), "messageId": "m-1",
            "attributes": {"Kind": "order"}, "publishTime": "2023-11-14T22:13:20Z",
            "orderingKey": "k",
        }  # fmt: skip
        assert (await push(message=message, attempt=3)).status == 202
        [run] = await y.runs()
        workload = (await y.admin.execution(run.execution_id)).workload
        told = workload["message"]
        assert (workload["n"], told["data"], told["id"]) == (1, {"n": 1}, "m-1")
        assert told["attributes"] == {"Kind": "order"}
        assert told["headers"] == {"kind": "order"}
        about = told["metadata"]
        assert (about["orderingKey"], about["publishTime"], about["subscription"]) == (
            "k", "2023-11-14T22:13:20Z", "projects/p/subscriptions/s",
        )  # fmt: skip
        assert about["deliveryAttempt"] == 3
        again = await push(message=message)
        assert again.both == (202, "duplicate")
        bad = await push(message={**message, "messageId": "m-2", "data": "%%%"})
        assert bad.both == (400, "bad_envelope")
        assert len(await y.runs()) == 1


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@virtually
async def test_b23_a_trace_goes_on_in_the_run_and_only_listed_baggage_passes(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen(headers=ROUTED)
        body = b'{"n": 1}'
        await y.send(body, signed(body, traceparent=TRACE, baggage="tenant=a,secret=b"))
        body = b'{"n": 2}'
        zero = f"00-{'0' * 32}-{'0' * 16}-01"
        await y.send(body, signed(body, traceparent=zero, baggage="secret=b"))
        first, second = [await y.admin.execution(run.execution_id) for run in await y.runs()]
        assert first.trace["traceparent"].split("-")[1] == TRACE.split("-")[1]
        assert first.trace["baggage"] == {"tenant": "a"}
        assert "0" * 32 not in str(second.trace)
        assert "secret" not in str(second.trace)


SILENT = {"trace": {"propagate": "none"}}


def traced(number):
    """A trace of its own for each."""
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


async def ran(y, told):
    """The run of a delivery."""
    return await y.admin.execution(told.json["execution_id"])


@pytest.mark.parametrize("has_tracer", [False, True])
def test_b23_a_trace_does_not_go_on_where_a_listener_does_not_say_so(tmp_path, has_tracer):
    spans = []

    @virtually
    async def run():
        tracer = Tracer(SystemClock(), spans.append) if has_tracer else None
        async with yard(tmp_path, tracer=tracer) as y:
            spool = {"mode": "buffer_and_ack", "backend": "local_disk", "path": "spool"}
            for headers in (None, SILENT):
                await y.listen(spool=spool, **({} if headers is None else {"headers": headers}))
                body = body_of(str(headers))
                told = await y.send(body, signed(body, traceparent=TRACE, tracestate="a=b"))
                assert told.both == (202, "accepted"), told.body
                assert (await ran(y, told)).trace is None
            forged = await y.send(b"{}", {"x-signature": "0" * 64, "traceparent": TRACE})
            assert forged.both == (401, "bad_signature")
            assert TRACE.split("-")[1] not in str(y.behind.traces)

    run()
    ours = [span for span in spans if span.name == "gateway.ingress"]
    assert [span.parent_id for span in ours] == [""] * (3 if has_tracer else 0)
    assert TRACE.split("-")[1] not in str(spans)


@virtually
async def test_b23_deliveries_that_come_together_each_keep_their_own_trace(tmp_path):
    async with yard(tmp_path, tracer=Tracer(SystemClock(), [].append)) as y:
        await y.listen(headers=ROUTED)

        async def one(number):
            body = body_of(number)
            trace = {} if number % 2 else {"traceparent": traced(number)}
            return await y.send(body, signed(body, **trace))

        answers = await asyncio.gather(*map(one, range(20)))
        assert {told.both for told in answers} == {(202, "accepted")}
        found = [(await ran(y, told)).trace for told in answers]
        assert found == [None if n % 2 else {"traceparent": traced(n)} for n in range(20)]
        assert y.behind.seen["/api/execute/batch"] > 0
        paths = ("/api/execute", "/api/execute/batch")
        assert [one for one in y.behind.traces if one[0] in paths] == []


@virtually
async def test_the_span_that_hands_a_delivery_on_names_its_run(tmp_path):
    spans = []
    async with yard(tmp_path, tracer=Tracer(SystemClock(), spans.append)) as y:
        await y.listen()
        first, again = await y.send(b"{}"), await y.send(b"{}")
        assert (first.both, again.both) == ((202, "accepted"), (202, "duplicate"))
        run = first.json["execution_id"]
        told = [span.attributes for span in spans if span.name == "subscription.dispatch"]
        about = {"subscription": "hooks/orders", "messages": 1, "execution_id": run}
        assert told == [about, about]


PARENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: parent, path: {path}}}
workflow:
  - step: start
    tool: {{kind: playbook, path: hooks/one}}
"""


@virtually
async def test_b23_a_trace_reaches_the_children_of_the_run(tmp_path):
    async with yard(tmp_path) as y:
        await y.playbook("hooks/parent", PARENT)
        await y.listen(headers=ROUTED, dispatch="hooks/parent")
        body = b'{"n": 1}'
        told = await y.send(body, signed(body, traceparent=TRACE))
        await y.work()
        [child] = (await y.admin.children(told.json["execution_id"])).items
        found = await y.admin.execution(child.execution_id)
        assert (found.status, found.trace["traceparent"].split("-")[1]) == (
            "COMPLETED", TRACE.split("-")[1],
        )  # fmt: skip


@virtually
async def test_b24_handshakes_start_nothing_and_a_wrong_token_is_refused(tmp_path):
    async with yard(tmp_path) as y:
        await y.secret("meta", "canary-verify-token")
        slack = {"type": "slack", "secret": ["new"]}
        await y.listen("slack", verify=slack)
        meta = {"type": "meta", "verify_token": "meta"}
        await y.listen("meta", ingress={"challenge": meta})
        cloud = {"type": "cloudevents", "allowed_origins": ["events.example.org"]}
        await y.listen("cloud", ingress={"challenge": cloud})

        body = b'{"type": "url_verification", "challenge": "c-1"}'
        now = int(y.clock.now().timestamp())
        mark = signature(b"v0:%d:" % now + body)
        headers = {"x-slack-signature": f"v0={mark}", "x-slack-request-timestamp": str(now)}
        told = await y.send(body, headers, to="slack")
        assert (told.status, told.json) == (200, {"challenge": "c-1"})
        headers["x-slack-signature"] = f"v0={'0' * 64}"
        assert (await y.send(body, headers, to="slack")).status == 401

        asked = "hub.mode=subscribe&hub.challenge=c-2&hub.verify_token="
        told = await y.send(
            b"", {}, to="meta", method="GET", query=f"{asked}canary-verify-token".encode()
        )
        assert (told.status, told.body) == (200, b"c-2")
        told = await y.send(b"", {}, to="meta", method="GET", query=f"{asked}x".encode())
        assert told.status == 403
        origin = {"webhook-request-origin": "events.example.org"}
        told = await y.send(b"", origin, to="cloud", method="OPTIONS")
        assert (told.status, told.headers["webhook-allowed-origin"]) == (200, "events.example.org")
        for to, method in (("cloud", "GET"), ("slack", "OPTIONS"), ("meta", "PUT")):
            assert (await y.send(b"", {}, to=to, method=method)).status == 405, (to, method)
        for name in ("slack", "meta", "cloud"):
            assert await y.runs(name) == []


@virtually
async def test_b25_a_body_is_never_read_as_a_template(tmp_path):
    async with yard(tmp_path) as y:
        await y.listen()
        body = body_of({"n": "{{ 7*7 }}", "{{ keychain.x }}": "{% raw %}"})
        assert (await y.send(body)).status == 202
        await y.work()
        [run] = await y.runs()
        workload = (await y.admin.execution(run.execution_id)).workload
        assert workload["n"] == workload["message"]["data"]["n"] == "{{ 7*7 }}"
        assert workload["{{ keychain.x }}"] == "{% raw %}"
