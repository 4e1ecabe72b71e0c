"""One run on this machine, from its start (or the log of one that was cut short) to its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from noetl.api.catalog import Register
from noetl.api.executions import Control, Execute
from noetl.api.problems import Refused
from noetl.engine.events import PlaybookStarted
from noetl.local.playbooks import PlaybookChanged
from noetl.local.references import MOST_OUTPUT, inlined

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from noetl.engine.events import Recorded
    from noetl.local.run import Stack
    from noetl.local.steps import Run
    from noetl.local.watch import Watch

CANCEL_S: Final = 30.0

Ending = Literal["ended", "timeout", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be run."""

    file: str
    text: str
    payload: dict[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    most_output: int = MOST_OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What came of it."""

    run: Run
    ending: Ending = "ended"
    events_file: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """The run as `-o json` shows it."""
        file = None if self.events_file is None else str(self.events_file)
        return {**self.run.as_json(), "events_file": file}


async def start(stack: Stack, job: Job, execution_id: str | None = None) -> str:
    """Put the playbook in the catalog and start it."""
    entry = await stack.client.register(Register(content=job.text))
    wanted = Execute(
        catalog_id=entry.catalog_id,
        payload=job.payload,
        execution_id=execution_id,
        trigger={"kind": "local", "file": job.file, "digest": digest_of(job.text)},
    )
    try:
        started = await stack.client.execute(wanted)
    except Refused:
        if stack.watch.fault is not None:
            raise stack.watch.fault from None
        raise
    return started.execution_id


async def finish(stack: Stack, job: Job, stop: asyncio.Event) -> Finished:
    """Wait for the end; when time is up or the caller stops it, cancel and wait for that."""
    watch = stack.watch
    ending = await _first(watch, stop, job.timeout_s)
    if ending != "ended":
        reason = "interrupted" if ending == "stopped" else f"not done within {job.timeout_s:g} s"
        await cancel(stack, reason)
    if watch.fault is not None:
        raise watch.fault
    run = watch.runs.root
    if run is None:
        raise RuntimeError("the run has no event")
    await inlined(stack.client, run, job.most_output)
    file = None if watch.journal is None else watch.journal.path
    return Finished(run=run, ending=ending, events_file=file)


async def _first(watch: Watch, stop: asyncio.Event, timeout_s: float | None) -> Ending:
    waits = {
        asyncio.ensure_future(watch.ended.wait()): "ended",
        asyncio.ensure_future(stop.wait()): "stopped",
    }
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waits:
            task.cancel()
    if watch.ended.is_set():
        return "ended"
    return "stopped" if done else "timeout"


async def cancel(stack: Stack, reason: str) -> None:
    """Cancel every run that has not ended, and wait until each has."""
    for run in stack.watch.runs.unfinished():
        try:
            await stack.client.cancel(run.execution_id, Control(reason=reason))
        except Refused:
            continue  # it ended meanwhile
    async with asyncio.timeout(CANCEL_S):
        await stack.watch.ended.wait()


def root_of(log: Sequence[Recorded]) -> PlaybookStarted:
    """The start of the newest run of a log that is nobody's child."""
    roots = [
        recorded.event
        for recorded in log
        if isinstance(recorded.event, PlaybookStarted)
        and recorded.event.parent_execution_id is None
    ]
    return roots[-1]


def digest_of(text: str) -> str:
    """The digest under which a log remembers its playbook."""
    return sha256(text.encode()).hexdigest()


def check_same(root: PlaybookStarted, file: str, text: str) -> None:
    """Refuse a playbook that is not the one of the log."""
    if root.trigger.get("digest") != digest_of(text):
        raise PlaybookChanged(
            f"{file} is not the playbook that the log was made with",
            hint="restore the file as it was, or start a new run",
        )
