"""Jobs as plain processes of this machine, in the sandbox of code: for development.

The image is recorded and not used. A job dies with its worker; the next process of that worker
finds its record and tells that the machine of the job was lost.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.tools.base import ToolError
from noetl.tools.container.job import FOLDER, INPUT_KEY
from noetl.tools.container.quantity import amount
from noetl.tools.container.ticket import MOST_LOG_BYTES, MOST_MESSAGE_BYTES, End, output_of
from noetl.tools.interpreter.limits import Limits, oom_kills
from noetl.tools.interpreter.process import Command, Processes
from noetl.tools.interpreter.runner import Died
from noetl.tools.interpreter.sandbox import SandboxMissing, Walls

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.api.callbacks import ContainerState
    from noetl.clock import Clock
    from noetl.tools.container.job import Order
    from noetl.tools.container.ticket import Secrets, Ticket

WORD: Final = "termination-log"
_KILLED: Final = {-signal.SIGKILL, 128 + signal.SIGKILL}


class ProcessRuntime:
    """Runs the command of a container on this machine."""

    name = "process"

    def __init__(self, processes: Processes, clock: Clock) -> None:
        self._processes = processes
        self._clock = clock

    @staticmethod
    def check(order: Order) -> None:
        """Refuse what a process cannot have."""
        config = order.config
        if not config.command:
            message = "/command: a process has no image whose entry point could run"
            raise ToolError("config", "invalid_config", message)
        if config.volumes or config.volume_mounts:
            raise ToolError("config", "invalid_config", "/volumes: a process has no volumes")
        refuse_secrets(order)

    async def run(self, ticket: Ticket, order: Order | None) -> tuple[End, bytes]:
        """Run the command to its end; one whose order is gone went with an earlier process."""
        if order is None:
            reason = "the worker that ran the process has ended"
            return End(state="failed_node_lost", reason=reason), b""
        work = self._processes.folder()
        printed = bytearray()
        killed = oom_kills()
        code: int | None = None
        try:
            command = self._command(order, work, printed)
            async with asyncio.timeout(ticket.timeout_s):
                ended = await self._processes.run(command, work, work)
            code = ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code
            is_oom = ended.exit_code in _KILLED and oom_kills() > killed
            state: ContainerState = "succeeded" if code == 0 else "failed"
            said = ended.stderr.strip().splitlines()
            told = f"exit code {code}" + (f": {said[-1]}" if said else "")
            end = End(
                state="failed_oom" if is_oom else state,
                exit_code=code,
                reason=None if code == 0 else told,
            )
        except TimeoutError:
            reason = f"DeadlineExceeded: over {ticket.timeout_s:g} s"
            end = End(state="failed_timeout", reason=reason)
        except Died as fault:
            is_memory = fault.code == "memory_limit"
            end = End(state="failed_oom" if is_memory else "failed", reason=fault.message)
        except (SandboxMissing, OSError) as fault:
            end = End(state="failed", reason=str(fault))
        finally:
            output = output_of(_last_word(work / "noetl" / WORD))
            self._processes.remove(work)
        return _with(end, output, rfc3339(self._clock.now())), bytes(printed)

    async def secrets(self, ticket: Ticket) -> Secrets:
        """A process whose order is gone says nothing any more."""
        del ticket
        return ()

    async def stop(self, ticket: Ticket) -> None:
        """A job that is watched no longer has ended."""

    async def clear(self, ticket: Ticket) -> None:
        """Nothing is left of a process."""

    @staticmethod
    def _command(order: Order, work: Path, printed: bytearray) -> Command:
        own = work / "noetl"
        own.mkdir()
        for name, data in {INPUT_KEY: order.input, **order.files}.items():
            (own / name).write_bytes(data)
        words = [word for part in order.words for word in part]
        memory = amount(order.limits["memory"], "/resources/limits/memory")

        def on_line(_stream: str, text: str) -> None:
            if len(printed) < MOST_LOG_BYTES:
                printed.extend(text.encode("utf-8", "replace") + b"\n")

        env = order.own_env | {one.name: one.value for one in order.env}
        return Command(
            argv=tuple(word.replace(f"{FOLDER}/", f"{own}/", 1) if _is_own(word) else word
                       for word in words),
            env=env | {"NOETL_TERMINATION_LOG": str(own / WORD)},
            limits=Limits(memory_mb=math.ceil(memory / (1 << 20))),
            walls=Walls(),
            on_line=on_line,
        )  # fmt: skip


def refuse_secrets(order: Order) -> None:
    """Only a cluster has secrets that a variable can be taken from."""
    for one in order.env:
        if one.secret is not None:
            message = f"/env: `{one.name}` is taken from a secret that only Kubernetes has"
            raise ToolError("config", "invalid_config", message)


def _is_own(word: str) -> bool:
    """Whether a word names a file that we gave the container."""
    return word.startswith(f"{FOLDER}/") and "/" not in word[len(FOLDER) + 1 :]


def _last_word(file: Path) -> bytes | None:
    """What the process left as its last word; a link that it made is not followed."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as opened:
        return opened.read(MOST_MESSAGE_BYTES + 1)


def _with(end: End, output: object, completed_at: str) -> End:
    return End(
        state=end.state,
        exit_code=end.exit_code,
        reason=end.reason,
        completed_at=completed_at,
        output=output,
    )
