"""Lists, starts and details with a million runs and their events in the tables.

The history is made by SQL from runs that really happened (`bench.history`): some values that lists
filter by are everywhere, some are rare, some stand only in the oldest part, so that a list that
walks through the runs until enough of them fit is found out.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from bench import history, playbooks
from bench.limits import at_most
from bench.processes import rss_mib
from bench.sampling import percentile
from bench.scenario import made, on_stack
from bench.stack import embedded
from noetl.api.executions import Execute
from noetl.clock import SystemClock, rfc3339

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bench.history import History
    from bench.stack import Stack

    Filters = Mapping[str, str | list[str]]

RUNS: Final = 1_000_000
STEPS: Final = 1
"""Of each run of the history: nine events. At length there are four, which is thirty events."""
LONG_STEPS: Final = 4
PATH: Final = "bench/start"
LONG_LOG: Final = 200_000
SAMPLES: Final = 6
"""Requests for each repeat and filter."""
STARTS: Final = 400
PAGES: Final = 100
MOST_LIST_MS: Final = (100.0, 400.0)
MOST_DETAIL_MS: Final = 50.0
MOST_DETAIL_MIB: Final = 20.0
MOST_GROWTH: Final = 1.2
_PARENTS: Final = """
select (select parent_execution_id from noetl.execution where path = 'storm/item' limit 1)::text,
    (select parent_execution_id from noetl.execution
        where parent_execution_id is not null order by execution_id limit 1)::text"""


def records(repeat: int, *, is_long: bool = False) -> list[dict[str, Any]]:
    """Milliseconds of each request, and of a start beside that on an empty stack."""
    return on_stack(lambda stack: _measure(stack, repeat, LONG_STEPS if is_long else STEPS))


async def _measure(stack: Stack, repeat: int, steps: int) -> list[dict[str, Any]]:
    await stack.register(playbooks.chain(PATH, 1))
    made_by = await history.seed(stack, RUNS, steps)
    params = {"runs": made_by.runs, "events": made_by.events, "steps": steps}
    async with embedded() as empty:
        await empty.register(playbooks.chain(PATH, 1))
        starts = await _starts(empty, stack)
    lists = await _lists(stack, repeat * SAMPLES)
    return [
        _of_lists(stack, params, made_by, lists),
        _of_filters(stack, params, lists),
        await _paging(stack, params),
        _of_starts(stack, params, *starts),
        *await _long_log(stack, params, repeat * SAMPLES),
    ]


# ---------------------------------------------------------------------------- lists


def filters_of(storm: str, parent: str) -> dict[str, Filters]:
    """Every filter of a list: values that are everywhere, rare, old, and unknown."""

    def ago(days: float) -> str:
        return rfc3339(SystemClock().now() - timedelta(days=days))

    return {
        "none": {},
        "status": {"status": "COMPLETED"},
        "status, rare": {"status": "CANCELLED"},
        "status, two": {"status": ["FAILED", "CANCELLED"]},
        "status, none": {"status": "PAUSED"},
        "path": {"path": "bench/flow_3"},
        "path, old": {"path": "legacy/job_3"},
        "path, unknown": {"path": "no/such"},
        "path prefix": {"path": "bench/*"},
        "path prefix, old": {"path": "legacy/*"},
        "path prefix, rare": {"path": "rare/*"},
        "catalog_id, old": {"catalog_id": "10"},
        "catalog_id, rare": {"catalog_id": "11"},
        "version": {"version": "1"},
        "version, old": {"version": "7"},
        "version, unknown": {"version": "99"},
        "parent, few": {"parent_execution_id": parent},
        "parent, many": {"parent_execution_id": storm},
        "parent, none": {"parent_execution_id": "none"},
        "label": {"label": "team:team-2"},
        "label, rare": {"label": "team:rare"},
        "label, old": {"label": "era:old"},
        "pool": {"pool": "shared"},
        "pool, old": {"pool": "retired"},
        "pool, rare": {"pool": "gpu"},
        "created_by": {"created_by": "user-1"},
        "created_by, old": {"created_by": "leaver"},
        "since, an hour": {"since": ago(1 / 24)},
        "since, ten days": {"since": ago(10)},
        "until, old": {"until": ago(29)},
        "since and until": {"since": ago(15), "until": ago(14.999)},
        "has_error": {"has_error": "true"},
        "has_error, not": {"has_error": "false"},
        "request_id": {"request_id": f"request-{RUNS // 2}"},
        "client_id": {"client_id": "client-500"},
        "client_id, old": {"client_id": "client-old"},
        "q, path": {"q": "bench/"},
        "q, path, old": {"q": "legacy"},
        "q, message": {"q": "oops: the host 7 "},
        "q, message, old": {"q": "gone: 1"},
        "q, unknown": {"q": "zzz"},
    }


async def _lists(stack: Stack, samples: int) -> dict[str, list[float]]:
    parents = await stack.connection.fetchrow(_PARENTS)
    if parents is None:
        raise RuntimeError("there is no run with a parent")
    asked = filters_of(*parents)

    async def one(name: str) -> float:
        return await _ms(lambda: stack.client.executions(**asked[name]))

    found: dict[str, list[float]] = {name: [] for name in asked}
    for turn in range(samples + 1):
        for name in asked:
            taken = await one(name)
            if turn:  # the first one only warms up
                found[name].append(taken)
    return found


def _of_lists(
    stack: Stack, params: dict[str, Any], seeded: History, lists: dict[str, list[float]]
) -> dict[str, Any]:
    return made(
        stack, "scale-history", lists["none"], unit="ms", params=params,
        limits=[at_most("p95", *MOST_LIST_MS)],
        seeded={"seconds": seeded.seconds, "mib": seeded.mib},
        ratios=_round_trips(stack, lists["none"]),
    )  # fmt: skip


def _of_filters(
    stack: Stack, params: dict[str, Any], lists: dict[str, list[float]]
) -> dict[str, Any]:
    each = {name: sorted(samples) for name, samples in lists.items() if name != "none"}
    worst = {name: percentile(samples, 0.95) for name, samples in each.items()}
    return made(
        stack, "scale-history-filters", list(worst.values()), unit="ms (p95 of a filter)",
        params=params, limits=[at_most("worst_p95_ms", *MOST_LIST_MS)],
        worst_p95_ms=round(max(worst.values()), 1),
        ratios=_round_trips(stack, list(worst.values())),
        by_filter={
            name: {"p50": round(percentile(samples, 0.5), 2), "p95": round(worst[name], 2)}
            for name, samples in each.items()
        },
    )  # fmt: skip


async def _paging(stack: Stack, params: dict[str, Any]) -> dict[str, Any]:
    """Pages from the newest on while runs are started: each row once, in order, none left out."""
    done = asyncio.Event()
    started: list[str] = []

    async def write() -> None:
        while not done.is_set():
            started.append((await stack.client.execute(_start())).execution_id)

    writing = asyncio.ensure_future(write())
    times: list[float] = []
    seen: list[int] = []
    cursor: dict[str, str] = {}
    try:
        for _ in range(PAGES):
            before = time.perf_counter()
            page = await stack.client.executions(limit=200, **cursor)
            times.append((time.perf_counter() - before) * 1000)
            seen += [int(item.execution_id) for item in page.items]
            cursor = {"cursor": page.next_cursor or ""}
    finally:
        done.set()
        await writing
    rows = await stack.connection.fetch(
        "select execution_id from noetl.execution where execution_id between $1 and $2 "
        "order by execution_id desc", seen[-1], seen[0],
    )  # fmt: skip
    is_right = seen == [row["execution_id"] for row in rows]
    return made(
        stack, "scale-history-paging", times, unit="ms", params=params,
        limits=[at_most("p95", *MOST_LIST_MS)], correct=is_right and bool(started),
        ratios=_round_trips(stack, times),
        pages=PAGES, rows=len(seen), started_meanwhile=len(started),
    )  # fmt: skip


# ---------------------------------------------------------------------------- starts and details


def _start() -> Execute:
    return Execute(path=PATH, execution_pool=history.NOBODY)


async def _starts(empty: Stack, full: Stack) -> tuple[list[float], list[float]]:
    """Starts on both in turn, so that whatever else the machine does is in both.

    Nobody works on them, so that nothing else is measured.
    """
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(STARTS // 4 + STARTS):
        for stack, times in zip((empty, full), found, strict=True):
            taken = await _ms(lambda stack=stack: stack.client.execute(_start()))
            if turn >= STARTS // 4:  # the first ones only warm up
                times.append(taken)
    return found


def _of_starts(
    stack: Stack, params: dict[str, Any], empty: list[float], full: list[float]
) -> dict[str, Any]:
    first, last = sorted(empty), sorted(full)
    ratios = {
        name: round(percentile(last, part) / percentile(first, part), 3)
        for name, part in (("p50", 0.5), ("p95", 0.95))
    }
    return made(
        stack, "scale-history-execute", full, unit="ms", params=params,
        limits=[at_most("ratios.p95", MOST_GROWTH)], ratios=ratios,
        empty={"p50": round(percentile(first, 0.5), 3), "p95": round(percentile(first, 0.95), 3)},
    )  # fmt: skip


async def _long_log(stack: Stack, params: dict[str, Any], samples: int) -> list[dict[str, Any]]:
    """What it costs to look at a run with a long log."""
    run = await history.lengthened(stack, LONG_LOG)
    client, server = stack.client, stack.pids["server"]
    params = params | {"log": LONG_LOG}

    async def measured(ask: Callable[[], Awaitable[object]]) -> tuple[list[float], float]:
        before = rss_mib(server)
        times = [await _ms(ask) for _ in range(samples)]
        return times, round(max(0.0, rss_mib(server) - before), 1)

    found = []
    for name, ask in {
        "detail": lambda: client.execution(run, with_state=False),
        "events": lambda: client.events(run, LONG_LOG // 2, 100),
        "dashboard": client.dashboard,
    }.items():
        times, mib = await measured(ask)
        limits = [at_most("p95", MOST_DETAIL_MS), at_most("rss_mib", MOST_DETAIL_MIB)]
        found.append(
            made(stack, f"scale-history-{name}", times, unit="ms", params=params,
                 limits=limits if name == "detail" else [], rss_mib=mib,
                 ratios=_round_trips(stack, times))
        )  # fmt: skip
    return found


def _round_trips(stack: Stack, times: list[float]) -> dict[str, float]:
    """A request beside a bare one to a server that does nothing."""
    return {"raw_round_trips": round(statistics.median(times) / 1000 * stack.raw.http_serial, 2)}


async def _ms(ask: Callable[[], Awaitable[object]]) -> float:
    before = time.perf_counter()
    await ask()
    return (time.perf_counter() - before) * 1000
