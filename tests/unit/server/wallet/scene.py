"""A server with a wallet, a worker that has a key, and a system that gives tokens."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.api.runtime import WorkerEntry
from noetl.secrets.fetch import Answer
from noetl.secrets.kek.local import LocalKek
from noetl.secrets.sealed import KeyPair, Sealed, about_delivery
from noetl.secrets.wallet import Wallet
from tests.unit.server.rig import Rig, rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from noetl.api.commands import Command
    from noetl.secrets.fetch import Ask

CANARY = "wallet-canary-8812"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: demo/it}\n"


class SystemTime:
    """The time of the loop that asks, for a wallet that is made before there is one."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class Asked:
    """Answers requests, and remembers them."""

    def __init__(self, answer: Callable[[Ask], Any]) -> None:
        self._answer = answer
        self.asks: list[Ask] = []

    async def __call__(self, ask: Ask) -> Answer:
        self.asks.append(ask)
        found = self._answer(ask)
        if isinstance(found, Answer):
            return found
        return Answer(status=200, headers={}, body=msgspec.json.encode(found))


class Scene:
    """What tests do with secrets."""

    def __init__(self, r: Rig) -> None:
        self.r = r
        self.client = r.client
        self.keys = KeyPair.make()
        self.run = ""

    async def join(self, name: str = "w", **more: Any) -> None:
        """Let a worker join, with a key or with something else in its place."""
        runtime = {"pool": "shared", "worker_public_key": self.keys.public} | more
        await self.client.register_worker(WorkerEntry(name=name, capacity=4, runtime=runtime))

    async def claimed(self, body: str, payload: dict[str, Any] | None = None) -> Command:
        """A command of a run of this playbook, held by the worker."""
        await self.client.register(Register(content=HEAD + body))
        started = await self.client.execute(Execute(path="demo/it", payload=payload or {}))
        self.run = started.execution_id
        (command,) = await self.r.claim()
        return command

    async def sealed(self, name: str, command: Command, **more: Any) -> Any:
        """What the worker finds inside of a delivery."""
        asked = {
            "worker_id": "w", "execution_id": command.execution_id,
            "command_id": command.command_id,
        } | more  # fmt: skip
        answer = await self.client.sealed(name, **asked)
        return self.opened(answer, name, command.execution_id)

    def opened(self, answer: Any, name: str, run: str, worker_id: str = "w") -> Any:
        given = Sealed(
            alg=answer.alg, v=answer.v, eph_pub=answer.eph_pub, ciphertext=answer.ciphertext
        )
        return msgspec.json.decode(self.keys.open(given, about_delivery(worker_id, run, name)))


@asynccontextmanager
async def scene(keys: str = "", **more: Any) -> AsyncIterator[Scene]:
    """A server with a wallet, and a worker."""
    if keys:
        more["wallet"] = Wallet(LocalKek(keys), SystemTime())
    async with rig(**more) as r:
        made = Scene(r)
        if r.plane.parts.is_open:
            await made.join()
        yield made
