"""Runs a script with its interpreter: in a sandboxed child, or as a container job."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.tasks import ScriptTask
from noetl.dsl.tasks.shared import Script
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.container.script import container_request
from noetl.tools.python import environment_of, source_of
from noetl.tools.shell import data_of, ran

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import Parked, ToolContext
    from noetl.tools.container.tool import ContainerTool
    from noetl.tools.interpreter.process import Processes

INPUT_FILE: Final = "input.json"
MOST_INPUT: Final = 32 << 10  # in a variable; the file holds any size
_FILES: Final[Mapping[str, str]] = {"python": "script.py", "bash": "script.sh", "node": "script.js"}


class ScriptTool:
    """The kind `script`."""

    kind: ClassVar[str] = "script"
    Config: ClassVar[type[Task]] = ScriptTask
    traits: ClassVar[Traits] = Traits(parks=True)

    def __init__(
        self, processes: Processes, container: ContainerTool, *, is_shell_on: bool = True
    ) -> None:
        self._processes = processes
        self._container = container
        self._is_shell_on = is_shell_on

    async def run(self, config: ScriptTask, ctx: ToolContext) -> Outcome | Parked:
        """Run the script to its end, or park until its job has ended."""
        words = _interpreter(config.interpreter)
        arguments = arguments_of(config.args)
        text = await _text_of(config.script, ctx)
        env = environment_of(config.env)
        if config.job is not None:
            job = dict(config.job)
            wanted = config.install_dependencies
            if wanted is not None:
                job["install_dependencies"] = wanted if isinstance(wanted, bool) else list(wanted)
            asked, files = container_request(
                text, job, interpreter=words, arguments=arguments, env=env
            )
            return await self._container.run(asked, ctx, files)
        if config.install_dependencies:
            message = "/install_dependencies: only a container installs packages; add a `job`"
            raise ToolError("config", "invalid_config", message)
        if not self._is_shell_on and words != ["python"]:
            message = "scripts other than Python are off here (NOETL_SHELL=off)"
            raise ToolError("config", "shell_off", message)
        work = self._processes.folder()
        try:
            file = work / _FILES.get(words[0], "script")
            file.write_text(text, "utf-8")
            given = json.dumps(dict(ctx.input), default=str)
            (work / INPUT_FILE).write_text(given, "utf-8")
            own = {"NOETL_INPUT": given} if len(given.encode()) <= MOST_INPUT else {}
            program = [sys.executable] if words == ["python"] else words
            ended = await ran(
                self._processes, (*program, str(file), *arguments), config, ctx, (work, work),
                env={**own, **env},
            )  # fmt: skip
        finally:
            self._processes.remove(work)
        return Outcome(data=data_of([ended]))

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends its processes; a job is deleted."""
        await self._container.cancel(ctx)


def _interpreter(asked: Any) -> list[str]:  # noqa: ANN401 - a name, a command line, or words
    words = shlex.split(asked) if isinstance(asked, str) else [str(word) for word in asked]
    if not words:
        raise ToolError("config", "invalid_config", "/interpreter: a program is needed")
    return words


def arguments_of(args: Any) -> list[str]:  # noqa: ANN401 - a list, or a map of options
    """The words after the script: a list as it is, a map as options with their values."""
    if args is None:
        return []
    if isinstance(args, dict):
        return [word for name, value in args.items() for word in (f"--{name}", _word(value))]
    return [_word(value) for value in args]


def _word(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    if "\0" in text:
        raise ToolError("config", "invalid_config", "/args: a word cannot hold a zero byte")
    return text


async def _text_of(script: Any, ctx: ToolContext) -> str:  # noqa: ANN401 - a text, or where it lies
    if isinstance(script, Script):
        return await source_of(None, None, script, ctx)
    return str(script)
