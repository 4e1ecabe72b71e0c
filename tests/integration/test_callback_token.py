"""A run that sends word to its client: the worker proves it, and only there."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from noetl.api.executions import Execute, Started
from tests.integration.test_secret_delivery import site

TOKEN = "callback-canary-5c1"  # noqa: S105 - the canary of these tests
NAME = "X-NoETL-Callback-Token"


class Listening(ThreadingHTTPServer):
    """A site that keeps what it hears, and may send away who comes."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str | None]] = []
        self.elsewhere = ""
        listening = self

        class Remote(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                listening.heard.append((self.path, self.headers.get(NAME)))
                self.send_response(307 if listening.elsewhere else 200)
                if listening.elsewhere:
                    self.send_header("location", listening.elsewhere)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing is said."""

        super().__init__(("127.0.0.1", 0), Remote)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


@pytest.fixture
def gateway():
    made = Listening()
    yield made
    made.end()


@pytest.fixture
def other():
    made = Listening()
    yield made
    made.end()


@pytest.fixture
async def at(tmp_path):
    async with site(tmp_path) as made:
        yield made


def posting(url: str) -> str:
    return (
        "workflow:\n  - step: start\n    tool:\n      kind: http\n      method: POST\n"
        f"      url: '{url}'\n      json: {{request_id: '{{{{ workload.request_id }}}}'}}\n"
    )


async def ran(at, text: str, gateway: Listening, **more: object):
    """The detail of a run of somebody who waits, once it has ended."""
    real = at.client.execute

    async def execute(body: Execute) -> Started:
        payload = {
            **(body.payload or {}), "request_id": "r-1", "gateway_url": gateway.url,
            "callback_token": TOKEN,
        }  # fmt: skip
        request = {"request_id": "r-1", "client_id": "client-01"}
        return await real(Execute(catalog_id=body.catalog_id, workload=payload, request=request))

    at.client.execute = execute
    return await at.run(text, **more)


async def test_a_step_that_names_only_its_request_is_believed(at, gateway):
    run = await ran(at, posting("{{ workload.gateway_url }}/api/internal/callback/async"), gateway)
    assert run.status == "COMPLETED"
    assert gateway.heard == [("/api/internal/callback/async", TOKEN)]
    assert run.workload["callback_token"] == "***"  # noqa: S105 - a mask
    over_the_wire = b"".join(
        body for _, path, body in at.wire.heard if not path.startswith("/api/execute")
    )
    assert TOKEN.encode() not in over_the_wire


async def test_other_sites_are_not_shown_the_proof(at, gateway, other):
    run = await ran(at, posting(f"{other.url}/hook"), gateway)
    assert (run.status, other.heard) == ("COMPLETED", [("/hook", None)])
    assert at.wire.of("/sealed") == []


async def test_who_is_sent_away_by_the_gateway_takes_no_proof_along(at, gateway, other):
    gateway.elsewhere = f"{other.url}/caught"
    run = await ran(at, posting("{{ workload.gateway_url }}/x"), gateway)
    assert run.status == "COMPLETED"
    assert (gateway.heard, other.heard) == ([("/x", TOKEN)], [("/caught", None)])


async def test_a_template_has_the_token_on_the_worker_and_nowhere_else(at, gateway):
    code = (
        "workflow:\n  - step: start\n    tool:\n      kind: python\n"
        "      input: {t: '{{ workload.callback_token }}'}\n"
        "      code: |\n        result = [len(t), t]\n"
    )
    run = await ran(at, code, gateway)
    assert (run.status, run.result) == ("COMPLETED", [len(TOKEN), "***"])
    page = await at.client.events(run.execution_id, limit=1000)
    assert TOKEN not in json.dumps(page.items, default=str)


async def test_a_run_that_nobody_waits_for_proves_nothing(at, gateway):
    run = await at.run(
        posting("{{ workload.gateway_url }}/x"), request_id="r", gateway_url=gateway.url
    )
    assert run.status == "COMPLETED"
    assert gateway.heard == [("/x", None)]
