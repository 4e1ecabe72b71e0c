"""Runs Python code in a warm child interpreter."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.tasks import Python
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.interpreter.exchange import Exchange
from noetl.tools.interpreter.limits import Limits
from noetl.tools.interpreter.runner import Died, Job
from noetl.tools.interpreter.sandbox import SandboxMissing, Walls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks.shared import Process, Script
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.interpreter.pool import Interpreters


class PythonTool:
    """The kind `python`."""

    kind: ClassVar[str] = "python"
    Config: ClassVar[type[Task]] = Python
    traits: ClassVar[Traits] = Traits()

    def __init__(self, interpreters: Interpreters) -> None:
        self._interpreters = interpreters

    async def run(self, config: Python, ctx: ToolContext) -> Outcome:
        """Run the code; its value is the data."""

        def on_line(stream: str, level: str, text: str) -> None:
            ctx.log(text, level=level, stream=stream)

        limits = limits_of(config)
        exchange = Exchange(ctx, limits)
        job = Job(
            domain=ctx.domain,
            code=await source_of(config.code, config.code_b64, config.script, ctx),
            inputs=dict(ctx.input),
            context={"execution_id": ctx.execution_id, "step": ctx.step, **ctx.scope},
            names=ctx.names,
            libs=config.libs,
            env=environment_of(config.env),
            key=ctx.idempotency_key,
            limits=limits,
            walls=walls_of(config),
            requirements=config.requirements,
            is_fresh=config.isolation == "fresh" or config.sandbox == "strict",
            on_line=on_line,
            on_progress=lambda fraction, message: ctx.progress(fraction * 100, message),
            fetch=ctx.fetch,
            exchange=exchange.answered,
        )
        try:
            done = await self._interpreters.run(job)
        except SandboxMissing as fault:
            raise ToolError("sandbox", "sandbox_missing", str(fault)) from None
        except Died as fault:
            raise ToolError(fault.kind, fault.code, fault.message) from None
        finally:
            await exchange.close()
        if done.error is not None:
            told = done.error
            raise ToolError(told.kind, told.code, told.message, details=told.details)
        return Outcome(data=done.value)

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends its child."""


async def source_of(
    code: str | None, code_b64: str | None, script: Script | None, ctx: ToolContext
) -> str:
    """The text of the code, wherever it lies."""
    if code is not None:
        return code
    if code_b64 is not None:
        try:
            return base64.b64decode(code_b64, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as fault:
            raise ToolError("config", "invalid_config", f"/code_b64: {fault}") from None
    if script is None:
        raise ToolError("config", "invalid_config", "/code: there is no code")
    if script.source is not None and script.source.type == "inline":
        text = script.source.code or ""
    elif ctx.load_script is not None:
        text = await ctx.load_script(script)
    else:
        raise ToolError("config", "script_unavailable", "this worker cannot fetch scripts")
    if script.sha256 and hashlib.sha256(text.encode()).hexdigest() != script.sha256:
        raise ToolError("config", "digest_mismatch", "/script/sha256: the script is another one")
    return text


def environment_of(env: Any) -> dict[str, str]:  # noqa: ANN401 - a map, or a list of {name, value}
    """The environment that the author gave, as texts."""
    if env is None:
        return {}
    pairs = env.items() if isinstance(env, dict) else ((e.get("name"), e.get("value")) for e in env)
    made: dict[str, str] = {}
    for name, value in pairs:
        if not isinstance(name, str) or not name or "=" in name or "\0" in f"{name}{value}":
            raise ToolError("config", "invalid_config", f"/env: {name!r} is no name of a variable")
        made[name] = _text(value)
    return made


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def limits_of(config: Process) -> Limits:
    """The limits of the child."""
    given = config.limits
    if given is None:
        return Limits()
    values: Mapping[str, Any] = {
        name: None if getattr(given, name) is None else int(getattr(given, name))
        for name in ("memory_mb", "cpu_s", "files", "procs", "disk_mb", "output_mb")
    }
    return Limits(**values)


def walls_of(config: Process) -> Walls:
    """How far the child is shut in."""
    return Walls(strict=config.sandbox == "strict", network=config.network in {"on", True})
