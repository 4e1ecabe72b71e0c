"""List, get, status, the end of a stream and a replay agree on the status of any history.

The histories are those of the engine's own properties: generated playbooks under generated trouble,
cut anywhere. At length: `python -m tests.unit.server.agreement --cases 10000 --seed 1`; a failure
names its seed, and `--cases 1 --seed THAT` repeats it.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys

import msgspec

from noetl.api.sse import parsed
from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.engine.status import status_of
from noetl.local.virtual import run_virtually
from noetl.store.base import CatalogEntry
from noetl.store.views import change
from tests.unit.engine.host import HEAD
from tests.unit.engine.properties.generate import playbook
from tests.unit.engine.properties.schedule import started, wild
from tests.unit.server.rig import rig

AT_ONCE = 15
"""Histories of one server."""
MOST_FINDINGS = 10


def history(seed: int):
    """The text of a playbook, and a part of the log of a run of it, from its beginning."""
    body = playbook(seed, is_tame=seed % 3 == 0)
    log = started(body, seed, "wild", wild(seed)).to_the_end().host.log
    chance = random.Random(f"cut/{seed}")
    cut = len(log) if chance.random() < 0.5 else chance.randint(1, len(log))
    return HEAD + body, log[:cut]


def placed(item, run: str):
    """An event in the log of another run."""
    event = item.event
    if "execution_id" in event.__struct_fields__:
        event = msgspec.structs.replace(event, execution_id=run)
    return msgspec.structs.replace(item, execution_id=run, event=event)


async def kept(r, seed: int) -> tuple[str, State]:
    """Write a history as the server would have; the run, and the state that it comes to."""
    text, log = history(seed)
    run, catalog_id = r.ids.new(), r.ids.new()
    entry = CatalogEntry(
        catalog_id=catalog_id, path=f"any/{seed}", version=1, kind="playbook", content=text,
        digest=catalog_id, created_at="2026-01-01T00:00:00.000000Z",
    )  # fmt: skip
    await r.store.catalog.add(entry)
    state = State(program=r.plane.programs.of(entry))
    rows = []
    for item in log:
        row = placed(item, run)
        if row.seq == 1:
            event = msgspec.structs.replace(row.event, catalog_id=catalog_id, path=f"any/{seed}")
            row = msgspec.structs.replace(row, event=event)
        rows.append(row)
        fold(state, row)
    assert not await r.store.log.commit([change(0, state, rows, r.ids.new)])
    return run, state


async def told(r, run: str, *, is_over: bool) -> dict[str, str]:
    """The status of a run by every reader."""
    (item,) = [one for one in (await r.client.executions(limit=200)).items
               if one.execution_id == run]  # fmt: skip
    found = {
        "list": item.status,
        "get": (await r.client.execution(run, with_state=False)).status,
        "status": (await r.client.status(run)).status,
        "replay": (await r.client.replay(run)).execution["status"],
        "why": (await r.client.why(run))["status"],
    }
    if is_over:
        reader = r.plane.streams.open(run, 0, "me", is_lean=True)
        last = [one async for one in parsed(reader.frames())][-1]
        r.plane.streams.close(reader)
        assert last["event"] == "end"
        found["stream"] = last["data"]["status"]
    return found


async def differences(r, seed: int) -> list[str]:
    """Where the readers of one history do not agree."""
    run, state = await kept(r, seed)
    is_over = state.terminal is not None
    found = await told(r, run, is_over=is_over)
    wrong = [] if set(found.values()) == {status_of(state)} else [f"{status_of(state)}: {found}"]
    if is_over:
        states = {node.state for node in (await r.client.graph(run)).nodes}
        wrong += [f"a step is {one}" for one in states & {"running", "waiting", "pending"}]
        lanes = (await r.client.timeline(run)).lanes
        wrong += [f"{lane} has no end" for lane in lanes if not lane.ended]
    return [f"--seed {seed}: {one}" for one in wrong]


def judged(first: int, count: int = AT_ONCE) -> list[str]:
    """The differences of some histories, which one server keeps."""

    async def main() -> list[str]:
        async with rig() as r:
            return [
                one for seed in range(first, first + count) for one in await differences(r, seed)
            ]

    return run_virtually(main())


def main() -> int:
    """Judge many histories."""
    arguments = argparse.ArgumentParser(prog="tests.unit.server.agreement")
    arguments.add_argument("--cases", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=1)
    asked = arguments.parse_args()
    logging.getLogger("noetl").setLevel(logging.CRITICAL)  # of histories that were cut
    last = asked.seed + asked.cases
    found: list[str] = []
    for first in range(asked.seed, last, AT_ONCE):
        found += judged(first, min(AT_ONCE, last - first))
        if len(found) >= MOST_FINDINGS:
            break
    sys.stdout.writelines(f"{one}\n" for one in found)
    sys.stdout.write(f"{asked.cases} histories from seed {asked.seed}: {len(found)} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
