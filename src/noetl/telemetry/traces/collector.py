"""A collector for one person: takes spans on the loopback address and keeps them in memory."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from noetl.telemetry.traces.otlp import MEDIA_TYPE, PATH
from noetl.telemetry.traces.tree import spans_of

if TYPE_CHECKING:
    from noetl.telemetry.traces.tree import Seen

MOST_BYTES: Final = 16 << 20
MOST_SPANS: Final = 100_000


class Collector:
    """Listens while the block lasts."""

    def __init__(self, port: int = 0) -> None:
        self._heard = threading.Condition()
        self._spans: list[Seen] = []
        self.headers: list[dict[str, str]] = []
        """The headers of every request, for those who look at them."""
        self.refusals: list[int] = []
        """Answers to give before spans are taken, for those who want to see what follows."""
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """What to set `OTEL_EXPORTER_OTLP_ENDPOINT` to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> list[Seen]:
        """What has arrived."""
        with self._heard:
            return list(self._spans)

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def taken(self) -> list[Seen]:
        """What has arrived since the last time, which is forgotten now."""
        with self._heard:
            found, self._spans = self._spans, []
        return found

    def quiet(self, seconds: float) -> bool:
        """Wait; whether nothing came in that time."""
        with self._heard:
            return not self._heard.wait(seconds)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Take a request; the status of its answer."""
        if path != PATH:
            return 404
        with self._heard:
            self.headers.append(headers)
            if self.refusals:
                return self.refusals.pop(0)
            try:
                found = spans_of(body)
            except (msgspec.DecodeError, KeyError, TypeError, ValueError):
                return 400
            self._spans = (self._spans + found)[-MOST_SPANS:]
            self._heard.notify_all()
        return 200


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size <= MOST_BYTES else b""
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = collector.take(self.path, headers, body) if size <= MOST_BYTES else 413
            self.send_response(status)
            self.send_header("Content-Type", MEDIA_TYPE)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as inherited
            """Nobody reads it."""

    return Handler
