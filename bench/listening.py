"""A stream of NATS, a subscription to it, and what became of its messages, for the scenarios."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import nats
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from bench import playbooks
from bench.processes import cpu_s, trees
from bench.stack import noetl
from noetl.api.credentials import CredentialPut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.aio.client import Client as Connection
    from nats.js import JetStreamContext

    from bench.stack import Stack

KEYS: Final = 100
"""Messages have keys in turn."""
CONSUMER: Final = "bench"
LOOK_AGAIN_S: Final = 0.05
MOST_S: Final = 600.0
_AT_ONCE: Final = 500
_RUNS: Final = """
SELECT count(*) AS runs, count(DISTINCT dedup_key) AS messages, max(started_at) AS last,
       extract(epoch FROM max(started_at) - min(started_at))::float8 AS seconds
FROM noetl.execution WHERE path = $1
"""
_ORDER: Final = """
SELECT (workload->>'key') AS key, array_agg((workload->>'n')::int ORDER BY execution_id) AS numbers
FROM noetl.execution WHERE path = $1 GROUP BY 1
"""
_ENDED: Final = "SELECT count(*) FROM noetl.execution WHERE path = $1 AND status = $2"
_HEAD: Final = "apiVersion: noetl.io/v1\nkind: Subscription\n"


@dataclass(slots=True, kw_only=True)
class Site:
    """A stream of its own, and the subscription to it."""

    stack: Stack
    name: str
    client: Connection
    stream: JetStreamContext
    subscription_id: str = ""

    @property
    def path(self) -> str:
        """Of the subscription."""
        return f"bench/{self.name}"

    @property
    def playbook(self) -> str:
        """The path of what every message starts."""
        return f"bench/{self.name}/one"

    async def register(self, spec: dict[str, Any]) -> None:
        """Keep the playbook and the subscription; nobody listens yet."""
        await self.stack.register(
            playbooks.playbook(
                self.playbook, {"step": "start", "tool": playbooks.python("result = 1")}
            )
        )
        dispatch = {"playbook": self.playbook} | spec["dispatch"]
        whole = {
            "source": "nats", "mode": "pull", "auth": self.name, "stream": self.name,
            "consumer": CONSUMER, "dedup": {"enabled": True, "window_secs": 600},
        } | spec  # fmt: skip
        whole["dispatch"] = dispatch
        about = json.dumps({"name": self.name, "path": self.path})
        await self.stack.register(f"{_HEAD}metadata: {about}\nspec: {json.dumps(whole)}\n")
        known = await self.stack.client.register_subscription(self.path)
        self.subscription_id = known.subscription_id

    async def send(self, count: int, first: int = 0) -> None:
        """Put so many messages into the stream."""
        before = (await self.stream.stream_info(self.name)).state.messages
        for n in range(first, first + count):
            body = json.dumps({"n": n, "key": f"k-{n % KEYS}"}).encode()
            await self.client.publish(f"{self.name}.{n % KEYS}", body)
            if n % _AT_ONCE == 0:
                await self.client.flush()

        async def is_there() -> bool:
            state = (await self.stream.stream_info(self.name)).state
            return state.messages == before + count

        await until(is_there)

    async def activate(self) -> None:
        """The stack listens from now on."""
        await self.stack.client.steer_subscription(self.subscription_id, "activate")

    async def acked(self) -> None:
        """Wait until nothing waits at the source, and nothing is held."""

        async def is_so() -> bool:
            return not await self.left()

        await until(is_so)

    async def left(self) -> int:
        """How many messages wait at the source, or are held."""
        info = await self.stream.consumer_info(self.name, CONSUMER)
        return int(info.num_pending or 0) + int(info.num_ack_pending or 0)

    async def runs(self) -> dict[str, Any]:
        """How many runs there are, of how many messages, and in which time they were accepted."""
        return dict(await self.stack.connection.fetchrow(_RUNS, self.playbook) or {})

    async def ended(self, status: str = "COMPLETED") -> int:
        """How many runs have come to such an end."""
        return int(await self.stack.connection.fetchval(_ENDED, self.playbook, status))

    async def is_in_order(self, count: int) -> bool:
        """Whether the runs of each key began in the order of their messages, and all did."""
        rows = await self.stack.connection.fetch(_ORDER, self.playbook)
        found = {row["key"]: row["numbers"] for row in rows}
        return found == {
            f"k-{key}": list(range(key, count, KEYS)) for key in range(min(KEYS, count))
        }

    async def pids(self) -> dict[str, list[int]]:
        """The processes of the stack, the listener's among them."""
        told = json.loads(await noetl(self.stack.environ, "status", "-ojson"))
        parts = {part["name"]: part["pid"] for part in told["parts"] if part.get("pid")}
        named = {
            "listener" if name.startswith("listener-") else name: pid for name, pid in parts.items()
        }
        return trees(named | {"up": self.stack.pids["up"]})


@asynccontextmanager
async def site(stack: Stack, name: str, *, ack_wait_s: float = 60.0) -> AsyncIterator[Site]:
    """A stream with a consumer and a credential; it is deleted afterwards, and nobody listens."""
    client = await nats.connect(stack.nats_url)
    stream = client.jetstream(timeout=30.0)
    await stream.add_stream(name=name, subjects=[f"{name}.>"], storage=StorageType.FILE)
    consumer = ConsumerConfig(
        durable_name=CONSUMER, ack_policy=AckPolicy.EXPLICIT, ack_wait=ack_wait_s,
        max_ack_pending=20_000,
    )  # fmt: skip
    await stream.add_consumer(name, consumer)
    data = {"url": stack.nats_url}
    await stack.client.put_credential(CredentialPut(name=name, type="nats", data=data))
    found = Site(stack=stack, name=name, client=client, stream=stream)
    try:
        yield found
        if found.subscription_id:
            await stack.client.steer_subscription(found.subscription_id, "deactivate")
        await stream.delete_stream(name)
    finally:
        await client.close()


def spent(pids: dict[str, list[int]]) -> dict[str, float]:
    """Processor seconds of each part so far."""
    return {name: cpu_s(under) for name, under in pids.items()}


def cost_ms(before: dict[str, float], after: dict[str, float], units: int) -> dict[str, float]:
    """Processor milliseconds of each part for one unit of work; what was not there began at 0."""
    return {
        name: round((total - before.get(name, 0.0)) * 1000 / units, 3)
        for name, total in after.items()
    }


async def until(is_so: Callable[[], Awaitable[bool]], most_s: float = MOST_S) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(most_s):
        while not await is_so():  # noqa: ASYNC110 - other processes do it
            await asyncio.sleep(LOOK_AGAIN_S)
