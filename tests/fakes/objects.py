"""A stand-in for an object store that refuses: it answers whatever it was told, as S3 does."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

ERROR = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>{message}</Message><RequestId>1</RequestId></Error>"""


class RefusingStore:
    """A server on a free port of this machine."""

    def __init__(self) -> None:
        self.status, self.code, self.message = 500, "InternalError", ""
        self.asked: list[tuple[str, str]] = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def refuse(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                store.asked.append((self.command, self.path))
                body = ERROR.format(code=store.code, message=store.message).encode()
                self.send_response(store.status)
                self.send_header("content-type", "application/xml")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = refuse  # noqa: N815 - the names of http.server

            def log_message(self, *_: Any) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def refuse_with(self, status: int, code: str, message: str = "") -> None:
        """What is answered from now on."""
        self.status, self.code, self.message = status, code, message
        self.asked.clear()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
