"""One seed from its number to a verdict; a failure leaves its logs and the way to repeat it."""

from __future__ import annotations

import hashlib
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.engine.rows import to_row
from tests.simulation.faults import calm, plan_of
from tests.simulation.loop import run_shuffled
from tests.simulation.oracle import Told, compare, examine, must, whole_log
from tests.simulation.playbooks import library
from tests.simulation.world import Script, World

if TYPE_CHECKING:
    from tests.simulation.faults import Plan
    from tests.simulation.world import Hooks

FAILURES = Path(__file__).parents[2] / "build" / "failures"


@dataclass(kw_only=True)
class Verdict:
    """What came of a seed."""

    seed: int
    error: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    compared: int = 0
    events: int = 0
    crashes: int = 0
    faults: int = 0
    repeats: int = 0
    """Calls of ledger B beyond those of a world without troubles."""
    digest: str = ""


class Failed(Exception):
    """A world that does not hold, with its logs."""

    def __init__(self, reason: BaseException, logs: dict[str, list[str]]) -> None:
        super().__init__(f"{type(reason).__name__}: {reason}")
        self.logs = logs


def script_of(seed: int) -> Script:
    """What happens in the world of a seed."""
    chance = random.Random(f"script/{seed}")
    is_tame = seed % 3 != 2
    inline_bytes = chance.choice([64 * 1024, 1024])
    return Script(
        seed=seed,
        playbooks=library(seed, is_tame=is_tame, is_large=inline_bytes == 1024),
        runs=chance.randint(1, 3),
        failing=chance.choice([0.0, 0.1, 0.3]),
        inline_bytes=inline_bytes,
        is_tame=is_tame,
    )


def judge(
    seed: int, hooks: Hooks | None = None, *, compares: bool = True, keeps: bool = True
) -> Verdict:
    """Run a seed with its troubles and, where both must end alike, without them."""
    script, plan = script_of(seed), plan_of(seed)
    verdict = Verdict(seed=seed)
    began = time.process_time()
    logs: dict[str, list[str]] = {}
    try:
        told = _lived(script, plan, verdict, hooks)
        if script.is_tame and compares:
            quiet = _lived(script, calm(plan), verdict, None)
            must(not quiet.spoilt, f"spoilt without trouble: {quiet.spoilt}")
            verdict.compared = compare(quiet, told)
            verdict.repeats = max(0, told.calls - quiet.calls)
    except Failed as failure:
        verdict.error = str(failure)
        logs = failure.logs
    except AssertionError as failure:
        verdict.error = f"{type(failure).__name__}: {failure}"
        logs = _texts(told)
    if verdict.error and keeps:
        _keep(seed, verdict.error, logs)
    verdict.cpu_s = time.process_time() - began
    return verdict


def _lived(script: Script, plan: Plan, verdict: Verdict, hooks: Hooks | None) -> Told:
    async def main() -> Told:
        world = World(script, plan, hooks)
        try:
            await world.live()
            told = await examine(world)
        except Exception as reason:
            raise Failed(reason, await _logs(world)) from reason
        finally:
            verdict.virtual_s += world.loop.time()
            verdict.crashes += world.witness.crashes
            verdict.faults += sum(world.faults.count.values())
            await world.end()
        verdict.events += sum(map(len, told.logs.values()))
        if not verdict.digest:
            verdict.digest = _digest(told)
        return told

    return run_shuffled(main(), f"{script.seed}/{plan.chaos_s}")


def _digest(told: Told) -> str:
    """A hash of every log; keys of callbacks are minted by chance that no seed owns."""
    lines = []
    for place, log in told.logs.items():
        for item in log:
            row = to_row(item)
            shown = {key: row[key] for key in ("event_type", "step", "created_at", "status")}
            lines.append(json.dumps([place, item.seq, shown], sort_keys=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


async def _logs(world: World) -> dict[str, list[str]]:
    places = await world.places()
    found = {}
    for execution_id, place in places.items():
        log = await whole_log(world, execution_id)
        found[place] = [json.dumps(to_row(item)) for item in log]
    return found


def _texts(told: Told) -> dict[str, list[str]]:
    return {place: [json.dumps(to_row(item)) for item in log] for place, log in told.logs.items()}


def _keep(seed: int, error: str, logs: dict[str, list[str]]) -> None:
    """Leave what is needed to look at a failure."""
    folder = FAILURES / f"simulation-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "error.txt").write_text(f"{error}\n\n{command(seed)}\n", encoding="utf-8")
    for path, text in script_of(seed).playbooks.items():
        (folder / f"{path.replace('/', '_')}.yaml").write_text(text, encoding="utf-8")
    for place, lines in logs.items():
        name = place.replace("/", "_").replace(">", "-")[:120]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def command(seed: int) -> str:
    """How to run a seed again."""
    return f".venv/bin/python -m tests.simulation --seeds 1 --seed {seed}"
