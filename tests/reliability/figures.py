"""What a process shows of itself: its metrics, and the sockets that it holds open."""

from __future__ import annotations

import asyncio
from pathlib import Path

from noetl.local.embedded.probe import ask

ANSWER_S = 10.0


async def figure(stack, part, name):
    """The sum of a metric over its labels."""
    page = stack.parts[part].health.replace("/readyz", "/metrics")
    token = {"Authorization": f"Bearer {stack.mould.admin}"}
    answer = await ask(page, token, ANSWER_S)
    assert answer is not None, f"{part} shows no metrics"
    assert answer[0] == 200, answer
    found = [line.rpartition(" ") for line in answer[1].decode().splitlines()]
    return sum(float(value) for key, _, value in found if key.partition("{")[0] == name)


async def reaches(stack, part, name, least):
    """Wait until a metric is at least so large."""
    while await figure(stack, part, name) < least:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.05)


def sockets_of(pid):
    """How many sockets a process has open."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(each.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue  # closed meanwhile
    return found
