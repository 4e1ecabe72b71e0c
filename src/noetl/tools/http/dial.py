"""How a guarded client connects: to the addresses that were judged, in their order, never to names.

Clients of different libraries share it; each has its own errors, and its own way to open a socket.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.tools.http.egress import Guard

T = TypeVar("T")


async def dialled(
    guard: Guard,
    place: tuple[str, int, float | None],
    connect: Callable[[str], Awaitable[T]],
    *,
    late: type[Exception],
    failed: tuple[type[Exception], ...],
) -> T:
    """A connection to the first address that answers; `place` is host, port and time limit."""
    host, port, limit = place
    try:
        async with asyncio.timeout(limit):
            addresses = await guard.addresses(host, port)
    except TimeoutError:
        raise late(f"{host}: the name was not resolved in time") from None
    for index, address in enumerate(addresses):
        try:
            return await connect(address)
        except failed:
            if index == len(addresses) - 1:
                raise
    raise AssertionError("the guard answers with an address or raises")


def no_socket() -> ToolError:
    """The error of a request to a socket of the machine: there is no such door."""
    return ToolError("egress", "egress_denied", "requests to local sockets are refused")
