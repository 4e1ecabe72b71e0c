"""What the server is told of subscriptions whose deliveries come to a gateway."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from noetl.api.registering import BEAT_S, Registration
from noetl.local.virtual import run_virtually
from noetl.secrets.sealed import KeyPair

PATH = "subscriptions/orders"


class Server:
    """Notes who registers and who lives."""

    def __init__(self):
        self.told = []
        self.beats = 0

    async def register_worker(self, entry):
        self.told.append(entry.runtime["subscriptions"])
        return SimpleNamespace(machine_id=None)

    async def pool_heartbeat(self, beat):
        del beat
        self.beats += 1


def test_figures_are_told_when_they_are_others():
    async def main():
        server, figures = Server(), {}
        registration = Registration(lambda: server, "one", "gateway", KeyPair.make())
        registration.figures = lambda: {path: dict(one) for path, one in figures.items()}
        task = asyncio.create_task(registration.run())
        await asyncio.sleep(3 * BEAT_S + 1)
        assert (server.told, server.beats) == ([{}], 3)
        figures[PATH] = {"in_flight": 1}
        await asyncio.sleep(3 * BEAT_S)
        assert (server.told, server.beats) == ([{}, {PATH: {"in_flight": 1}}], 5)
        figures[PATH]["in_flight"] = 0
        await asyncio.sleep(BEAT_S)
        assert server.told[-1] == {PATH: {"in_flight": 0}}
        task.cancel()

    run_virtually(main())
