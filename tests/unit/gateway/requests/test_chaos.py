"""Two gateways, parts that fail at random, and every request told its end exactly once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.gateway import Callback, Wish
from noetl.errors import NoetlError
from tests.unit.gateway.requests.desk import ANN, CLIENT, desk
from tests.unit.server.rig import virtually

if TYPE_CHECKING:
    from tests.unit.gateway.requests.desk import Desk, Replica

OPERATIONS = ("get", "create", "put", "update", "delete", "names")


class Chaos:
    """One history."""

    def __init__(self, d: Desk, seed: int) -> None:
        self.d = d
        self.random = Random(seed)
        self.replicas: tuple[Replica, ...] = (d, d.replica())
        self.made: dict[str, str] = {}
        """The runs of the requests that were accepted."""
        self.maybe: set[str] = set()
        """Runs that may have been started."""
        self.tokens: dict[str, str] = {}

    async def start(self) -> None:
        wish = Wish(
            name="demo/it",
            client_id=CLIENT,
            timeout_secs=self.random.choice((3, 60, None)),
            on_timeout=self.random.choice(("leave", "cancel")),
            idempotency_key=self.random.choice((None, None, "k")),
        )
        try:
            started = await self.random.choice(self.replicas).requests.start(ANN, wish)
        except NoetlError as fault:
            self.maybe.add(getattr(fault, "execution_id", None) or "")
            return
        self.made[started.request_id] = started.execution_id

    async def call_back(self) -> None:
        if not self.made:
            return
        name = self.random.choice(sorted(self.made))
        with suppress(NoetlError, KeyError):
            if name not in self.tokens:
                secrets = self.d.server.plane.runs.inputs._secrets  # noqa: SLF001 - of workers
                found = await secrets.of("default", self.made[name])
                self.tokens[name] = str(found["callback_token"])
            body = Callback(request_id=name, data={"by": "callback"})
            await self.random.choice(self.replicas).requests.callback(body, self.tokens[name])

    async def step(self) -> None:
        with suppress(NoetlError):
            await self.d.step({"by": "run"})

    async def hear(self) -> None:
        with suppress(NoetlError):
            await self.random.choice(self.replicas).heard()

    async def sweep(self) -> None:
        with suppress(NoetlError):
            await self.random.choice(self.replicas).requests.sweeping.sweep()

    async def wait(self) -> None:
        await asyncio.sleep(self.random.choice((0.1, 1.0, 5.0)))

    async def cancel(self) -> None:
        if self.made:
            name = self.random.choice(sorted(self.made))
            with suppress(NoetlError):
                await self.random.choice(self.replicas).requests.cancel(ANN, request_id=name)

    async def bar(self) -> None:
        keys = self.random.choice(self.replicas).keys
        kind = self.random.choice((keys.barred, keys.deaf))
        kind.add(self.random.choice(OPERATIONS))
        if self.random.random() < 0.2:
            self.d.way.is_barred = True

    async def mend(self) -> None:
        for replica in self.replicas:
            replica.keys.barred.clear()
            replica.keys.deaf.clear()
        self.d.way.is_barred = False

    async def restart(self) -> None:
        """One of the gateways is killed, with all that it remembers."""
        self.replicas = (self.d, self.d.replica())

    async def run(self) -> None:
        usual: list[Any] = [self.start, self.call_back, self.step, self.hear, self.sweep, self.wait]
        rare = [self.bar, self.mend, self.mend, self.cancel, self.restart]
        for _ in range(60):
            chosen = self.random.choices(usual + rare, k=self.random.randint(1, 3))
            await asyncio.gather(*(each() for each in chosen))
        await self.mend()
        for _ in range(40):
            await self.step()
            await self.hear()
            await self.sweep()
            await asyncio.sleep(5)


@pytest.mark.parametrize("seed", [*range(12), 488])
def test_every_request_is_told_its_end_exactly_once(seed: int) -> None:
    @virtually
    async def run() -> None:
        async with desk() as d:
            chaos = Chaos(d, seed)
            await chaos.run()
            results = await d.results()
            told = [each["requestId"] for each in results]
            assert len(told) == len(set(told)), "nothing is told twice"
            assert set(chaos.made) <= set(told), "nothing that was accepted is lost"
            assert await d.requests.parts.records.opened() == []
            for each in results:
                kept = await d.requests.document(ANN, each["requestId"])
                assert each.get("data") == kept.result
                assert (each.get("error") or {}).get("code") == (
                    kept.error.code if kept.error else None
                )
            page = await d.system.executions(limit=200)
            started = [item.execution_id for item in page.items]
            assert len(started) == len(set(started))
            assert set(chaos.made.values()) <= set(started)

    run()
