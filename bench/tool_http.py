"""The http tool beside its bare client, and a hundred of its requests at once on one worker."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import uvloop

from bench.sampling import record
from noetl.clock import SystemClock
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.http.egress import Egress
from noetl.tools.http.tool import HttpTool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

LIMIT_MS = 1.0
LIMIT_X = 3.0
LEAST_MS = 0.001
"""What is recorded when the tool is the faster one."""
EACH = 200
"""Requests of each kind in a sample, in turn, so that both meet the same machine."""
AT_ONCE = 100
SLOW_S = 0.2
"""How long the server of the hundred takes to answer: they wait, they do not work."""
BODY = b'{"items": [' + b", ".join(b'{"id": %d, "name": "item"}' % n for n in range(20)) + b"]}"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /slow"):
                await asyncio.sleep(SLOW_S)
            writer.write(ANSWER)
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        writer.close()


@asynccontextmanager
async def _server() -> AsyncIterator[str]:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1024)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def _context() -> ToolContext:
    return ToolContext(
        execution_id="1", step="s", command_id="c", idempotency_key="k",
        deadline=asyncio.get_running_loop().time() + 60,
    )  # fmt: skip


async def _taken(work: Callable[[], Awaitable[object]]) -> float:
    before = time.perf_counter()
    await work()
    return (time.perf_counter() - before) * 1000


async def _samples(repeat: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"over": [], "bare": [], "ours": [], "share": [], "one": []}
    async with _server() as url, httpx.AsyncClient(trust_env=False) as client:
        tool = HttpTool(Egress(mode="open"), SystemClock())

        async def bare() -> None:
            answer = await client.get(f"{url}/fast")
            assert len(answer.json()["items"]) == 20  # noqa: PLR2004 - what the server sends

        async def ours(path: str = "fast") -> None:
            config = {"kind": "http", "url": f"{url}/{path}"}
            outcome: Any = await run_tool(tool, config, _context())
            assert len(outcome.data["body"]["items"]) == 20  # noqa: PLR2004 - what the server sends

        for work in (bare, ours, bare, ours):
            await work()
        for _ in range(repeat):
            pairs = [(await _taken(bare), await _taken(ours)) for _ in range(EACH)]
            found["bare"].append(statistics.median(pair[0] for pair in pairs))
            found["ours"].append(statistics.median(pair[1] for pair in pairs))
            found["over"].append(max(LEAST_MS, found["ours"][-1] - found["bare"][-1]))
            one = await _taken(lambda: ours("slow"))
            many = sorted(
                await asyncio.gather(*(_taken(lambda: ours("slow")) for _ in range(AT_ONCE)))
            )
            found["one"].append(one)
            found["share"].append(many[int(AT_ONCE * 0.95) - 1] / one)
        await tool.close()
    return found


def records(repeat: int) -> list[dict[str, Any]]:
    """What the tool adds to a request, and how much longer a hundred take than one."""
    found = uvloop.run(_samples(repeat))
    params = {"bytes": len(BODY), "requests": EACH}
    at_once = {"requests": AT_ONCE, "answer_ms": SLOW_S * 1000}
    return [
        record("tool-http", found["over"], unit="ms", limit=LIMIT_MS, params=params),
        record("tool-http-bare", found["bare"], unit="ms", params=params),
        record("tool-http-request", found["ours"], unit="ms", params=params),
        record("tool-http-many", found["share"], unit="x", limit=LIMIT_X, params=at_once),
        record("tool-http-one", found["one"], unit="ms", params=at_once),
    ]
