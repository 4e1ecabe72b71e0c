"""A small API with pages of orders, for the example: `python examples/etl/orders_api.py [PORT]`.

It needs nothing but Python. `GET /orders?page=1` answers `{"items": [...], "next": "...?page=2"}`;
a page wants the header `Authorization: Bearer demo-orders-token`.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TOKEN = "demo-orders-token"  # noqa: S105 - of this example alone
PAGES, PER_PAGE = 5, 100
REGIONS = ("north", "south", "east", "west")


def order(number: int) -> dict[str, object]:
    """One order, the same whenever it is asked for."""
    return {
        "id": number,
        "region": REGIONS[number % len(REGIONS)],
        "amount": f"{(number * 37) % 500 + 1}.{number % 100:02}",
        "placed_on": f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}",
    }


class Orders(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """A page of orders."""
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"error": "a token is needed"})
            return
        asked = urlsplit(self.path)
        if asked.path != "/orders":
            self._answer(404, {"error": "ask for /orders"})
            return
        page = int(parse_qs(asked.query).get("page", ["1"])[0])
        first = (page - 1) * PER_PAGE + 1
        items = [order(number) for number in range(first, first + PER_PAGE)]
        host = self.headers.get("Host", "")
        following = f"http://{host}/orders?page={page + 1}" if page < PAGES else None
        self._answer(200, {"items": items, "next": following})

    def _answer(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_words: object) -> None:
        """Nobody reads its log."""


def main() -> None:
    """Serve until it is stopped; the address is the first line that it prints."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8123
    server = ThreadingHTTPServer(("127.0.0.1", port), Orders)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)  # noqa: T201 - its output
    server.serve_forever()


if __name__ == "__main__":
    main()
