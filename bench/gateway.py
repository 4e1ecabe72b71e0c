"""A thousand SSE clients and two hundred WebSockets at one gateway, two hundred results a second.

A hundred people with three sessions each have four clients in every session. Requests are made
through the gateway for a playbook that nobody works on; then their results are called back at a
steady pace, every other one for a whole session, the rest for one client: five hundred messages a
second. The delay is from the call to the arrival of its text.

Then one client reads nothing while large results come for it, and at last every SSE client leaves
and comes back within half a minute. Whatever happens, each result comes to each client that it is
for, once and in order. Clients and calls are a process of their own, `bench.gateway_load`; it, the
gateway, the server, PostgreSQL and NATS share the processors of the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bench import playbooks
from bench.limits import at_most
from bench.loads import played
from bench.sampling import spread
from bench.scenario import made, on_stack
from noetl.api.client import Client
from noetl.api.identity import Login, NewAccount
from noetl.api.sockets import SocketTransport

if TYPE_CHECKING:
    from bench.stack import Stack

LOAD: Final = "bench.gateway_load"
PATH: Final = "bench/waiting"
POOL: Final = "nobody"
PEOPLE: Final = 100
SESSIONS: Final = 3
"""Of each."""
CLIENTS: Final = 4
"""Of a session."""
WS_EACH: Final = 6
"""Every so many-th client is a WebSocket."""
RATE: Final = 200
SECONDS: Final = 15.0
LONG_S: Final = 60.0
WARM_UP_S: Final = 3.0
RECONNECT_S: Final = 30.0
RECONNECT_RATE: Final = 50
MOST_MS: Final = (200.0, 500.0)
MOST_MIB: Final = (300.0, 450.0)
MOST_S: Final = 900.0
PARTS: Final = ("gateway", "server", "postgres", "nats", "worker-shared", "worker-system", "up")


def records(repeat: int, *, is_long: bool = False) -> list[dict[str, Any]]:
    """Milliseconds from a callback to a client."""
    del repeat  # time is its own repetition
    room = {"NOETL_BACKLOG_MAX": "1000000"}
    return on_stack(lambda stack: _measure(stack, LONG_S if is_long else SECONDS), room)


async def _measure(stack: Stack, seconds: float) -> list[dict[str, Any]]:
    step = {"step": "start", "spec": {"pool": POOL}, "tool": playbooks.python("result = 1")}
    await stack.register(playbooks.playbook(PATH, step))
    told = await played(LOAD, await _plan(stack, seconds), MOST_S)
    delays = told.pop("delays")
    samples = sorted(delays)[:: max(1, len(delays) // 2_000)]
    calm, stalled = spread(delays), told["with_a_stalled_reader"]
    told["stalled_times"] = round(stalled["p99"] / max(calm["p99"], 1.0), 2)
    wrong = ("missed", "repeated", "unwanted", "disordered")
    return [
        made(
            stack, "gateway", samples or [0.0], unit="ms",
            correct=bool(delays) and not any(told[name] for name in wrong),
            limits=[
                at_most("p99", *MOST_MS), at_most("most_mib", *MOST_MIB), at_most("missed", 0, 0),
                at_most("repeated", 0, 0), at_most("disordered", 0, 0),
                at_most("stalled_times", 2.0, 4.0),
            ],
            params={
                "sse": _count("sse"), "ws": _count("ws"), "results_per_s": RATE,
                "seconds": seconds, "reconnects_s": RECONNECT_S,
            },
            **told,
        )
    ]  # fmt: skip


def _kind(number: int) -> str:
    return "ws" if number % WS_EACH == WS_EACH - 1 else "sse"


def _count(kind: str) -> int:
    return sum(_kind(number) == kind for number in range(PEOPLE * SESSIONS * CLIENTS))


async def _plan(stack: Stack, seconds: float) -> dict[str, Any]:
    """Where everything is, and everybody signed in."""
    service = service_token(stack)
    at = urlsplit(stack.record["gateway_url"])
    transport = SocketTransport(stack.url, token=service)
    try:
        tokens = [
            token
            for number in range(PEOPLE)
            for token in await _signed_in(stack.client, Client(transport), number)
        ]
    finally:
        await transport.close()
    sessions = [
        {
            "token": token,
            "clients": [
                (f"bench-{place:06}", _kind(place))
                for place in range(number * CLIENTS, (number + 1) * CLIENTS)
            ],
        }
        for number, token in enumerate(tokens)
    ]
    return {
        "host": at.hostname, "port": at.port, "service": service, "sessions": sessions,
        "playbook": PATH, "rate": RATE, "seconds": seconds, "warm_up_s": WARM_UP_S,
        "reconnect_rate": RECONNECT_RATE, "reconnect_s": RECONNECT_S,
        "pids": {name: stack.pids[name] for name in PARTS},
    }  # fmt: skip


def service_token(stack: Stack) -> str:
    """What our own processes show each other."""
    place = Path(stack.record["home"]) / "secrets" / "internal.token"
    return place.read_text(encoding="utf-8").strip()


async def _signed_in(people: Client, service: Client, number: int) -> list[str]:
    """The sessions of somebody, as a gateway begins them for one who has shown a ticket."""
    account = await people.add_user(NewAccount(subject=f"bench-{number}", roles=("developer",)))
    asked = Login(account_id=account.account_id)
    return [(await service.login(asked)).session_token for _ in range(SESSIONS)]
