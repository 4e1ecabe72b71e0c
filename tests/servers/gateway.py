"""A gateway process in front of the full stack, with accounts, and a place where steps wait."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from noetl.api.catalog import Register
from noetl.api.identity import NewAccount
from tests.servers.stack import INTERNAL, LATE_S, Process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from noetl.api.client import Client
    from tests.servers.stack import FullStack

T = TypeVar("T")

PASSWORD = "correct horse battery staple"  # noqa: S105 - of accounts that live as long as a test


class Hold:
    """An HTTP server at which a step waits until the test lets it go on."""

    def __init__(self) -> None:
        self._open: dict[str, threading.Event] = {}
        self._here: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        hold = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hold._wait(self.path)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def url(self, name: str) -> str:
        """Where a step waits under this name."""
        return f"http://127.0.0.1:{self._server.server_port}/{name}"

    def arrived(self, name: str) -> None:
        """Come back when a step waits there."""
        assert self._event(self._here, f"/{name}").wait(LATE_S), f"nobody came to {name}"

    def release(self, name: str) -> None:
        """Let whoever waits there go on, now and later."""
        self._event(self._open, f"/{name}").set()

    def stop(self) -> None:
        """Let everybody go, and end."""
        with self._lock:
            for event in self._open.values():
                event.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _wait(self, path: str) -> None:
        self._event(self._here, path).set()
        self._event(self._open, path).wait(2 * LATE_S)

    def _event(self, events: dict[str, threading.Event], path: str) -> threading.Event:
        with self._lock:
            return events.setdefault(path, threading.Event())


class GatewayStack:
    """A gateway before a server with a worker, and what tests want of it from threads."""

    def __init__(self, stack: FullStack, folder: Path, **more: str) -> None:
        self.stack = stack
        self.hold = Hold()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "NOETL_HOME": str(folder / "home"),
            "NOETL_NATS_URL": stack.nats_url,
            "NOETL_SERVER_URL": stack.url,
            "NOETL_INTERNAL_API_TOKEN": INTERNAL,
            "GATEWAY_BIND": "127.0.0.1",
            "ROUTER_PORT": str(port),
            **more,
        }
        self._names = 0
        self.process = Process(["noetl.cli.app", "gateway"], self._environ)
        try:
            self.process.until("the gateway listens")
            stack.serve()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the gateway; the stack behind it goes on."""
        with ExitStack() as stopping:
            stopping.callback(self.hold.stop)
            stopping.callback(self.process.stop)

    def name(self, word: str) -> str:
        """A name that no other test has."""
        self._names += 1
        return f"{word}-{self._names}"

    def account(self, *roles: str) -> str:
        """Make an account; the e-mail address with which it signs in."""
        name = self.name("person")
        email = f"{name}@example.com"
        body = NewAccount(
            subject=name, email=email, password=PASSWORD, roles=roles or ("developer",)
        )
        self.ask(lambda client: client.add_user(body))
        return email

    def register(self, text: str) -> None:
        """Put a playbook in the catalog."""
        self.ask(lambda client: client.register(Register(content=text)))

    def ended(self, execution_id: str) -> str:
        """Wait for the end of a run; its status."""

        async def follow(client: Client) -> str:
            async with asyncio.timeout(LATE_S):
                async for _ in client.stream(execution_id):
                    pass
            return (await client.execution(execution_id)).status

        return self.ask(follow)

    def ask(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Ask the server something, as somebody who may do everything."""

        async def asked() -> T:
            async with self.stack.client() as client:
                return await call(client)

        with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
            made: Any = thread.submit(lambda: asyncio.run(asked())).result()
        return made


@pytest.fixture(scope="session")
def gateway_stack(
    full_stack: FullStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayStack]:
    """A gateway before the stack of this test process, shared by its tests."""
    made = GatewayStack(full_stack, tmp_path_factory.mktemp("gateway"))
    try:
        yield made
    finally:
        made.stop()
