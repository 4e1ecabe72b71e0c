"""Records logs in simulated worlds: generated playbooks in trouble, and scenes written by hand."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.api.executions import Fork
from noetl.blobs.refs import key_of
from noetl.engine.fold import fold
from tests.replay.logs import Log, digest, load, names, save
from tests.replay.scenes import SCENES
from tests.simulation.faults import CALM, Plan, plan_of
from tests.simulation.loop import run_shuffled
from tests.simulation.oracle import whole_log
from tests.simulation.playbooks import HEAD
from tests.simulation.seeds import script_of
from tests.simulation.world import Script, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.engine.events import Recorded
    from noetl.store.base import ExecutionRow
    from tests.replay.scenes import Scene

MOST_ROWS = 90
FORK_S = 600.0
"""Virtual: longer than a fork of any scene takes."""
QUIET = Plan(rates=CALM, chaos_s=1.0)


async def _log_of(world: World, row: ExecutionRow, name: str) -> Log:
    entry = await world.store.catalog.get(row.catalog_id)
    assert entry is not None
    rows = await whole_log(world, row.execution_id)
    log = Log(name=name, playbook=entry.content, rows=rows, final="", status=row.status)
    for reference in _references(rows):
        data = await world.blobs.get(key_of(reference))
        log.objects[reference] = json.loads(data)
    state = log.begun()
    for item in rows:
        fold(state, item)
    log.final = digest(state)
    return log


def _references(rows: list[Recorded]) -> Iterator[str]:
    """The stored values that the events of a log name."""

    def found(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if str(value.get("ref", "")).startswith("noetl://"):
                yield value["ref"]
            for item in value.values():
                yield from found(item)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from found(item)

    for item in rows:
        yield from found(msgspec.to_builtins(item.event))


def of_seed(seed: int) -> list[Log]:
    """Every log of a generated world."""

    async def main() -> list[Log]:
        world = World(script_of(seed), plan_of(seed))
        try:
            await world.live()
            rows = await world.store.executions.listed(limit=1000)
            places = await world.places()
            return [
                await _log_of(world, row, f"seed{seed}-{number:02}")
                for number, row in enumerate(sorted(rows, key=lambda row: places[row.execution_id]))
            ]
        finally:
            await world.end()

    return run_shuffled(main(), f"{seed}/record")


def of_scene(name: str, scene: Scene) -> list[Log]:
    """The logs of a scene."""

    async def main() -> list[Log]:
        playbooks = {path: HEAD.format(name="it", path=path) + text
                     for path, text in scene.playbooks.items()}  # fmt: skip
        script = Script(seed=scene.seed, playbooks=playbooks, runs=scene.runs,
                        failing=scene.failing)  # fmt: skip
        world = World(script, scene.plan or QUIET)
        try:
            await world.live()
            rows = await world.store.executions.listed(limit=1000)
            if scene.fork is not None:
                await world.client.fork(rows[-1].execution_id, Fork(**scene.fork))
                await asyncio.sleep(FORK_S)
                rows = await world.store.executions.listed(limit=1000)
            return [
                await _log_of(world, row, f"{name}-{number}")
                for number, row in enumerate(reversed(rows))
            ]
        finally:
            await world.end()

    return run_shuffled(main(), name)


def record(wanted: int) -> list[str]:
    """Record every scene that is not there yet, and seeds until there are as many as wanted."""
    known = set(names())
    made: list[str] = []
    for name, scene in SCENES.items():
        if not any(other.startswith(f"{name}-") for other in known):
            made += [save(log).stem for log in of_scene(name, scene)]
    shapes = {_shape(load(name)) for name in names()}
    seed = 0
    while len(names()) < wanted:
        for log in of_seed(seed):
            shape = _shape(log)
            if len(log.rows) <= MOST_ROWS and shape not in shapes and log.name not in known:
                shapes.add(shape)
                made.append(save(log).stem)
        seed += 1
    return made


def _shape(log: Log) -> tuple[str, ...]:
    """What happens in a log, however often: two of one shape teach nothing."""
    return (*sorted({type(item.event).__name__ for item in log.rows}), str(bool(log.objects)))
