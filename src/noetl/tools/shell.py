"""Runs shell commands in a sandboxed child."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from noetl.dsl.tasks import Shell
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.interpreter.process import INLINE_BYTES, Command, Ended, Processes
from noetl.tools.interpreter.runner import Died
from noetl.tools.interpreter.sandbox import SandboxMissing
from noetl.tools.python import environment_of, limits_of, walls_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from noetl.dsl.tasks.shared import Process
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext


class ShellTool:
    """The kind `shell`."""

    kind: ClassVar[str] = "shell"
    Config: ClassVar[type[Task]] = Shell
    traits: ClassVar[Traits] = Traits()

    def __init__(self, processes: Processes, *, is_on: bool = True) -> None:
        self._processes = processes
        self._is_on = is_on

    async def run(self, config: Shell, ctx: ToolContext) -> Outcome:
        """Run the commands in order; the first that fails fails the task."""
        if not self._is_on:
            raise ToolError("config", "shell_off", "shell steps are off here (NOETL_SHELL=off)")
        work = self._processes.folder()
        try:
            cwd = _inside(work, config.cwd)
            env = environment_of(config.env)
            ended = [
                await ran(
                    self._processes, argv, config, ctx, (work, cwd),
                    env=env, stdin=(config.stdin or "").encode(),
                )
                for argv in _programs(config)
            ]  # fmt: skip
        finally:
            self._processes.remove(work)
        return Outcome(data=data_of(ended))

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends its group of processes."""


async def ran(  # noqa: PLR0913 - what one program is
    processes: Processes,
    argv: tuple[str, ...],
    config: Process,
    ctx: ToolContext,
    folders: tuple[Path, Path],
    *,
    env: Mapping[str, str],
    stdin: bytes = b"",
) -> Ended:
    """Run one program of a task in its work folder; one that fails fails the task."""

    def on_line(stream: str, text: str) -> None:
        ctx.log(text, stream=stream)

    command = Command(
        argv=argv,
        env={"NOETL_IDEMPOTENCY_KEY": ctx.idempotency_key, **env},
        stdin=stdin,
        limits=limits_of(config),
        walls=walls_of(config),
        on_line=on_line,
    )
    try:
        ended = await processes.run(command, *folders)
    except Died as fault:
        raise ToolError(fault.kind, fault.code, fault.message) from None
    except SandboxMissing as fault:
        raise ToolError("sandbox", "sandbox_missing", str(fault)) from None
    if ended.exit_code != 0:
        raise _failure(ended)
    return ended


def _programs(config: Shell) -> list[tuple[str, ...]]:
    if config.argv:
        return [tuple(config.argv)]
    lines = [config.command] if config.command is not None else list(config.cmds)
    return [(config.shell, "-c", line) for line in lines]


def _inside(work: Path, cwd: str | None) -> Path:
    """A folder inside the work folder."""
    if cwd is None:
        return work
    parts = PurePosixPath(cwd)
    if parts.is_absolute() or ".." in parts.parts:
        raise ToolError("config", "invalid_config", "/cwd: must lie inside the work folder")
    made = work / parts
    made.mkdir(parents=True, exist_ok=True)
    return made


def _failure(ended: Ended) -> ToolError:
    said = ended.stderr.strip().splitlines()
    code = ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code
    message = f"the command ended with code {code}" + (f": {said[-1]}" if said else "")
    return ToolError("process", f"exit_{code}", message, details=data_of([ended]))


def data_of(ended: list[Ended]) -> dict[str, object]:
    """What programs of a task did, as its data."""
    return {
        "exit_code": ended[-1].exit_code if ended else 0,
        "stdout": "".join(one.stdout for one in ended)[:INLINE_BYTES],
        "stderr": "".join(one.stderr for one in ended)[:INLINE_BYTES],
    }
