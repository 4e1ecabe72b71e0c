"""The server as a process: it starts on a real database, answers, and ends in good order."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from contextlib import asynccontextmanager

import httpx

from noetl.server.access.tokens import digest, new_token
from noetl.store.identity import TokenRow
from noetl.store.postgres.database import Database
from noetl.store.postgres.tokens import PostgresTokens
from tests.servers import ENCRYPTION_KEY

START = """
import sys
from noetl.server.process import serve
from noetl.settings import ServerSettings
sys.exit(serve(ServerSettings.read()))
"""
LATE_S = 45  # nothing that a test waits for takes so long, also on a busy machine
KILL = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()"""
ID = "77"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A server of its own process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, metrics_port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.metrics_url = f"http://127.0.0.1:{metrics_port}"
        self.lines: list[dict] = []

    async def until(self, event: str) -> dict:
        """The first line that says this; a test that waits for nothing runs out of time."""
        async with asyncio.timeout(LATE_S):
            while True:
                line = await self.process.stderr.readline()
                assert line, f"it ended before it said {event!r}: {self.lines}"
                self.lines.append(json.loads(line))
                if self.lines[-1]["event"] == event:
                    return self.lines[-1]

    async def ended(self) -> int:
        """How it ended."""
        async with asyncio.timeout(LATE_S):
            while line := await self.process.stderr.readline():
                self.lines.append(json.loads(line))
            return await self.process.wait()


@asynccontextmanager
async def server(database_url: str, **more: str):
    port, metrics_port = free_port(), free_port()
    environ = {
        "NOETL_DATABASE_URL": database_url,
        "NOETL_PORT": str(port),
        "NOETL_METRICS_PORT": str(metrics_port),
        "NOETL_INTERNAL_API_TOKEN": "inner-token",
        "NOETL_ENCRYPTION_KEY": ENCRYPTION_KEY,
        **more,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, env=environ, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield Process(process, port, metrics_port)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # noqa: SLF001 - asyncio has no other way to let go of its pipes


async def seeded(database_url: str, *roles: str) -> str:
    token = new_token()
    database = await Database.open(database_url)
    try:
        await PostgresTokens(database).put(
            TokenRow(token_id=ID, sha256=digest(token), account="me", roles=roles)
        )
    finally:
        await database.close()
    return token


async def test_it_starts_answers_and_ends_in_good_order(
    postgres_url: str, clean_nats_url: str
) -> None:
    token = await seeded(postgres_url, "admin")
    async with server(postgres_url, NOETL_NATS_URL=clean_nats_url) as running:
        said = await running.until("the server listens")
        assert said["url"] == running.url
        async with httpx.AsyncClient(base_url=running.url) as http:
            bearer = {"authorization": f"Bearer {token}"}
            assert (await http.get("/ready")).json() == {"status": "ok"}
            health = (await http.get("/api/health")).json()
            assert health["database"] == "ok"
            assert (await http.get("/api/executions/1")).status_code == 401
            lost = await http.get("/api/executions/1", headers=bearer)
            assert (lost.status_code, lost.json()["code"]) == (404, "unknown_execution")
            pool = (await http.get("/api/pool/status", headers=bearer)).json()
            assert (pool["pool_min"], pool["pool_max"], pool["status"]) == (2, 16, "ok")
            inner = {"authorization": "Bearer inner-token"}
            assert (await http.get("/metrics", headers=inner)).status_code == 200
            async with httpx.AsyncClient(base_url=running.metrics_url) as watching:
                text = (await watching.get("/metrics")).text
                assert 'noetl_shard_up{shard="0"} 1.0' in text
                assert 'noetl_db_pool_size{pool="main"}' in text
                assert (await watching.get("/ready")).status_code == 200
                assert (await watching.get("/api/executions/1")).status_code == 404
            parked = asyncio.create_task(
                http.post(
                    "/api/commands/claim",
                    json={"worker_id": "w", "pool": "shared", "free_slots": 1, "wait_seconds": 20},
                    headers=bearer,
                    timeout=30,
                )
            )
            await until_parked(http, bearer)
            running.process.send_signal(signal.SIGTERM)
            answer = await parked
            assert (answer.status_code, answer.json()["claimed"]) == (200, [])
        assert await running.ended() == 0
        assert running.lines[-1]["event"] == "the server has ended"
        assert "inner-token" not in json.dumps(running.lines)


async def until_parked(http: httpx.AsyncClient, bearer: dict[str, str], count: int = 1) -> None:
    """A claim that waits is the only write under way."""
    async with asyncio.timeout(LATE_S):
        while True:
            text = (await http.get("/metrics", headers=bearer)).text
            if f"noetl_writes_in_flight {count}.0" in text:
                return


async def test_without_migrations_it_says_what_to_do(empty_postgres_url: str) -> None:
    async with server(empty_postgres_url) as running:
        assert await running.ended() == 1
        assert running.lines[-1]["code"] == "migrations_missing"
        assert running.lines[-1]["hint"] == "run `noetl db migrate`"


async def test_production_refuses_a_database_that_forgets(postgres_url: str) -> None:
    async with server(postgres_url, NOETL_ENV="production") as running:
        assert await running.ended() == 1
        assert running.lines[-1]["code"] == "unsafe_database"


async def test_without_a_key_it_ends_and_names_the_variable() -> None:
    async with server("postgresql://nobody@127.0.0.1:1/x", NOETL_ENCRYPTION_KEY="") as running:
        assert await running.ended() == 1
        assert running.lines[-1]["code"] == "bad_key"
        assert "NOETL_ENCRYPTION_KEY" in json.dumps(running.lines[-1])


async def test_a_taken_port_is_one_sentence(postgres_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        async with server(postgres_url, NOETL_PORT=port) as running:
            assert await running.ended() == 1
            assert running.lines[-1]["code"] == "address_unavailable"


async def test_a_signal_before_it_listens_ends_it(tmp_path) -> None:
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/{tmp_path.name}"
    async with server(nowhere, NOETL_LOG_LEVEL="debug") as running:
        await running.until("the server starts")
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0


async def test_headers_without_end_are_refused(postgres_url: str) -> None:
    one = b"X-Long: " + b"a" * 40_000
    many = b"\r\n".join(b"X-%d: %s" % (n, b"a" * 1000) for n in range(40))
    async with server(postgres_url) as running:
        await running.until("the server listens")
        for head in (one, many):
            answer = await said(running.port, b"GET /health HTTP/1.1\r\n" + head + b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 431")
            assert b'"code":"headers_too_large"' in answer
        assert (await said(running.port, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")


async def said(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_caller_that_leaves_takes_its_claim_along(postgres_url: str) -> None:
    token = await seeded(postgres_url, "admin")
    bearer = {"authorization": f"Bearer {token}"}
    claim = {"worker_id": "w", "pool": "shared", "free_slots": 1, "wait_seconds": 20}
    async with server(postgres_url) as running:
        await running.until("the server listens")
        async with httpx.AsyncClient(base_url=running.url) as http:
            async with httpx.AsyncClient(base_url=running.url) as leaving:
                going = asyncio.create_task(
                    leaving.post("/api/commands/claim", json=claim, headers=bearer)
                )
                await until_parked(http, bearer)
                going.cancel()
            await until_parked(http, bearer, count=0)
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert [line for line in running.lines if line["level"] == "error"] == []


async def test_lost_connections_cost_a_moment_and_nothing_else(postgres_url: str) -> None:
    token = await seeded(postgres_url, "admin")
    bearer = {"authorization": f"Bearer {token}"}
    async with server(postgres_url) as running:
        await running.until("the server listens")
        async with httpx.AsyncClient(base_url=running.url) as http:
            assert (await http.get("/api/executions/1", headers=bearer)).status_code == 404
            database = await Database.open(postgres_url)
            try:
                killed = await database.fetchval(KILL)
            finally:
                await database.close()
            assert killed > 0
            answers = []
            async with asyncio.timeout(LATE_S):
                while not answers or answers[-1].status_code != 404:
                    answers.append(await http.get("/api/executions/1", headers=bearer))
            refusals = {(answer.status_code, answer.json()["code"]) for answer in answers[:-1]}
            assert refusals <= {(503, "db_unavailable")}
            assert (await http.get("/ready")).status_code == 200
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
