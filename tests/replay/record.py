"""Records logs: generated worlds in trouble, scenes written by hand, a defect, and every case.

What is there is never written again; only what is missing is recorded.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from noetl.api.executions import Fork
from noetl.api.problems import Refused
from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.refs import key_of
from noetl.local.virtual import run_virtually
from noetl.store.base import Listing
from tests.e2e.playing import Theatre
from tests.replay.cases import copied, of_acceptance, of_examples, of_older
from tests.replay.harvest import ended, harvested, references
from tests.replay.logs import Log, case_of, load, names, save
from tests.replay.scenes import SCENES
from tests.simulation.faults import CALM, Plan, plan_of
from tests.simulation.loop import run_shuffled
from tests.simulation.oracle import whole_log
from tests.simulation.playbooks import HEAD
from tests.simulation.seeds import script_of
from tests.simulation.world import Script, World
from tests.unit.server.rig import ONE_STEP, rig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.api.client import Client
    from noetl.local.launch import Finished
    from noetl.store.base import ExecutionRow
    from tests.replay.cases import Wanted
    from tests.replay.scenes import Scene

MOST_ROWS = 90
FORK_S = 600.0
"""Virtual: longer than a fork of any scene takes."""
QUIET = Plan(rates=CALM, chaos_s=1.0)
ACCEPTANCE = Path(__file__).parents[1] / "e2e" / "test_acceptance.py"


async def _log_of(world: World, row: ExecutionRow, name: str) -> Log:
    entry = await world.store.catalog.get(row.catalog_id)
    assert entry is not None
    rows = await whole_log(world, row.execution_id)
    log = Log(name=name, playbook=entry.content, rows=rows, final="", status=row.status)
    for reference in references(rows):
        data = await world.blobs.get(key_of(reference))
        log.objects[reference] = json.loads(data)
    ended(log)
    return log


def of_seed(seed: int) -> list[Log]:
    """Every log of a generated world."""

    async def main() -> list[Log]:
        world = World(script_of(seed), plan_of(seed))
        try:
            await world.live()
            rows = await world.store.executions.listed(Listing(limit=1000))
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
            rows = await world.store.executions.listed(Listing(limit=1000))
            if scene.fork is not None:
                await world.client.fork(rows[-1].execution_id, Fork(**scene.fork))
                await asyncio.sleep(FORK_S)
                rows = await world.store.executions.listed(Listing(limit=1000))
            return [
                await _log_of(world, row, f"{name}-{number}")
                for number, row in enumerate(reversed(rows))
            ]
        finally:
            await world.end()

    return run_shuffled(main(), name)


class Broken(MemoryBlobs):
    """Blobs that a defect keeps from being stored."""

    async def put(self, *_given: object, **_more: object) -> None:
        raise ValueError("broken")


def of_defect() -> list[Log]:
    """The log of a run that a defect of the server has ended."""

    async def main() -> list[Log]:
        async with rig(blobs=Broken(), inline_bytes=1024) as here:
            await here.start(ONE_STEP)
            (command,) = await here.claim()
            done = here.event(command, "call.done", "77", result={"big": "x" * 2000})
            for _ in range(3):
                with pytest.raises(Refused):
                    await here.report(done)
            await asyncio.sleep(1)
            return await harvested(here.client)

    return run_virtually(main())


def of_case(theatre: Theatre, wanted: Wanted) -> list[Log]:
    """The logs of a case that is played on virtual time."""

    async def take(client: Client, _done: Finished) -> list[Log]:
        return await harvested(client, wanted.asked.on_worker)

    return theatre.taken(wanted.file, wanted.asked, take)


def record(wanted: int) -> Iterator[str]:
    """Record every scene and every case that is not there yet, and as many seeds as wanted."""
    known = {case_of(name) for name in names()}
    for name, scene in SCENES.items():
        if name not in known:
            yield from kept(name, of_scene(name, scene))
    if "defect" not in known:
        yield from kept("defect", of_defect())
    yield from _seeds(wanted)
    with TemporaryDirectory() as folder:
        theatre = Theatre(Path(folder))
        try:
            for case in [*of_examples(copied(Path(folder))), *of_older()]:
                if case.key not in known:
                    yield from kept(case.key, of_case(theatre, case))
        finally:
            theatre.close()
    if set(of_acceptance()) - known:
        # The plug-in imports parts of tests before pytest could rewrite their assertions.
        words = ["-q", "-n0", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-k", "local"]
        plugins = ["-p", "no:randomly", "-p", "tests.replay.plugin"]
        pytest_ = [sys.executable, "-m", "pytest"]
        subprocess.run([*pytest_, *words, *plugins, str(ACCEPTANCE)], check=True)


def kept(case: str, logs: list[Log]) -> Iterator[str]:
    """Keep the logs of a case under its name."""
    for number, log in enumerate(logs):
        log.name = f"{case}-{number}"
        save(log)
        yield log.name


def _seeds(wanted: int) -> Iterator[str]:
    shapes = {_shape(load(name)) for name in names()}
    seed = 0
    while len(names()) < wanted:
        for log in of_seed(seed):
            shape = _shape(log)
            if len(log.rows) <= MOST_ROWS and shape not in shapes and log.name not in names():
                shapes.add(shape)
                save(log)
                yield log.name
        seed += 1


def _shape(log: Log) -> tuple[str, ...]:
    """What happens in a log, however often: two of one shape teach nothing."""
    return (*sorted({type(item.event).__name__ for item in log.rows}), str(bool(log.objects)))
