"""The socket of a stand-in: each request is handed to one method, its answer is sent back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    import ssl


class Refused(Exception):
    """The answer is an error."""

    def __init__(self, status: int, body: Any = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    @property
    def bearer(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


class Web:
    """A server on a free port of this machine; `answer` is what a stand-in adds."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.raw: tuple[int, bytes] | None = None
        """What is answered to everything, when it is set."""
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65_536  # one packet for head and body

            def handle_one(self) -> None:
                parts = urlsplit(self.path)
                asked = Asked(
                    self.command,
                    unquote(parts.path),
                    dict(parse_qsl(parts.query)),
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(int(self.headers.get("content-length", 0))),
                )
                web.asked.append(asked)
                status, body = web.answered(asked)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = handle_one  # noqa: N815 - the names of http.server

            def log_message(self, *_: Any) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wrap(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def answered(self, asked: Asked) -> tuple[int, bytes]:
        if self.raw is not None:
            return self.raw
        try:
            found = self.answer(asked)
        except Refused as refusal:
            return refusal.status, json.dumps(refusal.body or {}).encode()
        return 200, found.encode() if isinstance(found, str) else json.dumps(found).encode()

    def answer(self, asked: Asked) -> Any:
        raise Refused(404, {"path": asked.path})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
