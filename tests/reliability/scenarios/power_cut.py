"""R5: the power goes at a random moment; what was answered is on the disk.

Everything of the stack lies on one disk. At the cut all processes stand still, the image of the
disk is copied, and they are killed. The copy takes the place of the disk, the store of the bus is
emptied, and the parts start again. What was written and not synced is not in the image: whoever
answers before it syncs loses what it answered.

Where no image can be mounted the folder itself is copied. That copy also holds what was not
synced, so only the way back is proven then; `measured` says which of the two it was.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from tests.reliability.ledger import Ledger
from tests.reliability.load import Load
from tests.reliability.rig import stacked
from tests.reliability.scenario import Verdict, passable
from tests.reliability.volumes import Disk, disk, synced
from tests.reliability.work import chain, fanout

PARTS = ("postgres", "nats", "server", "worker")
SIZE_MB = 512
LEAST_S, MOST_S = 0.3, 3.0


async def play(plan):
    """Cut the power again and again while runs are begun."""
    verdict = Verdict(name="power_cut", seed=plan.seed, is_mid_tool=True)
    within = passable("disk-", plan.folder)
    folder = within / "stack"
    folder.mkdir()
    folder.chmod(0o711)
    async with disk(folder, SIZE_MB) as kept:
        verdict.measured["disk"] = "image" if isinstance(kept, Disk) else "folder"
        async with stacked(folder, plan.mould) as stack, Ledger().open() as ledger:
            await synced(folder)  # what the test itself has copied there
            stack.add_server()
            stack.add_worker()
            await stack.start("server", "worker")
            load = Load(stack, ledger, [chain(6), fanout(8, in_flight=4)])
            load.pause_s = 0.5
            async with load.going():
                while not verdict.schedule or plan.left_s > 0:
                    after_s = round(plan.random.uniform(LEAST_S, MOST_S), 3)
                    verdict.schedule.append({"cut_after_s": after_s})
                    await asyncio.sleep(after_s)
                    await _cut(stack, kept)
                    await load.recovered(verdict)
            await load.judged(verdict)
    shutil.rmtree(within)
    return verdict


async def _cut(stack, kept):
    """End everything at one moment, and go on from what the disk held then."""
    still = [pid for part in PARTS for pid in tree(stack.pid(part))]
    _all(still, signal.SIGSTOP)
    copy = await kept.cut()
    _all(still, signal.SIGKILL)
    await asyncio.gather(*(_ended(stack, part) for part in PARTS))
    await kept.back(copy)
    shutil.rmtree(stack.nats.store_dir)
    await stack.start(*PARTS)


async def _ended(stack, part):
    await (stack.postgres.stop() if part == "postgres" else stack.parts[part].stop(0))


def _all(pids, number):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def tree(pid):
    """A process and all that it has started, itself first."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                after_name = (entry / "stat").read_text().rpartition(")")[2]
                parents.setdefault(int(after_name.split()[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, ())
    return found
