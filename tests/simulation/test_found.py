"""What simulated worlds have found, each as the shortest story that shows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from noetl.api.catalog import Register
from noetl.api.commands import Heartbeat, Held
from noetl.api.executions import Control
from noetl.api.problems import Refused
from noetl.blobs.memory import MemoryBlobs
from noetl.server.ingest.cache import Cache
from noetl.server.ingest.posts import Post
from noetl.server.ingest.programs import Programs
from noetl.server.loops import leases
from noetl.store.errors import DatabaseGone
from noetl.store.memory.store import MemoryStore
from tests.simulation.defects import Over, over
from tests.simulation.faults import Unreachable
from tests.unit.server.rig import HEAD, ONE_STEP, PYTHON, rig, virtually

if TYPE_CHECKING:
    from noetl.api.executions import Started
    from noetl.server.ingest.wanted import Wanted
    from noetl.store.base import ExecutionRow

LARGE = "x" * 2_000
PIPELINE = f"""
workflow:
  - step: start
    tool:
      - {{name: asked, kind: playbook, path: demo/nowhere}}
      - {{name: then, {PYTHON[1:]}
      - {{name: last, {PYTHON[1:]}
"""
APART = """
workflow:
  - {step: start, tool: {kind: playbook, path: demo/child, wait: false}}
"""
CHILD = HEAD.replace("demo/it", "demo/child") + ONE_STEP
BRANCH = f"""
workflow:
  - step: start
    tool: {PYTHON}
    next: {{arcs: [{{step: end, when: "{{{{ output.data.big | length > 0 }}}}"}}]}}
  - step: end
    tool: {PYTHON}
"""


class Failing(MemoryBlobs):
    """Blobs that fail a few times."""

    def __init__(self, method: str, fault: Exception, times: int = 1) -> None:
        super().__init__()
        self._method, self._fault, self.left = method, fault, times

    def _fail(self, method: str) -> None:
        if method == self._method and self.left:
            self.left -= 1
            raise self._fault

    async def put(self, key: str, data: bytes, **more: Any) -> None:
        self._fail("put")
        await super().put(key, data, **more)

    async def get(self, key: str) -> bytes:
        self._fail("get")
        return await super().get(key)


class StaleLeases(Over):
    """Commands whose leases were looked up a moment before they changed."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.stale: list[Any] = []

    async def expired(self, now: str, limit: int = 1000) -> list[Any]:
        return self.stale or await self.inner.expired(now, limit)


@virtually
async def test_a_state_and_its_row_are_of_one_moment() -> None:
    """A run that ended while it was read lost the time of its end with the next late report."""
    async with rig() as here:
        execution_id = await here.start(ONE_STEP)
        old = await here.store.executions.get(execution_id)
        (command,) = await here.claim()
        await here.done(command)

        class Behind:
            reads = 0

            async def get(self, execution_id: str) -> ExecutionRow | None:
                self.reads += 1
                return old if self.reads == 1 else await here.store.executions.get(execution_id)

        store = over(here.store, executions=Behind())
        entry = await Cache(store, Programs(here.store.catalog)).read(execution_id)
        assert entry.row is not None
        assert (entry.row.last_seq, entry.row.status) == (entry.state.seq, entry.state.terminal)


@virtually
async def test_a_lost_pipeline_gets_its_awaited_outcome_only_where_it_waited() -> None:
    """The task after the newest checkpoint was answered with what an earlier one had waited for."""
    async with rig(lease_s=5.0) as here:
        execution_id = await here.start(PIPELINE)
        (first,) = await here.claim()
        waiting = {"task": "asked", "passes": {"asked": 1}}
        request = {"children": [{"path": "demo/nowhere"}], "wait": True}
        await here.report(
            here.event(
                first, "command.parked", reason="child", task="asked", checkpoint=waiting,
                request=request,
            )
        )  # fmt: skip
        (second,) = await here.claim(wait_seconds=20)
        assert second.context.awaited is not None
        assert second.context.checkpoint == waiting
        beyond = {"task": "last", "passes": {"asked": 1, "then": 1, "last": 1}}
        held = Held(command_id=second.command_id, attempt=second.attempt, checkpoint=beyond)
        await here.client.heartbeat(Heartbeat(worker_id="w", commands=(held,)))
        await asyncio.sleep(10)
        (third,) = await here.claim("other", wait_seconds=20)
        assert (third.execution_id, third.attempt) == (execution_id, second.attempt + 1)
        assert (third.context.checkpoint, third.context.awaited) == (beyond, None)


@virtually
async def test_a_loss_that_does_not_happen_leaves_no_checkpoint_behind() -> None:
    """The next attempt began where a beat had been, before the place where the command parked."""
    memory = MemoryStore()
    commands = StaleLeases(memory.commands)
    async with rig(over(memory, commands=commands)) as here:
        await here.start(ONE_STEP)
        (first,) = await here.claim()
        early, late = {"task": "one"}, {"task": "two"}
        held = Held(command_id=first.command_id, attempt=1, checkpoint=early)
        await here.client.heartbeat(Heartbeat(worker_id="w", commands=(held,)))
        commands.stale = [await memory.commands.get(first.command_id)]
        parked = {"reason": "retry", "delay_ms": 5000, "checkpoint": late}
        await here.report(here.event(first, "command.parked", **parked))
        (second,) = await here.claim("other", wait_seconds=20)
        assert (second.attempt, second.context.checkpoint) == (2, late)


@virtually
async def test_a_decision_is_recorded_whole_or_not_at_all() -> None:
    """A write to `ctx` whose large value could not be stored was lost; its command was closed."""
    blobs = Failing("put", Unreachable("away"))
    async with rig(blobs=blobs, inline_bytes=1024) as here:
        execution_id = await here.start(ONE_STEP)
        (command,) = await here.claim()
        done = here.event(command, "call.done", "77", result=1, ctx={"big": LARGE})
        with pytest.raises(Refused):
            await here.report(done)
        await here.report(done)
        assert blobs.left == 0
        types = await here.types(execution_id)
        assert types[types.index("command.completed") + 1] == "ctx.updated"


@virtually
async def test_a_store_that_is_away_for_a_while_decides_nothing() -> None:
    """A value that could not be read at the moment made its branch fail for good."""
    blobs = Failing("get", Unreachable("away"), times=2)
    async with rig(blobs=blobs, inline_bytes=1024) as here:
        execution_id = await here.start(BRANCH)
        (command,) = await here.claim()
        done = here.event(command, "call.done", "77", result={"big": [LARGE]})
        with pytest.raises(Refused):
            await here.report(done)
        await here.report(done)
        assert blobs.left == 0
        types = await here.types(execution_id)
        assert "engine.error" not in types
        assert types[-1] == "command.issued"


@virtually
async def test_a_defect_outside_of_decide_ends_the_run_after_three() -> None:
    """Every repeat of the report recorded the defect once more, without end."""
    blobs = Failing("put", ValueError("broken"), times=1000)
    async with rig(blobs=blobs, inline_bytes=1024) as here:
        execution_id = await here.start(ONE_STEP)
        (command,) = await here.claim()
        done = here.event(command, "call.done", "77", result={"big": LARGE})
        for _ in range(3):
            with pytest.raises(Refused):
                await here.report(done)
        await asyncio.sleep(1)
        types = await here.types(execution_id)
        assert types[-4:] == ["engine.error"] * 3 + ["playbook.failed"]
        assert (await here.client.execution(execution_id)).error["code"] == "engine_error"


@virtually
async def test_a_command_that_is_lost_for_good_in_a_pause_is_lost_once() -> None:
    """Nothing is decided in a pause; a server that had looked before lost it once more."""
    async with rig(max_attempts=1) as here:
        execution_id = await here.start(ONE_STEP)
        await here.claim()
        [row] = await here.store.commands.expired("2030-01-01T00:00:00Z")
        await here.client.pause(execution_id, Control())
        await asyncio.sleep(120)
        again = leases.losing(row, here.plane.handout, {})
        await here.plane.ingest.submit([Post(execution_id, again)])
        assert (await here.types(execution_id)).count("command.lost") == 1
        await here.client.resume(execution_id, Control())
        assert await here.status(execution_id) == "FAILED"


@virtually
async def test_the_end_of_a_child_that_nobody_waits_for_fails_no_parent() -> None:
    """The child had failed before its parent was told that it had begun."""
    async with rig() as here:
        await here.client.register(Register(content=CHILD))
        real, left = here.plane.runs.start, 5

        async def start(wanted: Wanted) -> Started:
            nonlocal left
            started = await real(wanted)
            if wanted.parent_key is not None and left:
                left -= 1
                raise DatabaseGone("away")
            return started

        here.plane.runs.start = start  # type: ignore[method-assign] # it is told late
        parent = await here.start(APART)
        (command,) = await here.claim(wait_seconds=20)
        error = {"kind": "python", "code": "broken", "message": "it fails"}
        await here.report(here.event(command, "call.error", error=error))
        assert await here.status(command.execution_id) == "FAILED"
        await asyncio.sleep(60)
        assert await here.status(parent) == "COMPLETED"


def test_the_memory_store_is_not_changed_by_what_stands_before_it() -> None:
    store = MemoryStore()
    assert over(store, log="other").log == "other"
    assert over(store).log is store.log
