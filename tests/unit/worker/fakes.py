"""A server that a worker talks to, as plain Python: it hands out commands and keeps what it hears.

Every body makes the trip through JSON that a transport would give it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from noetl.api.catalog import Entry
from noetl.api.commands import Beat, Claimed, Command, CommandContext
from noetl.api.credentials import SealedAnswer
from noetl.api.events import LogBatch, Receipt, Report, Reported, Reports
from noetl.api.problems import Problem, Refused
from noetl.api.runtime import Joined
from noetl.clock import LoopClock
from noetl.dsl.tasks import Noop
from noetl.dsl.views import Outcome
from noetl.ids import Ids
from noetl.local.virtual import run_virtually
from noetl.secrets.sealed import about_delivery, seal_to
from noetl.tools.base import Parked, Traits
from noetl.tools.noop import NoopTool
from noetl.worker.app import WorkerParts, create_worker

HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
"""
START = datetime(2026, 1, 1, tzinfo=UTC)
FINAL = {"call.done", "call.error", "command.parked"}


def refusal(status: int, code: str = "refused", retry_after: float | None = None) -> Refused:
    return Refused(
        Problem(type="t", title="t", status=status, code=code, detail=code, retry_after=retry_after)
    )


def travelled(body: Any, kind: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


class FakeServer:
    """The methods of the client, answered from memory."""

    def __init__(self, workflow: str = "- step: s\n  tool: {kind: noop}\n") -> None:
        self.content = HEAD + "workflow:\n" + workflow
        self.pending: deque[Command] = deque()
        self.reports: list[Report] = []
        self.batches: list[Reports] = []
        self.claims: list[Any] = []
        self.beats: list[Any] = []
        self.released: list[Any] = []
        self.lines: list[Any] = []
        self.objects: dict[str, bytes] = {}
        self.wishes: list[dict[str, Any]] = []
        self.steps: dict[str, Any] = {}
        self.left: list[str] = []
        self.entered: list[str] = []
        self.key = ""
        self.kept: dict[tuple[str, str], Any] = {}
        self.asked: list[tuple[str, str]] = []
        self.entries = 0
        self.fetches = 0
        self.failures: dict[str, deque[Exception]] = {}
        self.verdicts: dict[str, tuple[str, str]] = {}
        self.cancelled: tuple[str, ...] = ()
        self.beat = Beat()
        self.lease_s = 15.0
        self.servers: tuple[str, ...] = ()
        self.machine_id: int | None = None
        self.heard = asyncio.Condition()
        self.more = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.ids = 0

    # ------------------------------------------------------------------ what tests do

    def command(self, step: str = "s", **more: Any) -> Command:
        self.ids += 1
        context = {
            "tool": {"kind": "noop"},
            "bindings": more.pop("bindings", {}),
            "refs": more.pop("refs", {}),
            "checkpoint": more.pop("checkpoint", None),
            "awaited": more.pop("awaited", None),
        }
        given = {
            "execution_id": "81", "event_id": f"c{self.ids}", "command_id": f"c{self.ids}",
            "command_key": f"{step}#{self.ids}", "node_id": step, "node_name": step,
            "action": "noop", "attempt": 1, "max_attempts": 3, "lease_seconds": 15.0,
            "lease_until": "", "pool": "shared", "priority": 5,
            "idempotency_key": f"81/{step}/-/1", "catalog_id": "7", "path": "p", "version": 1,
        }  # fmt: skip
        return Command(**(given | more), context=CommandContext(**context))

    def offer(self, *commands: Command) -> None:
        self.pending.extend(commands)
        self.more.set()

    def fail(self, method: str, *faults: Exception) -> None:
        self.failures.setdefault(method, deque()).extend(faults)

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(3600), self.heard:
            await self.heard.wait_for(holds)

    async def finals(self, count: int = 1) -> list[Report]:
        await self.until(lambda: len(self.ended) >= count)
        return self.ended

    @property
    def ended(self) -> list[Report]:
        return [report for report in self.reports if report.event_type in FINAL]

    def told(self, command_id: str) -> list[str]:
        return [report.event_type for report in self.reports if report.command_id == command_id]

    # ------------------------------------------------------------------ what workers call

    async def report(self, body: Any) -> Reported:
        body = travelled(body, Reports)
        self.batches.append(body)
        if self.gate is not None:
            await self.gate.wait()
        self._fail("report")
        receipts = []
        known = {report.event_id for report in self.reports}
        for report in body.events:
            outcome, code = self.verdicts.get(report.event_type, ("stored", ""))
            if report.event_id in known:
                outcome = "duplicate"
            elif outcome == "stored":
                self.reports.append(report)
            receipts.append(Receipt(event_id=report.event_id, outcome=outcome, code=code or None))
        cancelled, self.cancelled = self.cancelled, ()
        await self._say()
        return Reported(
            results=tuple(receipts), claimed=self._take(body.free_slots), cancelled=cancelled
        )

    async def claim(self, body: Any) -> Claimed:
        self.claims.append(body)
        await self._say()
        self._fail("claim")
        while not self.pending:
            self.more.clear()
            try:
                async with asyncio.timeout(body.wait_seconds):
                    await self.more.wait()
            except TimeoutError:
                return Claimed()
        return Claimed(claimed=self._take(body.free_slots))

    async def claim_one(self, event_id: str, worker_id: str) -> Command:
        del worker_id
        self._fail("claim_one")
        for command in self.pending:
            if command.event_id == event_id:
                self.pending.remove(command)
                return command
        raise refusal(404, "unknown_command")

    async def pool_heartbeat(self, body: Any) -> Beat:
        self.beats.append(msgspec.json.decode(msgspec.json.encode(body)))
        await self._say()
        self._fail("heartbeat")
        beat, self.beat = self.beat, Beat()
        return beat

    async def release(self, body: Any) -> None:
        self.released.append(body)
        await self._say()
        self._fail("release")

    async def log(self, body: Any) -> None:
        self._fail("log")
        self.lines.extend(travelled(body, LogBatch).entries)
        await self._say()

    async def register_worker(self, body: Any) -> Joined:
        self._fail("register_worker")
        self.entered.append(body.name)
        self.key = body.runtime.get("worker_public_key", "")
        await self._say()
        return Joined(
            name=body.name, lease_seconds=self.lease_s, servers=self.servers,
            machine_id=self.machine_id,
        )  # fmt: skip

    async def sealed(self, name: str, *, kind: str, worker_id: str, **about: str) -> SealedAnswer:
        self.asked.append((kind, name))
        self._fail("sealed")
        if not self.key:
            raise refusal(400, "worker_key_missing")
        if (kind, name) not in self.kept:
            raise refusal(404, "not_found")
        told = about_delivery(worker_id, about["execution_id"], name)
        sealed = seal_to(self.key, msgspec.json.encode(self.kept[kind, name]), told)
        return SealedAnswer(**msgspec.structs.asdict(sealed), expires_at="2026-01-01T00:00:00Z")

    async def leave(self, body: Any) -> None:
        self.left.append(body.name)

    async def entry(self, catalog_id: str) -> Entry:
        self.entries += 1
        self._fail("entry")
        return Entry(
            catalog_id=catalog_id, path="p", kind="Playbook", version=1, content=self.content,
            digest="", created_at="",
        )  # fmt: skip

    async def put_result(
        self, execution_id: str, step: str, body: bytes, media_type: str, **wishes: Any
    ) -> Any:
        self._fail("put_result")
        self.wishes.append(wishes)
        digest = hashlib.sha256(body).hexdigest()
        ref = f"noetl://execution/{execution_id}/result/{step}/{digest[:32]}"
        self.objects[ref] = body
        return {
            "kind": "result_ref", "ref": ref, "store": "memory", "size": len(body),
            "sha256": digest, "media_type": media_type,
        }  # fmt: skip

    async def get_result(self, ref: str) -> bytes:
        self.fetches += 1
        self._fail("get_result")
        if ref not in self.objects:
            raise refusal(404, "result_gone")
        return self.objects[ref]

    async def step_result(self, execution_id: str, step: str) -> Any:
        del execution_id
        if step not in self.steps:
            raise refusal(404, "not_found")
        return self.steps[step]

    def _take(self, count: int) -> tuple[Command, ...]:
        return tuple(self.pending.popleft() for _ in range(min(count, len(self.pending))))

    def _fail(self, method: str) -> None:
        waiting = self.failures.get(method)
        if waiting:
            raise waiting.popleft()

    async def _say(self) -> None:
        async with self.heard:
            self.heard.notify_all()


class Scripted:
    """A tool of kind `noop` that does what a test says."""

    kind = "noop"
    Config = Noop
    traits = Traits()

    def __init__(self, *moves: Any) -> None:
        self.moves = deque(moves)
        self.contexts: list[Any] = []
        self.configs: list[Any] = []
        self.cancels = 0

    async def run(self, config: Any, ctx: Any) -> Any:
        self.contexts.append(ctx)
        self.configs.append(config)
        move = self.moves.popleft() if self.moves else None
        if callable(move):
            move = await move(ctx)
        if isinstance(move, BaseException):
            raise move
        return move if isinstance(move, (Outcome, Parked)) else Outcome(data=move)

    async def cancel(self, ctx: Any) -> None:
        del ctx
        self.cancels += 1


class Stage:
    """A worker at work on a fake server."""

    def __init__(self, server: FakeServer, *tools: Any, **more: Any) -> None:
        self.server = server
        made = tools or (NoopTool(),)
        clock = more.pop("clock", None) or LoopClock(asyncio.get_running_loop(), START)
        self.worker = create_worker(
            WorkerParts(
                client=server, tools={tool.kind: tool for tool in made}, clock=clock,
                ids=Ids(clock, machine=1), worker_id="w-1", **more,
            )
        )  # fmt: skip

    async def emptied(self) -> None:
        """Wait until a report was made and nothing runs any more."""
        await self.server.until(lambda: bool(self.server.batches))
        await self.worker.held.emptied()

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.worker.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.task.done():
            self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def play(scene: Any) -> Any:
    """Run a scene in virtual time."""
    return run_virtually(scene())
