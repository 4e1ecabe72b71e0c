"""Restate: a server of one node, and a service process that it calls.

Run by the interpreter of the peer. The service is another process that imports this module.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import restate

from bench.peers.children import child, free_port, listens, until
from bench.peers.workload import (
    CLIENTS,
    STEPS,
    Ready,
    Task,
    chain,
    fan_out,
    runs,
    serve,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "bench.peers.on_restate"
PROCESSES = 2
_NODE = """
disable-telemetry = true
bind-address = "127.0.0.1:{node}"
[ingress]
bind-address = "127.0.0.1:{ingress}"
[admin]
bind-address = "127.0.0.1:{admin}"
"""

service = restate.Service("peer")


@service.handler()
async def in_line(ctx: restate.Context, steps: int) -> int:
    last = -1
    for number in range(steps):
        last = await ctx.run_typed("step", lambda number=number: number)
    return last


@service.handler()
async def item(ctx: restate.Context, number: int) -> int:
    return await ctx.run_typed("step", lambda: number)


@service.handler()
async def items_in_line(ctx: restate.Context, steps: int) -> int:
    last = -1
    for number in range(steps):
        last = await ctx.service_call(item, arg=number)
    return last


@service.handler()
async def side_by_side(ctx: restate.Context, items: int) -> list[int]:
    begun = [ctx.run_typed("step", lambda number=number: number) for number in range(items)]
    return [await one for one in await restate.gather(*begun)]


@service.handler()
async def called(ctx: restate.Context, items: int) -> list[int]:
    begun = [ctx.service_call(item, arg=number) for number in range(items)]
    return [await one for one in await restate.gather(*begun)]


app = restate.app([service])


class Client:
    """Calls handlers through the server and waits for what they give."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._session = self._loop.run_until_complete(self._open())

    def call(self, handler: str, given: int) -> Any:  # noqa: ANN401 - what the handler gives
        """One call."""
        return self._loop.run_until_complete(self._call(handler, given))

    def many(self, count: int) -> list[Any]:
        """Runs of two steps by so many clients, each of which waits for its own."""
        return self._loop.run_until_complete(self._many(count))

    def tell(self, url: str, service_url: str) -> None:
        """Make a service known to the server."""
        self._loop.run_until_complete(self._tell(url, service_url))

    def close(self) -> None:
        """Close all connections."""
        self._loop.run_until_complete(self._session.close())
        self._loop.close()

    async def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CLIENTS))

    async def _call(self, handler: str, given: int) -> Any:  # noqa: ANN401 - what the handler gives
        async with self._session.post(f"{self._url}/peer/{handler}", json=given) as answer:
            answer.raise_for_status()
            return json.loads(await answer.read())

    async def _many(self, count: int) -> list[Any]:
        left = iter(range(count))
        found: list[Any] = []

        async def client() -> None:
            for _ in left:
                found.append(await self._call("in_line", 2))  # noqa: PERF401 - the others take from the same iterator meanwhile

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return found

    async def _tell(self, url: str, service_url: str) -> None:
        async with self._session.post(f"{url}/deployments", json={"uri": service_url}) as answer:
            answer.raise_for_status()


@contextmanager
def engine(task: Task) -> Iterator[Ready]:
    """The server with its own choices, but for ports and reports to its makers."""
    ports = {name: free_port() for name in ("node", "ingress", "admin", "service")}
    config = task.folder / "restate.toml"
    config.write_text(_NODE.format(**ports), encoding="utf-8")
    [binary] = (task.home / "npm").glob("node_modules/@restatedev/restate-server-*/bin/*")
    node = [binary, "--config-file", config, "--base-dir", task.folder / "data", "--no-logo"]
    hypercorn = [
        sys.executable, "-m", "hypercorn", "-w", str(PROCESSES), "--log-level", "ERROR",
        "-b", f"127.0.0.1:{ports['service']}", f"{NAME}:app",
    ]  # fmt: skip
    with child(node, task.folder) as server, child(hypercorn, task.folder) as process:
        until("Restate", lambda: listens(ports["ingress"]) and listens(ports["admin"]), server)
        until("its service", lambda: listens(ports["service"]), process)
        client = Client(f"http://127.0.0.1:{ports['ingress']}")
        client.tell(f"http://127.0.0.1:{ports['admin']}", f"http://127.0.0.1:{ports['service']}")
        yield Ready(
            works=[
                chain(lambda: client.call("in_line", STEPS)),
                chain(lambda: client.call("items_in_line", STEPS), "chain-calls"),
                fan_out(lambda items: client.call("side_by_side", items)),
                fan_out(lambda items: client.call("called", items), "fanout-calls"),
                runs(client.many),
                single(lambda: client.call("in_line", 2)),
            ]
        )
        client.close()


if __name__ == "__main__":
    serve(engine)
