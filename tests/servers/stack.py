"""The full stack of a test process: server and workers as processes, PostgreSQL and NATS real."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from noetl.api.client import Client
from noetl.api.sockets import SocketTransport
from noetl.server.access.tokens import new_token
from noetl.server.admin import Bearer, welcome
from tests.servers import ENCRYPTION_KEY
from tests.servers.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.servers.postgres import Server

ROOT = Path(__file__).parents[2]
LATE_S = 30.0
STAGE = "stage"
"""The pool of workers with mocked tools, which tests run themselves."""
INTERNAL = "internal-token-of-a-test"


class Process:
    """One process and what it says; whoever waits for a line of it is told."""

    def __init__(self, words: list[str], environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=ROOT, env=environ, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.lines: list[str] = []
        self._heard = threading.Condition()
        self._is_open = True
        assert self._process.stderr is not None
        self._thread = threading.Thread(target=self._listen, args=(self._process.stderr,))
        self._thread.start()

    def _listen(self, said: IO[bytes]) -> None:
        for line in said:
            with self._heard:
                self.lines.append(line.decode())
                self._heard.notify_all()
        with self._heard:
            self._is_open = False
            self._heard.notify_all()

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    def until(self, event: str) -> None:
        """Come back when it has said so."""
        with self._heard:
            self._heard.wait_for(lambda: self._has_said(event) or not self._is_open, LATE_S)
            assert self._has_said(event), f"it never said {event!r}: {''.join(self.lines)}"

    def _has_said(self, event: str) -> bool:
        return any(_event(line) == event for line in self.lines)

    def stop(self) -> int:
        """Ask it to end, and see to it that it does; how it ended."""
        self._process.terminate()
        try:
            return self._process.wait(LATE_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def ended(self) -> int:
        """Wait until it has ended by itself; how."""
        code = self._process.wait(LATE_S)
        self._thread.join()
        return code


def _event(line: str) -> str:
    try:
        return str(json.loads(line).get("event"))
    except ValueError:
        return ""


class FullStack:
    """One server, and a worker of each pool that somebody asked for."""

    def __init__(self, database_url: str, nats_url: str, folder: Path, **more: str) -> None:
        self.nats_url = nats_url
        self._more = more
        self.data = folder / "data"
        self.data.mkdir()
        self._folder = folder
        self._tokens = {"": new_token()}
        self._workers: dict[str, Process] = {}
        self._database_url = database_url
        self._tell(Bearer(token=self._tokens[""], account="user:test", roles=("admin",), name="t"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._server = Process(
            ["tests.servers.staged_server"],
            self._environ(
                NOETL_DATABASE_URL=database_url, NOETL_PORT=str(port), NOETL_METRICS_PORT="off",
                NOETL_INTERNAL_API_TOKEN=INTERNAL, NOETL_ENCRYPTION_KEY=ENCRYPTION_KEY,
                NOETL_OBJECT_STORE_URL=(folder / "objects").as_uri(),
            ),
        )  # fmt: skip
        try:
            self._server.until("the server listens")
        except BaseException:
            self._server.stop()
            raise

    @property
    def processes(self) -> dict[str, int]:
        """The ids of the processes, by the names of the workers' pools and `server`."""
        pids = {pool: worker.pid for pool, worker in self._workers.items()}
        return {"server": self._server.pid, **pids}

    @property
    def said(self) -> dict[str, str]:
        """What each process has said, by the names of the workers' pools and `server`."""
        told = {pool: "".join(worker.lines) for pool, worker in self._workers.items()}
        return {"server": "".join(self._server.lines), **told}

    @property
    def metrics(self) -> dict[str, str]:
        """Where each process tells its numbers, by the names of the workers' pools and `server`."""
        found = {"server": f"{self.url}/metrics"}
        for pool, worker in self._workers.items():
            told = next(json.loads(line) for line in worker.lines if _event(line) == "health")
            found[pool] = f"http://127.0.0.1:{told['port']}/metrics"
        return found

    @property
    def folder(self) -> Path:
        """Where everything that is not in the database lies."""
        return self._folder

    @property
    def objects(self) -> Path:
        """Where the server keeps what is too large for the database."""
        return self._folder / "objects"

    @property
    def database_url(self) -> str:
        """The database of the server."""
        return self._database_url

    @property
    def token(self) -> str:
        """The bearer of a person who may do everything."""
        return self._tokens[""]

    def serve(self, pool: str = "shared", slots: int = 8, **more: str) -> str:
        """See to it that a worker process works for a pool; its name."""
        if pool not in self._workers:
            self._workers[pool] = Process(
                ["noetl.cli.app", "worker"],
                self._environ(
                    **{
                        "WORKER_POOL_NAME": pool, "WORKER_MAX_CONCURRENT": str(slots),
                        "WORKER_METRICS_BIND": "127.0.0.1:0", "NOETL_SERVER_URL": self.url,
                        "NOETL_WORKER_TOKEN": self.worker_token(pool),
                        "NOETL_HTTP_EGRESS": "open", "NOETL_DATA_ROOTS": str(self.data),
                        "NOETL_WORKER_TOOL_TIMEOUT_MAX": "86400",
                        "NOETL_CONTAINER_ALLOW_PROCESS": "true", **more,
                    }
                ),
            )  # fmt: skip
            self._workers[pool].until("the worker works")
        return pool

    def listen(self, *paths: str, token: str = "", **more: str) -> Process:
        """A process that listens for subscriptions; its caller stops it."""
        words = [word for path in paths for word in ("--subscription", path)]
        return Process(
            ["noetl.cli.app", "worker", "--mode", "subscription", *words],
            self._environ(
                WORKER_METRICS_BIND="127.0.0.1:0",
                NOETL_WORKER_TOKEN=token or self.runtime_token(),
                **{"NOETL_SERVER_URL": self.url, **more},
            ),
        )  # fmt: skip

    def runtime_token(self) -> str:
        """A token for processes that listen."""
        if "runtime:" not in self._tokens:
            self._tokens["runtime:"] = new_token()
            self._tell(
                Bearer(token=self._tokens["runtime:"], account="service:runtime",
                       roles=("runtime",), name="runtime")
            )  # fmt: skip
        return self._tokens["runtime:"]

    def worker_token(self, pool: str) -> str:
        """A token for a worker of this pool alone."""
        if pool not in self._tokens:
            self._tokens[pool] = new_token()
            self._tell(
                Bearer(token=self._tokens[pool], account=f"service:worker-{pool}",
                       roles=("worker",), name=pool, pool=pool)
            )  # fmt: skip
        return self._tokens[pool]

    @asynccontextmanager
    async def client(self, token: str = "") -> AsyncIterator[Client]:
        """A door for the loop that runs now; a person's own without another token."""
        transport = SocketTransport(self.url, token=token or self._tokens[""])
        try:
            yield Client(transport)
        finally:
            await transport.close()

    def stop(self) -> None:
        """End every process, workers first."""
        with ExitStack() as stopping:
            stopping.callback(self._server.stop)
            for process in self._workers.values():
                stopping.callback(process.stop)

    def _tell(self, bearer: Bearer) -> None:
        with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
            thread.submit(lambda: asyncio.run(welcome(self._database_url, [bearer]))).result()

    def _environ(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "NOETL_HOME": str(self._folder / "home"),
            "NOETL_NATS_URL": self.nats_url,
            **self._more,
            **more,
        }


@pytest.fixture(scope="session")
def full_stack(
    postgres_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FullStack]:
    """The stack of this test process, shared by its tests.

    It has a broker of its own: its workers would eat the hints of tests that speak to another.
    """
    folder = tmp_path_factory.mktemp("stack")
    nats = NatsServer(folder / "nats")
    name = postgres_server.make()
    with ExitStack() as ending:
        ending.callback(postgres_server.drop, name)
        ending.callback(nats.stop)
        nats.start()
        stack = FullStack(postgres_server.url_of(name), nats.url, folder)
        ending.callback(stack.stop)
        yield stack
