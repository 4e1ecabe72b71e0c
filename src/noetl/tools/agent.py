"""Agents of any framework in a child interpreter; an agent of our own is a playbook.

No framework is imported here: an agent is an object that has a method to call.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.tasks import Agent
from noetl.dsl.views import Outcome
from noetl.tools.auth import credential
from noetl.tools.base import Parked, ToolError, Traits, failed
from noetl.tools.interpreter.limits import Limits
from noetl.tools.interpreter.runner import Died, Job
from noetl.tools.interpreter.sandbox import SandboxMissing, Walls
from noetl.tools.playbook import parked_for
from noetl.tools.python import environment_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.interpreter.pool import Interpreters

DRIVER: Final = Path(__file__).with_name("interpreter") / "agent_child.py"
_SHUT: Final = frozenset({"limit", "sandbox", "timeout", "process", "cancelled"})
"""Errors of the child itself, not of the agent in it."""


class AgentTool:
    """The kind `agent`."""

    kind: ClassVar[str] = "agent"
    Config: ClassVar[type[Task]] = Agent
    traits: ClassVar[Traits] = Traits(parks=True, settles=True)

    def __init__(self, interpreters: Interpreters) -> None:
        self._interpreters = interpreters

    async def run(self, config: Agent, ctx: ToolContext) -> Outcome | Parked:
        """Run the agent; what it awaited is its answer, or what is wrong with it."""
        if not config.entrypoint:
            message = "/entrypoint: is needed: module:attr, or the path of a playbook"
            raise ToolError("config", "invalid_config", message)
        if ctx.awaited is None:
            return await self._begun(config, ctx)
        kept = ctx.resume if isinstance(ctx.resume, dict) else {}
        if "error" in kept:
            return _diagnosed(kept["error"], ctx.awaited)
        return self._answered(config, ctx, ctx.awaited)

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends its child; the server ends a playbook."""

    async def _begun(self, config: Agent, ctx: ToolContext) -> Outcome | Parked:
        if config.framework == "noetl":
            payload = config.payload if isinstance(config.payload, dict) else {}
            if not payload and config.payload is not None:
                payload = {"payload": config.payload}
            return parked_for(str(config.entrypoint), payload, ctx)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            value = await self._value(config, ctx)
        except ToolError as fault:
            took = round(loop.time() - began, 6)
            return self._failed(config, ctx, fault, took)
        return Outcome(data=_envelope(config, ctx, data=value, duration=loop.time() - began))

    async def _value(self, config: Agent, ctx: ToolContext) -> Any:  # noqa: ANN401 - of the agent
        """What the agent says."""
        source = await asyncio.to_thread(DRIVER.read_text, encoding="utf-8")
        env = environment_of(config.env)
        job = Job(
            domain=ctx.domain,
            code=source,
            inputs={
                "framework": config.framework,
                "entrypoint": config.entrypoint,
                "entrypoint_args": config.entrypoint_args,
                "invoke_method": config.invoke_method,
                "payload": dict(ctx.input) if config.payload is None else config.payload,
                "invoke_kwargs": dict(config.invoke_kwargs),
                "credentials": await _credentials(config.auth, ctx),
                "folders": [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path],
            },
            context={"execution_id": ctx.execution_id, "step": ctx.step},
            env=env,
            key=ctx.idempotency_key,
            limits=Limits(),
            walls=Walls(),
            requirements=config.requirements,
            on_line=lambda stream, level, text: ctx.log(text, level=level, stream=stream),
            on_progress=lambda fraction, message: ctx.progress(fraction * 100, message),
            fetch=ctx.fetch,
        )
        try:
            done = await self._interpreters.run(job)
        except SandboxMissing as fault:
            raise ToolError("sandbox", "sandbox_missing", str(fault)) from None
        except Died as fault:
            raise ToolError(fault.kind, fault.code, fault.message) from None
        if done.error is not None:
            told = done.error
            kind = told.kind if told.kind in _SHUT else "provider"
            code = told.code if told.kind in _SHUT else "agent_failed"
            raise ToolError(kind, code, told.message, details=told.details)
        return done.value

    def _answered(self, config: Agent, ctx: ToolContext, awaited: Outcome) -> Outcome | Parked:
        """What became of an agent that is a playbook."""
        if awaited.error is None:
            return Outcome(data=_envelope(config, ctx, data=awaited.data, duration=None))
        told = awaited.error
        details = {"child": dict(told)}
        message = str(told.get("message") or "the playbook failed")
        fault = ToolError("provider", "agent_failed", message, details=details)
        return self._failed(config, ctx, fault, None)

    def _failed(
        self, config: Agent, ctx: ToolContext, fault: ToolError, duration: float | None
    ) -> Outcome | Parked:
        """Fail, after a playbook had a look at it when the author wants that."""
        error = fault.as_map()
        about = _envelope(config, ctx, data=None, duration=duration, error=error["message"])
        error["details"] = {**(error["details"] or {}), "agent": about}
        path = config.on_failure and config.on_failure.troubleshoot
        if fault.kind != "provider" or not path:
            return _raised(error)
        clean = ctx.redactor.redact_value(error)
        ctx.keep({"error": clean})
        payload = ctx.redactor.redact_value(config.payload)
        return parked_for(str(path), {"error": clean, "agent": about, "payload": payload}, ctx)


def _diagnosed(error: Mapping[str, Any], found: Outcome) -> Outcome:
    """The error, with what the playbook that looked at it has found."""
    diagnosis = found.data if found.error is None else {"error": found.error}
    return _raised({**error, "details": {**(error.get("details") or {}), "diagnosis": diagnosis}})


def _raised(error: Mapping[str, Any]) -> Outcome:
    return failed(
        ToolError(
            error["kind"],
            error["code"],
            error["message"],
            retryable=error["retryable"],
            details=error["details"],
        )
    )


def _envelope(
    config: Agent,
    ctx: ToolContext,
    *,
    data: Any,  # noqa: ANN401 - of the agent
    duration: float | None,
    error: str | None = None,
) -> dict[str, Any]:
    return {
        "status": "ok" if error is None else "error",
        "framework": config.framework,
        "entrypoint": config.entrypoint,
        "data": data,
        "execution_id": ctx.execution_id,
        "duration": None if duration is None else round(duration, 6),
        "error": error,
    }


async def _credentials(auth: Any, ctx: ToolContext) -> dict[str, Any]:  # noqa: ANN401 - an alias or a map
    """The fields of the credentials that the agent is given, by the names that it knows."""
    if auth is None:
        return {}
    named = {"default": auth} if isinstance(auth, str) else dict(auth)
    return {name: await credential(str(alias), ctx) for name, alias in named.items()}
