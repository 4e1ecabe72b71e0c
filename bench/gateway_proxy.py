"""What the gateway adds to a call: the same request by its proxy and straight to the server.

Both are asked by one client with one session, in turn, on connections that are kept. The gateway
looks up the session, signs who calls, and passes both bodies through. The overhead is the
difference of each pair; what a busy machine does to one of both is in its spread.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.gateway import service_token
from bench.limits import at_most
from bench.sampling import spread
from bench.scenario import made, on_stack
from noetl.api.client import Client
from noetl.api.identity import Login, NewAccount
from noetl.api.sockets import SocketTransport

if TYPE_CHECKING:
    from bench.stack import Stack

PAIRS: Final = 1_000
WARM_UP: Final = 200
ROOM_S: Final = 0.012
"""At most a hundred calls a second: the limit of a session."""
CALLS: Final = {
    "read": ("GET", "executions", b""),
    "write": ("POST", "catalog/list", b"{}"),
}
P50_MS: Final = (2.0, 6.0)
P95_MS: Final = (5.0, 15.0)
_OK: Final = 200


def records(repeat: int) -> list[dict[str, Any]]:
    """Milliseconds that the gateway adds."""
    del repeat  # many calls are their own repetition
    return on_stack(measure)


async def measure(stack: Stack) -> list[dict[str, Any]]:
    token = await _signed_in(stack)
    direct = SocketTransport(stack.url, token=token)
    via = SocketTransport(stack.record["gateway_url"], token=token)
    try:
        return [await _call(stack, name, direct, via) for name in CALLS]
    finally:
        await direct.close()
        await via.close()


async def _call(
    stack: Stack, name: str, direct: SocketTransport, via: SocketTransport
) -> dict[str, Any]:
    method, path, body = CALLS[name]
    ways = ((direct, "/api/"), (via, "/noetl/"))
    taken: tuple[list[float], list[float]] = ([], [])
    is_alike = True
    for number in range(WARM_UP + PAIRS):
        began, answers = time.perf_counter(), []
        for (way, base), found in zip(ways, taken, strict=True):
            before = time.perf_counter()
            told = await way.request(
                method, base + path, body, {"content-type": "application/json"}
            )
            if number >= WARM_UP:
                found.append((time.perf_counter() - before) * 1000)
            answers.append((told.status, told.body))
        is_alike = is_alike and answers[0] == answers[1] and answers[0][0] == _OK
        await asyncio.sleep(max(0.0, began + ROOM_S - time.perf_counter()))
    added = [after - before for before, after in zip(*taken, strict=True)]
    return made(
        stack, f"gateway_proxy.{name}", added, unit="ms", correct=is_alike,
        limits=[at_most("p50", *P50_MS), at_most("p95", *P95_MS)],
        direct=spread(taken[0]), by_gateway=spread(taken[1]),
        params={"pairs": PAIRS, "method": method, "path": path},
        ratios={"of_direct": round(median(taken[1]) / median(taken[0]), 2)},
    )  # fmt: skip


async def _signed_in(stack: Stack) -> str:
    """A session, as a gateway begins it for one who has shown a ticket."""
    account = await stack.client.add_user(NewAccount(subject="bench", roles=("developer",)))
    transport = SocketTransport(stack.url, token=service_token(stack))
    try:
        login = Login(account_id=account.account_id)
        return (await Client(transport).login(login)).session_token
    finally:
        await transport.close()
