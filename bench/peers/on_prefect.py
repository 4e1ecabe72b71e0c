"""Prefect: flows and tasks in the process of their client, which tell a local server.

Run by the interpreter of the peer; where its server is to listen stands in `PREFECT_API_URL`. It is
slow enough that fewer items and runs are measured.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import urlopen

from prefect import flow, task
from prefect.settings import get_current_settings

from bench.peers.children import child, until
from bench.peers.workload import (
    CLIENTS,
    STEPS,
    Ready,
    Task,
    chain,
    fan_out,
    runs,
    serve,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ITEMS = 100
RUNS = 48
SINGLES = 5


@task
def step(number: int) -> int:
    return number


@flow
def in_line(steps: int) -> int:
    last = -1
    for number in range(steps):
        last = step(number)
    return last


@flow
def side_by_side(items: int) -> list[int]:
    return [one.result() for one in step.map(list(range(items)))]


def started(count: int) -> list[int]:
    """Run by so many threads, one by one."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(lambda _: in_line(2), range(count)))


@contextmanager
def engine(given: Task) -> Iterator[Ready]:
    """The server with its own choices."""
    api = str(get_current_settings().api.url)
    port = urlsplit(api).port
    words = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    with child(words, given.folder) as server:
        until("Prefect", lambda: urlopen(f"{api}/health").status, server)  # noqa: S310 - on this machine
        yield Ready(
            works=[
                chain(lambda: in_line(STEPS), each=1),
                fan_out(side_by_side, items=ITEMS),
                runs(started, RUNS),
                single(lambda: in_line(2), each=SINGLES),
            ]
        )


if __name__ == "__main__":
    serve(engine)
