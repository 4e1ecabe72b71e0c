"""The chain with requests to a local server instead of Python, beside the chain itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.bare import BODY, bare
from bench.chain import PATH, STEPS, chain, record_of
from bench.limits import at_most
from bench.scenario import on_stack

if TYPE_CHECKING:
    from bench.stack import Stack

STEP_MS = 2.0


def records(repeat: int) -> list[dict[str, Any]]:
    """Milliseconds of a chain of requests, which may take two more for each step."""
    return on_stack(lambda stack: _measure(stack, repeat))


async def _measure(stack: Stack, repeat: int) -> list[dict[str, Any]]:
    plain = await chain(stack, repeat)
    path = f"{PATH}_http"
    limit = at_most("p50", round(plain["p50"] + STEP_MS * STEPS, 3))
    async with bare() as url:
        await stack.register(playbooks.chain_http(path, STEPS, f"{url}/"))
        asked = await record_of(
            stack, "chain-http", path, repeat, limits=[limit],
            is_right=lambda result: result["data"] == json.loads(BODY),
        )  # fmt: skip
    return [asked | {"chain_ms": plain["p50"]}]
