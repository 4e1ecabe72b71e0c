"""Runs playbooks as `noetl run` and `noetl test` do, many of them in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from noetl.api.client import Client
from noetl.clock import LoopClock, SystemClock
from noetl.dsl.documents.testcase import Case, PlaybookTest
from noetl.dsl.parse import parse
from noetl.engine.events import PlaybookStarted
from noetl.engine.rows import to_row
from noetl.ids import Ids
from noetl.local.cases import CEILING_S, LEASE_S, LONG_LEASE_S, MIDNIGHT, Subject, Trial, play
from noetl.local.keychain import StandIns
from noetl.local.launch import Finished, Job, finish, start
from noetl.local.mocks import Mocks
from noetl.local.parts import Parts
from noetl.local.run import stack
from noetl.local.virtual import VirtualLoop
from noetl.local.watch import Watch
from noetl.local.workshop import workshop
from tests.e2e.ending import Ending

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.local.verdicts import Verdict
    from noetl.local.workshop import Workshop

T = TypeVar("T")
Take = Callable[[Client, Finished], Awaitable[T]]
PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A run on virtual time that is wanted."""

    payload: dict[str, Any] = field(default_factory=dict)
    mocks: Mocks | None = None
    """None: every tool is the real one."""

    @property
    def on_worker(self) -> frozenset[str]:
        """The steps that a worker runs although the engine could."""
        return frozenset() if self.mocks is None else self.mocks.steps


class Theatre:
    """Children that run the tools of many runs, and two loops: of real and of virtual time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._closing = ExitStack()

    def close(self) -> None:
        """End the tools and the loops."""
        self._closing.close()

    def run(self, file: Path, payload: dict[str, Any] | None = None, mock: Case | None = None):
        """Run a playbook as `noetl run` does, with the mocks of `--mock` if there are some."""
        runner, shop = self._real
        return runner.run(self._run(shop, file, payload or {}, mock, Watch()))

    def ran(self, file: Path, payload: dict[str, Any] | None = None, mock: Case | None = None):
        """How a run ends that is done as `noetl run` does it."""
        runner, shop = self._real
        watch = _keeping()
        return _ending(runner.run(self._run(shop, file, payload or {}, mock, watch)), watch)

    def played(self, file: Path, case: Case) -> Ending:
        """How a run ends that is done as `noetl test` does it."""
        runner, shop = self._virtual
        watch = _keeping()
        return _ending(runner.run(self._played(shop, file, case, watch)), watch)

    def taken(self, file: Path, asked: Asked, take: Take[T]) -> T:
        """What somebody takes from the server of a run on virtual time, when it has ended."""
        runner, shop = self._virtual
        return runner.run(self._staged(shop, file, asked, _keeping(), take))

    def play(self, file: Path, case: Case) -> Verdict:
        """Play a case as `noetl test` does."""
        runner, shop = self._virtual
        trial = Trial(
            subject=Subject(file=str(file), text=text_of(file), folder=file.parent),
            case=case,
            folder=file.parent,
            log=self.folder / "logs" / f"{file.stem}.jsonl",
        )
        return runner.run(play(trial, shop))

    @cached_property
    def _real(self) -> tuple[asyncio.Runner, Workshop]:
        return self._opened(asyncio.Runner())

    @cached_property
    def _virtual(self) -> tuple[asyncio.Runner, Workshop]:
        return self._opened(asyncio.Runner(loop_factory=VirtualLoop))

    def _opened(self, runner: asyncio.Runner) -> tuple[asyncio.Runner, Workshop]:
        self._closing.enter_context(runner)
        lasting = AsyncExitStack()
        shop = runner.run(lasting.enter_async_context(workshop(4)))
        self._closing.callback(lambda: runner.run(lasting.aclose()))
        return runner, shop

    async def _run(
        self, shop: Workshop, file: Path, payload: dict[str, Any], mock: Case | None, watch: Watch
    ) -> Finished:
        clock = SystemClock()
        mocks = None if mock is None else Mocks(mock.mocks, file.parent, allow=None)
        text = text_of(file)
        job = Job(file=file.name, text=text, payload=payload, timeout_s=PATIENCE_S)
        async with shop.tools(file.parent, clock) as tools:
            parts = Parts(
                watch=watch,
                folder=file.parent,
                home=self.folder,
                tools=tools if mocks is None else mocks.over(tools),
                on_worker=frozenset() if mocks is None else mocks.steps,
                clock=clock,
                ids=Ids(clock),
                secrets=None if mocks is None else StandIns,
            )
            async with stack(parts, text) as running:
                await start(running, job)
                return await finish(running, job, asyncio.Event())

    async def _played(self, shop: Workshop, file: Path, case: Case, watch: Watch) -> Finished:
        async def finished(_client: Client, done: Finished) -> Finished:
            return done

        mocks = Mocks(case.mocks, file.parent, allow=frozenset(case.allow))
        asked = Asked(payload=dict(case.payload), mocks=mocks)
        return await self._staged(shop, file, asked, watch, finished)

    async def _staged(
        self, shop: Workshop, file: Path, asked: Asked, watch: Watch, take: Take[T]
    ) -> T:
        clock = LoopClock(asyncio.get_running_loop(), MIDNIGHT)
        mocks = asked.mocks
        text = text_of(file)
        job = Job(file=file.name, text=text, payload=asked.payload)
        async with shop.tools(file.parent, clock) as tools:
            parts = Parts(
                watch=watch,
                folder=file.parent,
                tools=tools if mocks is None else mocks.over(tools),
                on_worker=asked.on_worker,
                secrets=StandIns,
                is_complete=False,
                clock=clock,
                ids=Ids(clock, machine=1),
                ceiling_s=CEILING_S,
                lease_s=LEASE_S if mocks is not None and mocks.may_crash else LONG_LEASE_S,
            )
            async with stack(parts, text) as running:
                if mocks is not None:
                    mocks.crash = running.crew.crash
                await start(running, job)
                done = await finish(running, job, asyncio.Event())
                return await take(running.client, done)


def _keeping() -> Watch:
    watch = Watch()
    watch.is_kept = True
    return watch


def _ending(finished: Finished, watch: Watch) -> Ending:
    keys: dict[str, str] = {}
    logs: dict[str, list[dict[str, Any]]] = {}
    for item in watch.events:
        row = to_row(item)
        if isinstance(item.event, PlaybookStarted):
            parent, key = item.event.parent_execution_id, item.event.parent_key
            keys[item.execution_id] = "" if parent is None else f"{keys[parent]}>{key}"
        logs.setdefault(keys[item.execution_id], []).append(row)
    run = finished.run
    return Ending(run.status, run.result, run.error, logs)


def text_of(file: Path) -> str:
    """The text of a file, its line ends kept."""
    return file.read_bytes().decode()


def suite_of(file: Path) -> PlaybookTest:
    """The tests of a file."""
    return _read(text_of(file), file.name)


def cases_of(name: str, cases: list[dict[str, Any]]) -> tuple[Case, ...]:
    """Cases that stand as plain data, read by the model of tests."""
    suite = {
        "apiVersion": "noetl.io/v2",
        "kind": "PlaybookTest",
        "metadata": {"name": name, "path": f"compat/{name}"},
        "spec": {"file": f"{name}.yaml", "cases": cases},
    }
    return _read(json.dumps(suite), name).spec.cases


def _read(text: str, name: str) -> PlaybookTest:
    parsed = parse(text)
    if not isinstance(parsed.model, PlaybookTest):
        raise TypeError(f"{name}: {[error.message for error in parsed.errors]}")
    return parsed.model
