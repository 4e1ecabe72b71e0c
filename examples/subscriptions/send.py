"""Sends readings of meters: `python examples/subscriptions/send.py URL-FILE [COUNT]`.

The file holds the address of a NATS server with JetStream, such as `.noetl/secrets/nats.url`. The
stream METERS and its consumer are made when they are missing. The readings come from ten meters;
the third and the eighth are alarms.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import nats
from nats.js.api import AckPolicy, ConsumerConfig

ALARMS = {3, 8}
ROUTE = "examples/subscriptions/raise_alarm"


async def send(url: str, count: int) -> None:
    """Make what is missing, and send."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name="METERS", subjects=["meters.>"])
        consumer = ConsumerConfig(
            durable_name="noetl", ack_policy=AckPolicy.EXPLICIT, ack_wait=30, max_ack_pending=1000
        )
        await stream.add_consumer("METERS", consumer)
        for n in range(1, count + 1):
            meter = f"m-{n % 10}"
            headers = {"traceparent": f"00-{n:032x}-{n:016x}-01"}
            if n in ALARMS:
                headers["x-route"] = ROUTE
            body = json.dumps({"meter": meter, "litres": n, "n": n}).encode()
            await stream.publish(f"meters.{meter}", body, headers=headers)
    finally:
        await client.close()


if __name__ == "__main__":
    file, count = (*sys.argv[1:], "1000")[:2]
    asyncio.run(send(Path(file).read_text(encoding="utf-8").strip(), int(count)))
    sys.stdout.write(f"{count} readings were sent\n")
