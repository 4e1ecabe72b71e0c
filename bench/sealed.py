"""What a credential adds to a step: a request with a token out of the wallet beside one without.

Runs of one step are taken in turn with and without `auth`, so that both meet the same machine. Each
run is another one: its worker asks the server, which opens the credential and seals it to the key
of that worker. All caches are warm.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

from bench import playbooks
from bench.bare import bare
from bench.limits import at_most
from bench.scenario import made, on_stack
from noetl.api.credentials import CredentialPut

if TYPE_CHECKING:
    from bench.stack import Stack

NAME: Final = "bench-token"
PLAIN: Final = "bench/plain"
SEALED: Final = "bench/sealed"
PAIRS: Final = 300
EACH: Final = 60
"""Pairs for each repeat, when that is less."""
WARM_UP: Final = 50
MOST_MS: Final = 2.0


def records(repeat: int) -> list[dict[str, Any]]:
    """Milliseconds that a sealed delivery adds to a step."""
    return on_stack(lambda stack: _measure(stack, min(PAIRS, repeat * EACH)))


async def _measure(stack: Stack, pairs: int) -> list[dict[str, Any]]:
    secret = CredentialPut(name=NAME, type="bearer", data={"token": "of-the-benchmark"})
    await stack.client.put_credential(secret)
    async with bare() as url:
        for path, more in ((PLAIN, {}), (SEALED, {"auth": NAME})):
            tool = {"kind": "http", "method": "GET", "url": f"{url}/", **more}
            await stack.register(playbooks.playbook(path, {"step": "start", "tool": tool}))
        for _ in range(WARM_UP):
            await _ms(stack, PLAIN)
            await _ms(stack, SEALED)
        taken = [(await _ms(stack, PLAIN), await _ms(stack, SEALED)) for _ in range(pairs)]
    added = [sealed - plain for plain, sealed in taken]
    return [
        made(
            stack, "sealed", added, unit="ms", correct=True,
            limits=[at_most("p50", MOST_MS, 2 * MOST_MS)], params={"pairs": pairs},
            plain_ms=round(statistics.median(plain for plain, _ in taken), 3),
            sealed_ms=round(statistics.median(sealed for _, sealed in taken), 3),
        )
    ]  # fmt: skip


async def _ms(stack: Stack, path: str) -> float:
    """The time of a run, which must end well."""
    _, taken = await stack.run(path)
    return taken * 1000
