"""The example `examples/subscriptions` at work: 1,000 readings, and its store away in between.

The store, the sender and the documents are those of the example; only the port is another one.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from bench.listening import until
from bench.scenario import made
from noetl.api.credentials import CredentialPut
from noetl.local.embedded.ports import free_port

if TYPE_CHECKING:
    from bench.stack import Stack

EXAMPLE: Final = Path(__file__).resolve().parents[1] / "examples" / "subscriptions"
DOCUMENTS: Final = ("store_reading.yaml", "raise_alarm.yaml", "readings.yaml")
PATH: Final = "examples/subscriptions/readings"
READINGS: Final = 1_000
SOME: Final = 200
"""Readings that are stored before the store goes away."""
AWAY_S: Final = 2.0
_DONE: Final = """
SELECT count(*) AS runs, count(DISTINCT split_part(dedup_key, '#', 1)) AS messages
FROM noetl.execution WHERE path LIKE 'examples/subscriptions/%' AND status = 'COMPLETED'
"""


class Store:
    """The example's store, which can be away and keeps what it has."""

    def __init__(self) -> None:
        self.port = free_port()
        self._made = runpy.run_path(str(EXAMPLE / "store.py"))
        self._server: ThreadingHTTPServer | None = None

    @property
    def readings(self) -> list[dict[str, Any]]:
        """What was stored, in the order in which it came."""
        found: list[dict[str, Any]] = self._made["READINGS"]
        return found

    def up(self) -> None:
        """Be there."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._made["Store"])
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self) -> None:
        """Be away."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


async def proof(stack: Stack) -> dict[str, Any]:
    """Readings a second from the first that is stored to the last, the outage included."""
    store = Store()
    data = {"url": stack.nats_url}
    await stack.client.put_credential(CredentialPut(name="meters_nats", type="nats", data=data))
    for name in DOCUMENTS:
        text = (EXAMPLE / name).read_text(encoding="utf-8")
        await stack.register(text.replace("127.0.0.1:8099", f"127.0.0.1:{store.port}"))
    known = await stack.client.register_subscription(PATH)
    url_file = Path(stack.record["home"]) / "secrets" / "nats.url"
    try:
        store.up()
        await _sent(url_file)
        await stack.client.steer_subscription(known.subscription_id, "activate")
        await until(lambda: _has(store, 1))
        began = time.perf_counter()
        await until(lambda: _has(store, SOME))
        await asyncio.to_thread(store.down)
        await asyncio.sleep(AWAY_S)
        store.up()
        await until(lambda: _has(store, READINGS))
        taken = time.perf_counter() - began
        await until(lambda: _are_done(stack))
    finally:
        store.down()
    done = await _done(stack)
    numbers = {reading["n"] for reading in store.readings}
    await stack.client.steer_subscription(known.subscription_id, "deactivate")
    return made(
        stack, "subscriptions-example", [READINGS / taken], unit="messages/s", better="higher",
        correct=numbers == set(range(1, READINGS + 1))
        and done == (READINGS, READINGS),
        params={"messages": READINGS, "away_s": AWAY_S},
        stored_again=len(store.readings) - READINGS,
    )  # fmt: skip


async def _sent(url_file: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE / "send.py", url_file, str(READINGS),
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    if await process.wait():
        raise RuntimeError("the readings were not sent")


async def _has(store: Store, count: int) -> bool:
    return len({reading["n"] for reading in store.readings}) >= count


async def _are_done(stack: Stack) -> bool:
    return (await _done(stack))[1] >= READINGS


async def _done(stack: Stack) -> tuple[int, int]:
    """Runs that ended well, and of how many messages."""
    [row] = await stack.connection.fetch(_DONE)
    return int(row["runs"]), int(row["messages"])
