"""A fresh embedded stack for one scenario, as `noetl up` starts it, in a folder that is deleted."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from bench import raw
from bench.counters import Counters
from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Control, Execute
from noetl.api.sockets import SocketTransport
from noetl.settings import child_environment, variable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

NO_SETTINGS: Final[Mapping[str, str]] = {}
FAULTS: Final = ("NOETL_FAILPOINTS",)
NOETL: Final = str(Path(sys.executable).parent / "noetl")


class CommandFailed(Exception):
    """A command of ours that did not end well."""


@dataclass(slots=True, kw_only=True)
class Stack:
    """A stack that runs: how to talk to it, what it counts, what the machine could do at most."""

    record: dict[str, Any]
    environ: Mapping[str, str]
    token: str
    nats_url: str
    database_url: str
    transport: SocketTransport
    client: Client
    connection: asyncpg.Connection[Any]
    counters: Counters
    commits: raw.Commits
    raw: raw.Raw
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where its server is."""
        return str(self.record["url"])

    @property
    def pids(self) -> dict[str, int]:
        """Its processes by their names; `up` is the supervisor."""
        parts = {part["name"]: part["pid"] for part in self.record["parts"]}
        return parts | {"up": self.record["pid"]}

    def part(self, name: str) -> dict[str, Any]:
        """What the record says about a part."""
        found: dict[str, Any] = next(one for one in self.record["parts"] if one["name"] == name)
        return found

    async def register(self, text: str) -> None:
        """Keep a playbook."""
        await self.client.register(Register(content=text))

    async def run(self, path: str, **given: Any) -> tuple[str, float]:  # noqa: ANN401 - a request
        """Start a run and wait for its end: its id, and the seconds until a client saw that."""
        before = time.perf_counter()
        started = await self.client.execute(Execute(path=path, **given))
        status = ""
        async for told in self.client.stream(started.execution_id):
            if told["event"] == "end":
                status = told["data"]["status"]
        taken = time.perf_counter() - before
        if status != "COMPLETED":
            raise CommandFailed(f"{path} ended {status}: {started.execution_id}")
        return started.execution_id, taken

    async def cancel(self, execution_id: str) -> None:
        """End a run that nobody works on."""
        await self.client.cancel(execution_id, Control())

    async def result(self, execution_id: str) -> Any:  # noqa: ANN401 - a user's value
        """What a run returned, when it ended well."""
        found = await self.client.execution(execution_id, with_state=False)
        if found.status != "COMPLETED" or found.error is not None:
            raise CommandFailed(f"{execution_id} is {found.status}: {found.error}")
        return found.result

    async def whole(self, execution_id: str, step: str) -> Any:  # noqa: ANN401 - as above
        """What a run returned, fetched from its step when it lies apart."""
        found = await self.result(execution_id)
        return await self.client.step_result(execution_id, step) if found is None else found


@asynccontextmanager
async def embedded(
    settings: Mapping[str, str] = NO_SETTINGS, port: int | str = "auto"
) -> AsyncIterator[Stack]:
    """A stack in a folder of its own; it is stopped and deleted whatever happens."""
    with tempfile.TemporaryDirectory(prefix="noetl-bench-") as name:
        environ = environment(Path(name)) | dict(settings)
        words = ("up", "--detach", "--port=auto", f"--server-port={port}", "-ojson")
        record = json.loads(await noetl(environ, *words))
        try:
            async with _open(record, environ) as stack:
                yield stack
        finally:
            await noetl(environ, "down", "--wipe", "--yes")


def environment(folder: Path) -> dict[str, str]:
    """What a command is given, so that it neither sees nor changes a stack of somebody else.

    Faults on purpose are passed on: with them one sees what a slower product would look like.
    """
    own = {"NOETL_HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "config")}
    faults = {name: value for name in FAULTS if (value := variable(name))}
    return child_environment() | faults | own | {"HOME": str(folder)}


async def noetl(environ: Mapping[str, str], *words: str) -> bytes:
    """Run a command of ours; what it wrote."""
    process = await asyncio.create_subprocess_exec(
        NOETL, *words, env=dict(environ), cwd="/",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, said = await process.communicate()
    if process.returncode:
        raise CommandFailed(f"noetl {' '.join(words)}: {said.decode()[-2000:]}")
    return told


@asynccontextmanager
async def _open(record: dict[str, Any], environ: Mapping[str, str]) -> AsyncIterator[Stack]:
    secrets = Path(record["home"]) / "secrets"

    def secret(name: str) -> str:
        return (secrets / name).read_text(encoding="utf-8").strip()

    database_url, token = secret("database.url"), secret("admin.token")
    transport = SocketTransport(record["url"], token=token, connections=64, timeout_s=120.0)
    connection = await asyncpg.connect(database_url)
    try:
        commits = raw.Commits(connection)
        await commits.open()
        yield Stack(
            record=record,
            environ=environ,
            token=token,
            nats_url=secret("nats.url"),
            database_url=database_url,
            transport=transport,
            client=Client(transport),
            connection=connection,
            counters=Counters(connection, transport),
            commits=commits,
            raw=await raw.measure(database_url, secret("nats.url")),
            facts=await _facts(connection, record),
        )
    finally:
        await connection.close()
        await transport.close()


async def _facts(connection: asyncpg.Connection[Any], record: dict[str, Any]) -> dict[str, Any]:
    """What the figures of a stack depend on besides the machine."""
    bus = next(part for part in record["parts"] if part["name"] == "nats")
    monitor = SocketTransport(bus["health"].removesuffix("/healthz"))
    told = json.loads((await monitor.request("GET", "/varz")).body)
    await monitor.close()
    return {
        "postgres": await connection.fetchval("SHOW server_version"),
        "nats": told["version"],
        "fsync": await connection.fetchval("SHOW fsync") == "on",
        "synchronous_commit": await connection.fetchval("SHOW synchronous_commit"),
    }
