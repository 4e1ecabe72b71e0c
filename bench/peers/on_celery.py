"""Celery as a bare queue: worker processes, and Redis as broker and store of results.

Run by the interpreter of the peer. The worker is another process that imports this module.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celery import Celery, chord, group
from celery import chain as in_line
from redis import Redis

from bench.peers.children import child, free_port, listens, until
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

PROCESSES = 2
WAIT_S = 300.0
NAME = "bench.peers.on_celery"

app = Celery("peer")


@app.task(name="step")
def step(number: int) -> int:
    return number


@app.task(name="collect")
def collect(found: list[int]) -> list[int]:
    return found


def steps(count: int) -> Any:  # noqa: ANN401 - a signature of the library
    """Tasks in line, none of which takes what the one before gave."""
    return in_line(*(step.si(number) for number in range(count)))


def ended(given: Any) -> Any:  # noqa: ANN401 - a signature of the library, and what it gives
    """What came out of it."""
    return given.apply_async().get(timeout=WAIT_S)


def joined(items: int) -> list[int]:
    """Tasks side by side, and one more that is given all their results."""
    given = chord(group(step.s(number) for number in range(items)), collect.s())
    return list(given.apply_async().get(timeout=WAIT_S))


def started(count: int) -> list[int]:
    """Started by so many threads, one by one, and waited for."""
    two = steps(2)
    with ThreadPoolExecutor(CLIENTS) as clients:
        handles = list(clients.map(lambda _: two.clone().apply_async(), range(count)))
        return [handle.get(timeout=WAIT_S) for handle in handles]


def configure(url: str, *, is_fsynced: bool) -> None:
    """The same for the client and for the worker."""
    app.conf.update(broker_url=url, result_backend=url, broker_connection_retry_on_startup=True)
    if is_fsynced:
        app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)


def work(url: str, *, is_fsynced: bool) -> None:
    """Be the worker."""
    configure(url, is_fsynced=is_fsynced)
    app.worker_main(["worker", "-c", str(PROCESSES), "-l", "ERROR"])


@contextmanager
def engine(task: Task) -> Iterator[Ready]:
    """A broker and worker processes."""
    with broker(task) as redis:
        url = f"redis://127.0.0.1:{redis['tcp_port']}/0"
        configure(url, is_fsynced=task.is_fsynced)
        begin = f"from {NAME} import work; work({url!r}, is_fsynced={task.is_fsynced})"
        with child([sys.executable, "-c", begin], task.folder) as worker:
            until("a worker of Celery", lambda: app.control.ping(timeout=0.5), worker)
            yield Ready(
                works=[
                    chain(lambda: ended(steps(STEPS))),
                    fan_out(joined),
                    runs(started),
                    single(lambda: ended(steps(2))),
                ],
                facts={"redis": redis["redis_version"]},
            )


@contextmanager
def broker(task: Task) -> Iterator[dict[str, Any]]:
    """Redis on a port of its own, with its data in the folder; what it tells about itself."""
    port = free_port()
    options = {"port": port, "bind": "127.0.0.1", "dir": task.folder}
    if task.is_fsynced:
        options |= {"appendonly": "yes", "appendfsync": "always"}
    words = [task.home / "bin" / "redis-server"]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with child(words, task.folder) as process, Redis(port=port) as client:
        until("Redis", lambda: listens(port), process)
        yield client.info()


if __name__ == "__main__":
    serve(engine)
