"""A stand-in for a gateway: it keeps what it is sent, and answers as it was told to."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from noetl.api.credentials import CredentialPut
from noetl.api.runtime import WorkerEntry

HOOKS = """apiVersion: noetl.io/v1
kind: Subscription
metadata: {{name: orders, path: {path}}}
spec:
  source: webhook
  mode: push
  ingress:
    gateway_path: /ingress/{listener}
    verify: {{type: github, secret: [orders_hook]}}
  dispatch: {{playbook: examples/hello, execution_pool: shared}}
"""
SECRET = "canary-of-the-orders-0123456789"  # noqa: S105 - of a stand-in


@dataclass
class Gatehouse:
    """`with` runs it; `answers` are given one after the other, the last one for ever."""

    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        house = self

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                told = {name.lower(): value for name, value in self.headers.items()}
                house.asked.append((self.path, told, body))
                many = len(house.answers) > 1
                status, answer = house.answers.pop(0) if many else house.answers[0]
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    async def join(self, client: Any) -> None:
        """Let a server know of it, and of the secret that it is sent to with."""
        kept = CredentialPut(name="orders_hook", type="secret", data={"value": SECRET})
        await client.put_credential(kept)
        await client.register_worker(
            WorkerEntry(name="gatehouse", component_type="gateway", uri=self.url)
        )
