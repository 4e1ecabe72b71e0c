"""Webhooks with an HMAC become runs: verified, started and committed before they are answered.

Senders are a process of their own, `bench.ingress_load`, with connections that are kept. First an
open loop: so many deliveries a second, whose time counts from when each was due. Then 32 senders
that each wait for their answer, for the most that the stack can do. Then the open loop again while
another process sends 5,000 forged deliveries a second: from 10 addresses, with 20 connections
each, which stop while eight of their own have no answer. Last, bodies that never end, bodies that
hardly begin, and what they cost the gateway in memory.

Runs are for a pool where nobody works. Senders, gateway, server, PostgreSQL and NATS share the
processors of the machine.
"""

from __future__ import annotations

import asyncio
import json
from statistics import median
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bench import playbooks
from bench.history import NOBODY
from bench.limits import at_least, at_most
from bench.listening import cost_ms, spent
from bench.loads import played
from bench.processes import rss_mib, trees
from bench.sampling import spread
from bench.scenario import made, on_stack
from noetl.api.credentials import CredentialPut

if TYPE_CHECKING:
    from bench.stack import Stack

LOAD: Final = "bench.ingress_load"
NAME: Final = "bench-hook"
PATH: Final = "bench/hook"
PLAYBOOK: Final = "bench/hook/one"
SECRET: Final = "a secret of the benchmark, 0123456789"  # noqa: S105 - of a stack that is deleted
RATE: Final = 520
SECONDS: Final = 10.0
LONG_S: Final = 60.0
WARM_UP_S: Final = 3.0
SENDERS: Final = 64
PRESSED: Final = 32
FLOOD_RATE: Final = 5_000
FLOOD_FROM: Final = 10
"""Addresses that the flood comes from."""
BODIES: Final = 100
LEAST_RATE: Final = (500.0, 200.0)
MOST_MS: Final = 100.0
LEAST_SHARE: Final = 0.8
MOST_SLOWER: Final = 2.0
MOST_MIB: Final = (50.0, 100.0)
MOST_S: Final = 300.0
SETTINGS: Final = {"NOETL_BACKLOG_MAX": "1000000"}
PARTS: Final = ("gateway", "server", "postgres", "nats")
_RUNS: Final = """
SELECT count(*) AS runs, count(DISTINCT (workload->>'of', workload->>'n')) AS deliveries
FROM noetl.execution WHERE path = $1 AND workload->>'of' = $2
"""
_HEAD: Final = "apiVersion: noetl.io/v1\nkind: Subscription\n"


def records(repeat: int, *, is_long: bool = False) -> list[dict[str, Any]]:
    """Deliveries a second, what a flood costs them, and what bodies cost in memory."""
    del repeat  # time is its own repetition
    return on_stack(lambda stack: _measure(stack, LONG_S if is_long else SECONDS), SETTINGS)


async def _measure(stack: Stack, seconds: float) -> list[dict[str, Any]]:
    await _register(stack)
    await played(LOAD, _plan(stack, "warm", seconds=WARM_UP_S), MOST_S)
    calm = await _seen(stack, _plan(stack, "calm", seconds=seconds))
    most = await _seen(stack, _plan(stack, "most", rate=0, connections=PRESSED, seconds=seconds))
    flood = asyncio.create_task(played(LOAD, _flood(stack, seconds + 4.0), MOST_S))
    await asyncio.sleep(2.0)
    under = await _seen(stack, _plan(stack, "under", seconds=seconds))
    flooded = await flood
    share = round(under["rate_per_s"] / calm["rate_per_s"], 3)
    slower = round(under["took_ms"]["p99"] / calm["took_ms"]["p99"], 3)
    return [
        _of(
            stack, "ingress", calm, {"rate": RATE, "senders": SENDERS, "seconds": seconds},
            [
                at_least("rate_per_s", *LEAST_RATE), at_most("p99", MOST_MS),
                at_most("lost", 0, 0), at_most("doubled", 0, 0),
            ],
        ),
        _of(
            stack, "ingress-most", most, {"senders": PRESSED, "seconds": seconds},
            [at_least("rate_per_s", *LEAST_RATE)],
        ),
        _of(
            stack, "ingress-flood",
            under | {"of_calm": share, "p99_of_calm": slower, "flood": flooded["counts"],
                     "flood_per_s": round(flooded["counts"]["sent"] / flooded["seconds"], 1),
                     "flood_cpu_s": flooded["cpu_s"]},
            {"rate": RATE, "flood": FLOOD_RATE, "addresses": FLOOD_FROM, "seconds": seconds},
            [at_least("of_calm", LEAST_SHARE), at_most("p99_of_calm", MOST_SLOWER)],
        ),
        await _bodies(stack),
    ]  # fmt: skip


def _of(
    stack: Stack, name: str, found: dict[str, Any], params: dict[str, Any], limits: list[Any]
) -> dict[str, Any]:
    taken = found.pop("taken_ms")
    samples = sorted(taken)[:: max(1, len(taken) // 2_000)] or [0.0]
    return made(
        stack, name, samples, unit="ms", correct=found.pop("correct"), limits=limits,
        params=params, **found,
    )  # fmt: skip


async def _seen(stack: Stack, plan: dict[str, Any]) -> dict[str, Any]:
    """What senders were answered, and what the server has made of it."""
    under = trees({name: stack.pids[name] for name in PARTS})
    before = spent(under)
    told = await played(LOAD, plan, MOST_S)
    after = spent(under)
    counts = told["counts"]
    accepted = counts.get("202 accepted", 0)
    runs = dict(await stack.connection.fetchrow(_RUNS, PLAYBOOK, plan["name"]) or {})
    return {
        "taken_ms": told["taken_ms"],
        "answers": counts,
        "rate_per_s": round(accepted / told["seconds"], 1),
        "lost": max(0, accepted - runs["deliveries"]),
        "doubled": runs["runs"] - runs["deliveries"],
        "correct": 0 < accepted <= runs["deliveries"] == runs["runs"],
        "took_ms": spread(told["taken_ms"] or [0.0]),
        "cpu_ms_per_delivery": cost_ms(before, after, max(1, accepted)),
        "senders_cpu_s": told["cpu_s"],
        "gateway_mib": round(rss_mib(stack.pids["gateway"]), 1),
    }


async def _bodies(stack: Stack) -> dict[str, Any]:
    plan = _plan(stack, "bodies", kind="bodies", connections=BODIES, secret="", network=4)
    told = await played(LOAD, plan, MOST_S)
    one = await played(LOAD, _plan(stack, "after", seconds=1.0, rate=10, connections=4), MOST_S)
    return made(
        stack, "ingress-bodies", [told["peak_grew_mib"]], unit="MiB",
        correct=one["counts"].get("202 accepted", 0) > 0,
        limits=[at_most("p50", *MOST_MIB)], params={"bodies": BODIES},
        answers=told["counts"], before_mib=told["before_mib"], left_mib=told["grew_mib"],
        after_ms=round(median(one["taken_ms"] or [0.0]), 1),
    )  # fmt: skip


# ---------------------------------------------------------------------------- plans


def _plan(stack: Stack, name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a plan is JSON
    at = urlsplit(stack.record["gateway_url"])
    return {
        "kind": "deliveries", "name": name, "host": at.hostname, "port": at.port,
        "path": f"/ingress/{NAME}", "secret": SECRET, "rate": RATE, "seconds": SECONDS,
        "connections": SENDERS, "addresses": SENDERS, "network": 2,
        "pid": stack.pids["gateway"],
    } | more  # fmt: skip


def _flood(stack: Stack, seconds: float) -> dict[str, Any]:
    return _plan(
        stack, "flood", kind="flood", secret="", rate=FLOOD_RATE, connections=20 * FLOOD_FROM,
        addresses=FLOOD_FROM, network=3, seconds=seconds,
    )  # fmt: skip


async def _register(stack: Stack) -> None:
    """A listener, its secret and its playbook."""
    data = {"value": SECRET}
    await stack.client.put_credential(CredentialPut(name=NAME, type="secret", data=data))
    step = {"step": "start", "tool": playbooks.python("result = 1")}
    await stack.register(playbooks.playbook(PLAYBOOK, step))
    spec = {
        "source": "webhook", "mode": "push",
        "ingress": {
            "gateway_path": f"/ingress/{NAME}",
            "verify": {"type": "hmac_sha256", "secret": [NAME]},
            "rate": {"per_sec": 5_000, "burst": 10_000},
        },
        "dispatch": {"playbook": PLAYBOOK, "execution_pool": NOBODY},
    }  # fmt: skip
    about = json.dumps({"name": "hook", "path": PATH})
    await stack.register(f"{_HEAD}metadata: {about}\nspec: {json.dumps(spec)}\n")
    known = await stack.client.register_subscription(PATH)
    await stack.client.steer_subscription(known.subscription_id, "activate")
