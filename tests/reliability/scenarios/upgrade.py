"""R14: parts of the release before work with parts of this one, while a stack is brought up to it.

The release before is the newest tag, or, as long as there is none, the tree of a few commits ago.
A database of that release is migrated under load by this one. Then server and worker are replaced
one after the other, each in good order: no run fails, and no tool is called twice.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import zipfile
from pathlib import Path

from noetl.local.postgres import Postgres
from noetl.server import admin
from noetl.settings import process_environment
from tests.reliability.ledger import Ledger
from tests.reliability.load import Load
from tests.reliability.rig import Mould, stacked
from tests.reliability.scenario import Verdict, passable
from tests.reliability.work import chain, fanout

ROOT = Path(__file__).parents[3]
BACK = "HEAD~5"
ORDERS = (("server", "worker"), ("worker", "server"))
"""Who is replaced first meets the other of the release before."""
GRACE_S = 15.0
LEAST_S, MOST_S = 0.3, 1.5
MAKE = """
import asyncio, sys
from noetl.server import admin

async def main(url, people, pool):
    await admin.migrate(url)
    await admin.welcome(url, [
        admin.Bearer(token=people, account="admin", roles=("admin",), name="test"),
        admin.Bearer(token=pool, account="worker", roles=("worker",), name="pool", pool="shared"),
    ])

asyncio.run(main(*sys.argv[1:]))
"""


class Missing(Exception):
    """There is no release before."""


class Before(Mould):
    """The release before: its source, and a database that it has made."""

    @property
    def environ(self):
        """Which source its processes run."""
        return {"PYTHONPATH": str(self.folder / "src")}

    async def make(self):
        """Take the source from the history; `Missing` when there is none."""
        tree = self.folder / "tree.zip"
        await _said("git", "-C", ROOT, "archive", f"--output={tree}", await _revision(), "src")
        with zipfile.ZipFile(tree) as packed:
            packed.extractall(self.folder)
        server = Postgres(self.folder / "data", settings={"fsync": "off"})
        await server.start()
        try:
            await _said(
                sys.executable, "-c", MAKE, server.url, self.admin, self.worker,
                env=process_environment() | self.environ,
            )  # fmt: skip
        finally:
            await server.stop()


async def released():
    """The tag of the release before; `Missing` when there is none."""
    return await _said("git", "-C", ROOT, "describe", "--tags", "--abbrev=0", "HEAD^")


async def _revision():
    try:
        return await released()
    except Missing:
        return await _said("git", "-C", ROOT, "rev-parse", "--verify", BACK)


async def _said(*words, env=None):
    """What a program says; `Missing` when it cannot."""
    try:
        child = await asyncio.create_subprocess_exec(
            *map(str, words), env=env, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError:
        raise Missing(f"there is no program {words[0]}") from None
    said, fault = await child.communicate()
    if child.returncode:
        raise Missing(f"{words[0]}: {fault.decode(errors='replace').strip()}")
    return said.decode().strip()


async def play(plan):
    """Bring one stack after the other to this release, in both orders."""
    verdict = Verdict(name="upgrade", seed=plan.seed)
    before = Before(passable("before-", plan.folder))
    try:
        await before.make()
    except Missing as missing:
        verdict.skipped = f"there is no release before this one: {missing}"
        return verdict
    orders = []
    while len(verdict.schedule) < len(ORDERS) or plan.left_s > 0:
        orders = orders or plan.random.sample(ORDERS, len(ORDERS))
        pauses = [round(plan.random.uniform(LEAST_S, MOST_S), 3) for _ in range(3)]
        verdict.schedule.append({"order": list(orders[-1]), "pauses_s": pauses})
        await _brought_up(plan, before, orders.pop(), pauses, verdict)
    shutil.rmtree(before.folder)
    return verdict


async def _brought_up(plan, before, order, pauses, verdict):
    folder = passable("stack-", plan.folder)
    async with stacked(folder, before) as stack, Ledger().open() as ledger:
        stack.add_server()
        stack.add_worker()
        today = {name: stack.parts[name].environ for name in order}
        for name in order:
            stack.parts[name].environ = today[name] | before.environ
        await stack.start("server", "worker")
        load = Load(stack, ledger, [chain(6), fanout(8, in_flight=4)])
        load.pause_s = 0.4
        async with load.going():
            await asyncio.sleep(pauses[0])
            await admin.migrate(stack.postgres.url)
            for name, pause_s in zip(order, pauses[1:], strict=True):
                await stack.parts[name].stop(GRACE_S)
                stack.parts[name].environ = today[name]
                await stack.start(name)
                await asyncio.sleep(pause_s)
                await load.recovered(verdict)
        calls, repeats = verdict.calls, verdict.repeats
        await load.judged(verdict)
        verdict.calls, verdict.repeats = verdict.calls + calls, verdict.repeats + repeats
    shutil.rmtree(folder)
