"""What scenarios on a stack share: warm-up, counted runs, and records with raw limits in them."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import uvloop

from bench import raw
from bench.counters import per
from bench.sampling import record
from bench.stack import NO_SETTINGS, embedded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bench.stack import Stack

LINE = raw.LINE


def on_stack(
    measure: Callable[[Stack], Awaitable[list[dict[str, Any]]]],
    settings: Mapping[str, str] = NO_SETTINGS,
    port: int | str = "auto",
) -> list[dict[str, Any]]:
    """The records of a scenario on a stack of its own."""

    async def run() -> list[dict[str, Any]]:
        async with embedded(settings, port) as stack:
            return await measure(stack)

    return uvloop.run(run())


async def counted(
    stack: Stack, unit: str, count: int, work: Callable[[], Awaitable[object]]
) -> dict[str, Any]:
    """What each of `count` units costs, counted around work that is not timed."""
    before = await stack.counters.read()
    await work()
    return per(unit, before, await stack.counters.read(), count)


def made(stack: Stack, name: str, samples: list[float], **facts: Any) -> dict[str, Any]:  # noqa: ANN401 - a record
    """A record with the raw limits of the same run."""
    return record(name, samples, raw=stack.raw.as_json(), on=stack.facts, **facts)


async def paired(
    stack: Stack, repeat: int, sample: Callable[[], Awaitable[float]]
) -> tuple[list[float], list[float]]:
    """Samples, each beside what forty raw commits took just before it."""
    samples, lines = [], []
    for _ in range(repeat):
        lines.append(await stack.commits.line_ms())
        samples.append(await sample())
    return samples, lines


async def beside(
    stack: Stack, repeat: int, sample: Callable[[], Awaitable[float]]
) -> tuple[list[float], float]:
    """Rates, and the median of what they are of the raw commits in line just before each."""
    rates, lines = await paired(stack, repeat, sample)
    shares = [one * line / (LINE * 1000) for one, line in zip(rates, lines, strict=True)]
    return rates, round(statistics.median(shares), 3)


def commits_ms(stack: Stack, count: float) -> float:
    """What so many raw commits in line take."""
    return count / stack.raw.commits_serial * 1000
