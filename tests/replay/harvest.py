"""Takes the logs of all runs from a server, through the API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine.fold import fold
from noetl.engine.rows import from_row
from tests.e2e.staging import rows_of
from tests.replay.logs import Log, digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.api.client import Client
    from noetl.engine.events import Recorded

MOST = 200


async def harvested(client: Client, on_worker: frozenset[str] = frozenset()) -> list[Log]:
    """The log of every run of a server, in the order of their starts; they have no names yet."""
    runs = (await client.executions(limit=MOST)).items
    logs = [await _log_of(client, run.execution_id) for run in reversed(runs)]
    logs[0].on_worker = sorted(on_worker)
    for log in logs:
        ended(log)
    return logs


async def _log_of(client: Client, execution_id: str) -> Log:
    run = await client.execution(execution_id, with_state=False)
    entry = await client.entry(run.catalog_id)
    rows = [from_row(row) for row in await rows_of(client, execution_id)]
    log = Log(name="", playbook=entry.content or "", rows=rows, final="", status=run.status)
    for reference in references(rows):
        log.objects[reference] = json.loads(await client.get_result(reference))
    return log


def ended(log: Log) -> None:
    """Write down what a log comes to."""
    state = log.begun()
    for item in log.rows:
        fold(state, item)
    log.final = digest(state)


def references(rows: Sequence[Recorded]) -> Iterator[str]:
    """The stored values that the events of a log name."""

    def found(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            # A blob that a tool names is data to the engine; what it reads has a store.
            if str(value.get("ref", "")).startswith("noetl://") and "store" in value:
                yield value["ref"]
            for item in value.values():
                yield from found(item)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from found(item)

    for item in rows:
        yield from found(msgspec.to_builtins(item.event))
