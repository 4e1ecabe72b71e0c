"""R7: each store in turn has no space left; nothing is answered that is not kept, and work goes on.

Each store lies on a small volume of its own: the data of PostgreSQL (once when tables cannot grow,
once when its log cannot), the store of the bus, the bodies that a server keeps while they come, the
outbox of a worker, the spool of a listener, the event log of `noetl run`. The scenario does for
PostgreSQL what `noetl up` does for all parts: whoever has ended is started again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import asyncpg
import msgspec

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.clock import SystemClock
from noetl.local.embedded.probe import ask
from noetl.local.lodging import EmbeddedUnavailable
from noetl.settings import process_environment
from tests.reliability.ledger import Ledger
from tests.reliability.load import Load
from tests.reliability.rig import stacked
from tests.reliability.scenario import Verdict, passable
from tests.reliability.senders import PATHS, Senders
from tests.reliability.volumes import Lacking, small
from tests.reliability.work import chain, fanout

SIZES_MB = {"pg": 160, "nats": 16, "bodies": 8, "home": 8, "spool": 4, "events": 4}
AGAIN_S = 1.0
FULL_S = 1.5
"""How long a volume stays full after the first refusal."""
TOLD_S = 20.0
RESUMES_S = 30.0
REFUSALS = {503: {"db_unavailable", "pool_saturated"}, 507: {"storage_full"}}
SPOOLED = 5
"""Messages in the spool before and after its volume is full."""
LARGE = b"1" * (3 << 20)
"""Needs more space than any file has left; no value of this size is kept in memory."""


async def play(plan):
    """Fill one volume after the other, in a drawn order."""
    verdict = Verdict(name="disk_full", seed=plan.seed, is_mid_tool=True)
    turns = []
    folder = passable("full-", plan.folder)
    async with AsyncExitStack() as mounted:
        try:
            volumes = {
                name: await mounted.enter_async_context(small(folder / name, size_mb))
                for name, size_mb in SIZES_MB.items()
            }
        except Lacking as lack:
            verdict.skipped = str(lack)
            return verdict
        async with stacked(folder, plan.mould) as stack, Ledger().open() as ledger:
            stack.add_server(TMPDIR=str(folder / "bodies"))
            stack.add_worker(NOETL_HOME=str(folder / "home"))
            stack.add_listener(*PATHS)
            await stack.start("server", "worker")
            await _asked(stack, "alter system set max_wal_size = '48MB'", "select pg_reload_conf()")
            works = [chain(4), fanout(4)]
            first = await stack.begin(works[0], ledger)
            load = Load(stack, ledger, works)
            load.pause_s = 0.4
            load.runs[first] = works[0]
            senders = Senders(stack, ledger, folder / "spool")
            stage = Stage(stack, ledger, load, senders, volumes, verdict)
            async with _kept(stack), load.going():
                while (not verdict.schedule or plan.left_s > 0) and not verdict.stuck:
                    turns = turns or plan.random.sample(sorted(TURNS), len(TURNS))
                    name = turns.pop()
                    verdict.schedule.append(name)
                    await TURNS[name](stage)
                    await load.recovered(verdict, RESUMES_S)
            if verdict.stuck:  # nobody would answer
                verdict.measured["postgres"] = stack.last("postgres")
            else:
                await load.judged(verdict, is_patient=True)
    shutil.rmtree(folder)
    return verdict


@asynccontextmanager
async def _kept(stack):
    """Start PostgreSQL again whenever it has ended."""

    async def keep():
        while True:
            if stack.postgres.pid is None:
                with suppress(EmbeddedUnavailable):
                    await stack.postgres.start()
            await asyncio.sleep(AGAIN_S)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait((keeping,))


async def _asked(stack, *statements):
    connection = await asyncpg.connect(stack.postgres.url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


class Stage:
    """What the turns play on."""

    def __init__(self, stack, ledger, load, senders, volumes, verdict):  # noqa: PLR0913, PLR0917 - all that is on it
        self.stack = stack
        self.ledger = ledger
        self.load = load
        self.senders = senders
        self.volumes = volumes
        self.verdict = verdict
        self._clock = SystemClock()

    async def tables(self):
        """The database cannot grow."""
        await self._database()

    async def log(self):
        """The database cannot even write its log: it ends, again and again."""
        await _asked(self.stack, "select pg_switch_wal()")
        await self._database()

    async def _database(self):
        volume, load, server = self.volumes["pg"], self.load, self.stack.parts["server"]
        earlier = load.refused.total()
        volume.fill()
        try:
            if not await self._until(
                lambda: load.refused.total() > earlier, "the full database refuses"
            ):
                return
            await asyncio.sleep(0.2)  # what was answered meanwhile was kept before
            before, is_still_full = len(load.runs), True
            await self._tells(server.health, "failing", {"storage", "database"})
            await self._refused(self._put)
            until = self._clock.monotonic() + FULL_S
            while self._clock.monotonic() < until:
                # The database gives up old files of its log: there is space again then.
                is_still_full = is_still_full and not volume.free_bytes
                await asyncio.sleep(0.02)
            if is_still_full and len(load.runs) != before:
                self.verdict.wrong.append("a run was accepted while the database was full")
            for status, code in load.refused:
                if code not in REFUSALS.get(status, ()):
                    self.verdict.wrong.append(f"refused with {status} {code}")
        finally:
            volume.free()

    async def _put(self):
        """Keep a value that is large enough to need space in every store."""
        run = next(iter(self.load.runs))
        return await self.stack.client().put_result(run, "large", LARGE, "application/octet-stream")

    async def bus(self):
        """The bus keeps nothing: work is found without it."""
        volume = self.volumes["nats"]
        volume.fill()
        try:
            await self.load.recovered(self.verdict, RESUMES_S)
        finally:
            volume.free()

    async def bodies(self):
        """A body that is not kept in memory is refused, and taken once there is room."""
        volume = self.volumes["bodies"]
        await self._put()
        volume.fill()
        try:
            await self._refused(self._put)
        finally:
            volume.free()
        await self._put()

    async def outbox(self):
        """The server is away and a worker cannot keep its reports on the disk."""
        volume, worker = self.volumes["home"], self.stack.parts["worker"]
        self.ledger.gate.clear()
        await self.ledger.called(self.ledger.calls.total() + 2)
        volume.fill()
        try:
            await self.stack.kill("server")
            self.ledger.gate.set()
            await self._tells(worker.health, "reasons", {"outbox_full"})
        finally:
            self.ledger.gate.set()
            volume.free()
            await self.stack.start("server")

    async def spool(self):
        """What runs need is away, and messages cannot be kept here: their broker keeps them."""
        volume, senders = self.volumes["spool"], self.senders
        listener = self.stack.parts["listener"]
        async with senders.here():
            await self.stack.start("listener")
            await self._until(lambda: senders.waiting() >= SPOOLED, "messages are spooled")
            volume.fill()
            try:
                page = listener.health.replace("/readyz", "/health")
                await self._tells(page, "reasons", {f"{PATHS[0]}: spool_unavailable"})
                kept = senders.waiting()
            finally:
                volume.free()
            await self._until(lambda: senders.waiting() >= kept + SPOOLED, "and again")
        async with senders.downstream.open():
            self.load.runs |= await senders.judged(self.verdict)
            await listener.stop(RESUMES_S)

    async def events(self):
        """A run on this machine cannot write its log: it fails, and goes on once there is room."""
        work, volume = chain(120), self.volumes["events"]
        file, log = volume.folder / "chain.yaml", volume.folder / "run.jsonl"
        file.write_text(work.text)
        log.unlink(missing_ok=True)
        running = asyncio.create_task(
            self._noetl("run", file, "--set", f"url={self.ledger.url}", "--events", log)
        )
        await self._until(log.exists, "a local run begins")
        volume.fill()
        try:
            code, told = await running
        finally:
            volume.free()
        if (code, told.get("error", {}).get("code")) != (1, "events_write_failed"):
            self.verdict.wrong.append(f"a local run without room ended with {code}: {told}")
            return
        code, told = await self._noetl("run", file, "--resume", log)
        if (code, told.get("status")) != (0, "COMPLETED"):
            self.verdict.wrong.append(f"a resumed run ended with {code}: {told}")
        elif self.ledger.of(told["execution_id"]) != work.effects:
            self.verdict.wrong.append(f"the ledger of the resumed run {told['execution_id']}")

    async def _noetl(self, *words):
        """Run the command; its exit code, and what it told."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "noetl.cli.app", *map(str, words), "-o", "json",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=process_environment() | {"NOETL_HTTP_EGRESS": "open"},
        )  # fmt: skip
        try:
            async with asyncio.timeout(RESUMES_S):
                said, fault = await child.communicate()
        except TimeoutError:
            child.kill()
            await child.wait()
            return None, {}
        return child.returncode, json.loads(said or fault.splitlines()[-1])

    async def _refused(self, call):
        """A call is refused, with a reason and a time to come back."""
        try:
            await call()
        except Refused as refusal:
            problem = refusal.problem
            if problem.code not in REFUSALS.get(problem.status, ()) or not problem.retry_after:
                self.verdict.wrong.append(f"refused with {msgspec.to_builtins(problem)}")
        except NoAnswer as gone:
            self.verdict.wrong.append(f"no answer from a full server: {gone}")
        else:
            self.verdict.wrong.append("a call was answered 2xx while its store was full")

    async def _tells(self, page, field, reasons):
        """Wait until a page of health says why."""

        async def told():
            answer = await ask(page)
            return answer and answer[0] == 503 and reasons & set(json.loads(answer[1])[field])

        return await self._until(told, f"{page} says {' or '.join(sorted(reasons))}")

    async def _until(self, holds, what):
        until = self._clock.monotonic() + TOLD_S
        while self._clock.monotonic() < until:
            found = holds()
            if await found if asyncio.iscoroutine(found) else found:
                return True
            await asyncio.sleep(0.05)
        self.verdict.wrong.append(f"{self.verdict.schedule[-1]}: not within {TOLD_S:g} s: {what}")
        return False


TURNS = {
    "tables": Stage.tables, "log": Stage.log, "bus": Stage.bus, "bodies": Stage.bodies,
    "outbox": Stage.outbox, "spool": Stage.spool, "events": Stage.events,
}  # fmt: skip
