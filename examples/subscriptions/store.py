"""A small store of readings, for the example: `python examples/subscriptions/store.py [PORT]`.

It needs nothing but Python. `POST /readings` keeps one, `GET /readings` tells them in the order in
which they came, `GET /health` says that it is there.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

READINGS: list[dict[str, object]] = []


class Store(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """What is here."""
        self._answer(200, READINGS if self.path == "/readings" else {"status": "ok"})

    def do_POST(self) -> None:
        """Keep a reading."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        READINGS.append(json.loads(body))
        self._answer(201, {"kept": len(READINGS)})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8099
    server = ThreadingHTTPServer(("127.0.0.1", port), Store)
    sys.stdout.write(f"readings are kept at http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
