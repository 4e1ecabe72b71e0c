"""The engines that are compared, and under which conditions each of them runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bench.peers.install import version
from noetl import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a reader must know about one column of the table."""

    name: str
    title: str
    runs: str
    """Which processes there are."""
    kept: str
    """What is on disk when it says that something is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer(Engine):
    """An engine that is not ours."""

    environment: str
    module: str
    options: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    """`{port}` stands for one that is free."""


OURS: Final = Engine(
    name="noetl",
    title=f"NoETL {__version__}",
    runs="client, server, a worker of the shared pool, PostgreSQL and NATS are processes of their "
    "own; steps run in child interpreters of the worker",
    kept="PostgreSQL, fsync before every reply",
)

PEERS: Final = (
    Peer(
        name="dbos",
        title=f"DBOS {version('dbos', 'dbos')}",
        runs="a library: client, engine and steps are one process beside PostgreSQL",
        kept="the same PostgreSQL as ours in a database of its own, fsync before a step is done",
        environment="dbos",
        module="on_dbos",
    ),
    Peer(
        name="restate",
        title=f"Restate {version('restate', 'npm:@restatedev/restate-server')}",
        runs="client, one server node, and two service processes that it calls",
        kept="its own log, fsync before a step is done",
        environment="restate",
        module="on_restate",
    ),
    Peer(
        name="celery",
        title=f"Celery {version('celery', 'celery')}",
        runs="client, Redis, and one worker with two processes; a bare queue without a log of runs",
        kept="Redis as it comes: memory, written to disk now and then; a task is taken off the "
        "queue before it runs",
        environment="celery",
        module="on_celery",
    ),
    Peer(
        name="celery-fsync",
        title=f"Celery {version('celery', 'celery')}, fsync",
        runs="as celery",
        kept="Redis with its append-only file, fsync before every reply; a task is taken off the "
        "queue after it ran",
        environment="celery",
        module="on_celery",
        options=("--fsync",),
    ),
    Peer(
        name="prefect",
        title=f"Prefect {version('prefect', 'prefect')}",
        runs="flows and tasks are threads of the client, which tell a server of one process",
        kept="SQLite of the server as it comes: no fsync for each change; "
        "results of tasks stay in memory",
        environment="prefect",
        module="on_prefect",
        environ={
            "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_LEVEL": "WARNING",
            "PREFECT_API_URL": "http://127.0.0.1:{port}/api",
        },
    ),
)


def named(names: list[str]) -> list[Peer]:
    """The peers of the words of a command line; all of them without a word."""
    known = {peer.name: peer for peer in PEERS}
    unknown = [name for name in names if name not in known]
    if unknown:
        listed = ", ".join(known)
        raise SystemExit(f"bench.peers: no such peer: {', '.join(unknown)}; there are {listed}")
    return [known[name] for name in dict.fromkeys(names or known)]
