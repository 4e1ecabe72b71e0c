"""Messages of NATS become runs: 20,000 of them, in batches, through a listener of the stack.

The rate is that of runs that the server has accepted, by its own times; first for a pool where
nobody works, then while a worker works on them on the same cores. Then messages that waited in the
spool of a listener go out again, key by key in order, for a pool where nobody works. Last, the
example of the documentation works through a thousand readings.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from bench import readings
from bench.history import NOBODY
from bench.limits import at_least
from bench.listening import KEYS, cost_ms, site, spent, until
from bench.scenario import made, on_stack
from noetl.local.embedded.ports import free_port

if TYPE_CHECKING:
    from bench.limits import Limit
    from bench.listening import Site
    from bench.stack import Stack

MESSAGES: Final = 20_000
WORKED: Final = 5_000
"""Messages whose runs a worker works on meanwhile."""
WAITED: Final = 5_000
"""Messages that wait in the spool before they go out."""
BATCH: Final = 500
IN_FLIGHT: Final = 2_000
POOL: Final = "shared"
RUNTIME: Final = {
    "pool": POOL, "batch": BATCH, "timeout_ms": 1000, "max_in_flight": IN_FLIGHT
}  # fmt: skip
DISPATCH: Final = {"batch_dispatch": True}
SETTINGS: Final = {"NOETL_BACKLOG_MAX": "200000"}
"""A server refuses new runs when so many commands wait, and in a pool without workers all do."""


def records(repeat: int) -> list[dict[str, Any]]:
    """Messages a second that became runs, and that came out of a spool."""
    return on_stack(lambda stack: _measure(stack, min(repeat, 2)), SETTINGS)


async def _measure(stack: Stack, repeat: int) -> list[dict[str, Any]]:
    rounds = range(repeat)
    came = [await _came(stack, f"came{number}", MESSAGES, NOBODY) for number in rounds]
    went = [await _went(stack, f"went{number}") for number in rounds]
    worked = [await _came(stack, f"worked{number}", WORKED, POOL) for number in rounds]
    return [
        _of(stack, "subscriptions", came, at_least("p50", 800.0, 300.0)),
        _of(stack, "subscriptions-drain", went, at_least("p50", 700.0, 300.0)),
        _of(stack, "subscriptions-worked", worked, at_least("p50", 800.0)),
        await readings.proof(stack),
    ]


def _of(stack: Stack, name: str, found: list[dict[str, Any]], limit: Limit) -> dict[str, Any]:
    """One record of several rounds; what else was seen is that of the last."""
    last = {name: value for name, value in found[-1].items() if name not in {"rate", "correct"}}
    return made(
        stack, name, [one["rate"] for one in found], unit="messages/s", better="higher",
        correct=all(one["correct"] for one in found), limits=[limit],
        params={"messages": last.pop("messages"), "batch": BATCH, "in_flight": IN_FLIGHT},
        **last,
    )  # fmt: skip


async def _came(stack: Stack, name: str, count: int, pool: str) -> dict[str, Any]:
    """Messages that wait at the source, until all are acknowledged."""
    async with site(stack, name) as here:
        dispatch = DISPATCH | {"execution_pool": pool}
        await here.register({"runtime": RUNTIME, "dispatch": dispatch})
        await here.send(count)
        before = spent(await here.pids())
        await here.activate()
        await until(lambda: _has_begun(here))
        began = time.perf_counter()
        await here.acked()
        acked_s = time.perf_counter() - began
        after = spent(await here.pids())
        runs = await here.runs()
        found = {
            "rate": count / runs["seconds"],
            "messages": count,
            "correct": runs["runs"] == runs["messages"] == count,
            "acked_per_s": round(count / acked_s, 1),
            "duplicates": runs["runs"] - runs["messages"],
            "lost": count - runs["messages"],
            "cpu_ms_per_message": cost_ms(before, after, count),
            "ended_meanwhile": await here.ended(),
        }
        if pool != NOBODY:
            await until(lambda: _have_ended(here, count))
        return found


async def _went(stack: Stack, name: str, count: int = WAITED) -> dict[str, Any]:
    """Messages that were spooled because something was away, from its return to the last run."""
    port = free_port()
    circuit = {
        "trip_after": 1, "probe_after_ms": 200, "probe_interval_ms": 200,
        "downstream": [{"name": "store", "probe": "tcp", "target": f"127.0.0.1:{port}"}],
    }  # fmt: skip
    spool = {
        "mode": "buffer_and_ack", "backend": "local_disk", "path": name, "ordering": "per_key",
        "ordering_key": "message.data.key", "circuit": circuit, "drain": {"lanes": KEYS},
    }  # fmt: skip
    async with site(stack, name) as here:
        dispatch = DISPATCH | {"execution_pool": NOBODY}
        await here.register({"runtime": RUNTIME, "dispatch": dispatch, "spool": spool})
        await here.activate()
        await until(lambda: _is_open(here))
        await here.send(count)
        began = time.perf_counter()
        await here.acked()
        spooled_s = time.perf_counter() - began
        is_kept = not (await here.runs())["runs"]
        before = spent(await here.pids())
        store = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        async with store:
            await until(lambda: _have_begun(here, count))
            after = spent(await here.pids())
            runs = await here.runs()
            is_right = is_kept and runs["runs"] == runs["messages"] == count
            is_right = is_right and await here.is_in_order(count)
        return {
            "rate": count / runs["seconds"],
            "messages": count,
            "correct": is_right,
            "spooled_per_s": round(count / spooled_s, 1),
            "cpu_ms_per_message": cost_ms(before, after, count),
        }


async def _has_begun(here: Site) -> bool:
    return bool((await here.runs())["runs"])


async def _have_begun(here: Site, count: int) -> bool:
    return bool((await here.runs())["runs"] >= count)


async def _have_ended(here: Site, count: int) -> bool:
    return await here.ended() >= count


async def _is_open(here: Site) -> bool:
    found = await here.stack.client.subscription(here.subscription_id)
    return any(one.phase == "open" for one in found.circuit.values())
