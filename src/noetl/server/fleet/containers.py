"""Containers that have ended: their callbacks resume the commands that wait for them.

A callback may come before the worker has told that its command is parked. Then it is kept in the
store and given again when the command parks, for five minutes at most.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from noetl.api.callbacks import ContainerCallback, ContainerTaken
from noetl.clock import rfc3339
from noetl.edge.errors import Unacceptable, UnknownExecution
from noetl.edge.moments import from_now, moment_of
from noetl.engine import events as ev
from noetl.server.fleet.plain import id_of_command
from noetl.server.fleet.reports import find_command
from noetl.server.ingest.posts import Post, Stamped
from noetl.store.stored import HeldRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noetl.clock import Clock
    from noetl.dsl.tasks.task import Task
    from noetl.engine.events import Recorded
    from noetl.engine.state import Command, State
    from noetl.server.ingest.queue import Ingest
    from noetl.server.metrics import ServerMetrics
    from noetl.server.signals import Signals
    from noetl.store.base import Store

HELD_S: Final = 300.0
KIND: Final = "container"
_SCRIPT: Final = "script"
"""A kind whose `job` is a container, too."""
LONGEST_TEXT: Final = 8 * 1024
_ERRORS: Final = {
    "failed": ("container_failed", "container_failed", False),
    "failed_image_pull": ("config", "image_pull", False),
    "failed_oom": ("oom", "container_oom", False),
    "failed_node_lost": ("node_lost", "node_lost", True),
    "failed_timeout": ("timeout", "container_timeout", False),
}
"""By state: kind and code of the error, and whether another try may help."""
_log: Final = logging.getLogger(__name__)

Fate = Literal["taken", "known", "early", "stale"]


@dataclass(frozen=True, slots=True)
class Ended:
    """One job that has ended."""

    execution_id: str
    step: str
    body: ContainerCallback

    @property
    def event_id(self) -> str:
        """Derived, so that a repeated call stores nothing new."""
        job = self.body.job_uid or self.body.job_name
        digest = sha256(f"{self.execution_id}\0{self.step}\0{job}".encode()).digest()
        return str(int.from_bytes(digest[:8], "big") >> 1 | 1)


class Containers:
    """Takes callbacks of containers."""

    def __init__(
        self, store: Store, ingest: Ingest, signals: Signals, metrics: ServerMetrics, clock: Clock
    ) -> None:
        self._store = store
        self._ingest = ingest
        self._signals = signals
        self._metrics = metrics
        self._clock = clock
        self.parked = asyncio.Event()
        """Set when a command has parked in a run for which a callback is held here."""
        self._followed: set[str] = set()

    async def take(self, execution_id: str, step: str, body: ContainerCallback) -> ContainerTaken:
        """Resume the command of a job; a callback that came too early is held."""
        ended = Ended(execution_id, step, self._checked(step, body))
        self._metrics.container_callback.inc(body.state)
        fate = await self._given(ended)
        if fate == "early":
            fate = await self._hold(ended)
        if fate == "stale":
            self._tell_stale(ended)
            return ContainerTaken(status="accepted_stale")
        is_known = fate == "known"
        return ContainerTaken(
            status="duplicate" if is_known else "accepted_in_flight", event_id=ended.event_id
        )

    async def again(self) -> None:
        """Give the held callbacks again; those that nobody will wait for any more are dropped."""
        now = rfc3339(self._clock.now())
        rows = await self._store.held.waiting()
        for row in rows:
            ended = Ended(row.execution_id, row.step, msgspec.convert(row.body, ContainerCallback))
            fate = await self._given(ended)
            if fate == "early" and row.expires_at <= now:
                fate = "stale"
            if fate == "early":
                self._follow(row.execution_id)
            elif await self._store.held.drop(row) and fate == "stale":
                self._tell_stale(ended)
        self._unfollow(self._followed - {row.execution_id for row in rows})

    async def _given(self, ended: Ended) -> Fate:
        """Append the report, if a command waits for it."""
        fate: Fate = "stale"

        def make(state: State) -> Iterator[Stamped]:
            nonlocal fate
            command, is_parked = _waiting(state, ended)
            if command is None:
                fate = "stale"
            elif not is_parked:
                fate = "early"
            else:
                stamped = Stamped(
                    _report(command, ended),
                    ended.event_id,
                    command.id,
                    ended.body.completed_at,
                    unless_stored=True,
                )
                yield stamped
                fate = "taken" if stamped.is_new else "known"

        try:
            await self._ingest.post(Post(ended.execution_id, make))
        except UnknownExecution:
            return "stale"
        if fate in {"stale", "early"}:
            stored = await self._store.log.find(ended.execution_id, ended.event_id)
            return fate if stored is None else "known"
        return fate

    async def _hold(self, ended: Ended) -> Fate:
        row = HeldRow(
            execution_id=ended.execution_id,
            step=ended.step,
            job_name=ended.body.job_name,
            body=msgspec.to_builtins(ended.body),
            expires_at=from_now(self._clock, HELD_S),
        )
        is_new = await self._store.held.put(row)
        self._follow(ended.execution_id)
        self.parked.set()  # it may have parked before anybody looked for it
        return "taken" if is_new else "known"

    def _checked(self, step: str, body: ContainerCallback) -> ContainerCallback:
        """The body with its time in the one form; refused when it names nothing."""
        if not step.strip():
            raise _unfit("/step", "names no step")
        if not body.job_name.strip() or len(body.job_name) > LONGEST_TEXT:
            raise _unfit("/job_name", "names no job")
        given, now = body.completed_at, rfc3339(self._clock.now())
        command_id = None if body.command_id is None else id_of_command(body.command_id)
        return msgspec.structs.replace(
            body,
            completed_at=now if given is None else moment_of(given, "completed_at"),
            command_id=command_id,
        )

    def _follow(self, execution_id: str) -> None:
        if execution_id not in self._followed:
            self._followed.add(execution_id)
            self._signals.follow(execution_id, self._committed)

    def _unfollow(self, execution_ids: set[str]) -> None:
        for execution_id in execution_ids:
            self._followed.discard(execution_id)
            self._signals.unfollow(execution_id, self._committed)

    def _committed(self, events: Sequence[Recorded]) -> None:
        if any(isinstance(item.event, ev.CommandParked) for item in events):
            self.parked.set()

    def _tell_stale(self, ended: Ended) -> None:
        self._metrics.container_callback_stale.inc(ended.body.state)
        _log.warning(
            "nobody waits for a container",
            extra={
                "execution_id": ended.execution_id,
                "step": ended.step,
                "job_name": ended.body.job_name,
                "state": ended.body.state,
            },
        )


def _waiting(state: State, ended: Ended) -> tuple[Command | None, bool]:
    """The command that the job belongs to, and whether it waits; or one that may yet park."""
    early = None
    for command in _commands(state, ended):
        if command.status == "PARKED" and command.parked == "callback":
            if _is_meant(command.request or {}, ended.body):
                return command, True
        elif command.report is None and _runs_container(state, command):
            early = command
    return early, False


def _is_meant(request: Mapping[str, Any], body: ContainerCallback) -> bool:
    """Whether the job is the one that is waited for, and not one of the same name before it."""
    if request.get("job_name") != body.job_name:
        return False
    uid = request.get("job_uid")
    return uid is None or body.job_uid is None or uid == body.job_uid


def _commands(state: State, ended: Ended) -> Iterator[Command]:
    """Open commands of the step; the one that is named, when one is."""
    if ended.body.command_id is None:
        yield from (one for one in state.commands.values() if one.step == ended.step)
        return
    named = find_command(state, str(ended.body.command_id))
    if named is not None and named.step == ended.step:
        yield named


def _runs_container(state: State, command: Command) -> bool:
    if command.kind == KIND:
        return True
    plan = state.program.steps.get(command.step)
    return plan is not None and any(_is_container(task) for task in plan.step.tools)


def _is_container(task: Task) -> bool:
    return task.kind == KIND or (task.kind == _SCRIPT and getattr(task, "job", None) is not None)


def _report(command: Command, ended: Ended) -> ev.CallDone:
    """The report of a container: it is done, and its outcome tells whether it went well."""
    body = ended.body
    data: dict[str, Any] = {
        "terminal_state": body.state,
        "job_name": body.job_name,
        "job_uid": body.job_uid,
        "completed_at": body.completed_at,
        "exit_code": body.exit_code,
        "reason": body.reason,
        "stdout_uri": body.stdout_uri,
        "stderr_uri": body.stderr_uri,
        "output": body.output,
    }
    about: dict[str, Any] = {
        "step": command.step,
        "command_key": command.key,
        "attempt": command.attempt,
        "result": data,
        "origin": KIND,
    }
    if body.state == "succeeded":
        return ev.CallDone(**about)
    kind, code, is_retryable = _ERRORS[body.state]
    error = ev.Error(
        kind=kind,
        code=code,
        message=f"the container {body.job_name} ended as {body.state}: {body.reason or 'unknown'}",
        retryable=is_retryable,
        step=command.step,
        index=command.index,
        details={"exit_code": body.exit_code, "job_uid": body.job_uid},
    )
    return ev.CallDone(outcome="FAILED", error=error, **about)


def _unfit(pointer: str, message: str) -> Unacceptable:
    errors = ({"pointer": pointer, "code": "validation_failed"},)
    return Unacceptable(f"{pointer}: {message}", errors=errors)
