"""Calls of tools: a run is started as for every other client, and waited for a while."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Execute
from noetl.api.gateway import Wish
from noetl.dsl.conformity import faults
from noetl.errors import NoetlError
from noetl.gateway.errors import UnknownRequest
from noetl.gateway.frames import PROGRESS, RESULT, STATE
from noetl.gateway.mcp.builtin import BUILTINS
from noetl.gateway.mcp.protocol import INVALID_PARAMS, WITH_TASKS, RpcFault
from noetl.gateway.mcp.results import of_document, of_error, of_faults, of_value, task_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.gateway import Accepted, RequestDocument
    from noetl.gateway.gate import Gate
    from noetl.gateway.hub.stream import Stream
    from noetl.gateway.mcp.builtin import Builtin
    from noetl.gateway.mcp.protocol import Call
    from noetl.gateway.mcp.tools import Tool, Toolbox
    from noetl.gateway.person import Person

    Tell = Callable[[str, float | None], Awaitable[None]]
    """What is done, and how much of all that is, if anybody says."""

WAIT_S: Final = 30.0
CANCEL_S: Final = 5.0
DRY_RUN: Final = "noetl/dryRun"
MOST_TASKS: Final = 100
_RELATED: Final = "io.modelcontextprotocol/related-task"


class _Frame(msgspec.Struct, frozen=True):
    """A message of a stream."""

    method: str
    params: dict[str, Any] = {}


_decode: Final = msgspec.json.Decoder(_Frame).decode


class ToolCalls:
    """Runs tools for people."""

    def __init__(self, gate: Gate, toolbox: Toolbox, wait_s: float = WAIT_S) -> None:
        self._gate = gate
        self._toolbox = toolbox
        self._wait_s = wait_s

    async def call(self, person: Person, call: Call, tell: Tell | None = None) -> dict[str, Any]:
        """The result of `tools/call`; what goes wrong with the tool is a result, too."""
        name, arguments = call.text("name"), call.params.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise RpcFault(INVALID_PARAMS, "`arguments` must be an object")
        builtin = BUILTINS.get(name)
        try:
            if builtin is not None:
                made = await self._asked(person, builtin, arguments)
            else:
                tool = await self._tool(person, name)
                made = await self._ran(person, call, tool, arguments, tell)
        except NoetlError as error:
            made = of_error(error)
        self._gate.metrics.mcp_calls.inc("error" if made.get("isError") else "ok")
        return made

    async def _tool(self, person: Person, name: str) -> Tool:
        found = (await self._toolbox.of(person, BUILTINS)).get(name)
        if found is None:
            self._gate.metrics.mcp_calls.inc("refused")
            raise RpcFault(INVALID_PARAMS, f"Unknown tool: {name[:200]}")
        return found

    async def _asked(
        self, person: Person, builtin: Builtin, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        found = faults(builtin.takes, arguments)
        if found:
            return of_faults(found)
        client = self._gate.upstream.acting_for(person, arguments.get("execution_id"))
        return of_value(msgspec.to_builtins(await builtin.run(client, arguments)))

    async def _ran(
        self,
        person: Person,
        call: Call,
        tool: Tool,
        arguments: dict[str, Any],
        tell: Tell | None,
    ) -> dict[str, Any]:
        found = faults(tool.shape.takes, arguments)
        if found:
            return of_faults(found)
        if call.meta.get(DRY_RUN) is True:
            return await self._rehearsed(person, tool, arguments)
        self._gate.limits.take("execute", person.user_id)
        if call.version == WITH_TASKS and isinstance(call.params.get("task"), dict):
            accepted = await self._begun(person, tool, arguments)
            document = await self._gate.requests.document(person, accepted.request_id)
            return {"task": task_of(document, is_modern=False)}
        document = await self._waited(person, tool, arguments, tell)
        if document.is_open and call.has_tasks:
            return {"resultType": "task", **task_of(document, is_modern=True)}
        return of_document(document)

    async def _rehearsed(
        self, person: Person, tool: Tool, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        client = self._gate.upstream.acting_for(person)
        found = await client.rehearse(Execute(path=tool.path, payload=arguments))
        status = "VALID" if found.valid else "INVALID"
        body = {"status": status, "problems": list(found.problems)}
        return of_value(body, is_error=not found.valid)

    async def _begun(
        self, person: Person, tool: Tool, arguments: dict[str, Any], line: Stream | None = None
    ) -> Accepted:
        """Start a run, of which only a line is told, if there is one."""
        wish = Wish(
            name=tool.path,
            variables=arguments,
            client_id=None if line is None else line.client_id,
            delivery="none" if line is None else "client",
        )
        return await self._gate.requests.start(person, wish)

    async def _waited(
        self, person: Person, tool: Tool, arguments: dict[str, Any], tell: Tell | None
    ) -> RequestDocument:
        """The request when it has ended, or after a while as it is then."""
        if tell is None:
            accepted = await self._begun(person, tool, arguments)
            return await self._gate.requests.document(person, accepted.request_id, self._wait_s)
        clock = self._gate.clock
        async with self._gate.hub.line(person) as line:
            accepted = await self._begun(person, tool, arguments, line)
            until = clock.monotonic() + self._wait_s
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s):
                    await self._told(person, accepted, line, tell)
        left_s = max(0.0, until - clock.monotonic())  # a line that was cut has not told the end
        return await self._gate.requests.document(person, accepted.request_id, left_s)

    async def _told(self, person: Person, accepted: Accepted, line: Stream, tell: Tell) -> None:
        """Tell what is heard of a run until it has ended, or nothing more is heard."""
        while told := await line.next():
            has_moved = False
            for frame in map(_decode, told):
                if frame.params.get("requestId") != accepted.request_id:
                    continue
                if frame.method == RESULT:
                    return
                if frame.method == PROGRESS:
                    about = (frame.params.get("step"), frame.params.get("message"))
                    text = ": ".join(filter(None, about))
                    await tell(text, frame.params.get("progress"))
                has_moved = has_moved or frame.method == STATE
            if has_moved:
                await self._steps(person, accepted.execution_id, tell)

    async def _steps(self, person: Person, execution_id: str, tell: Tell) -> None:
        """Tell which steps run now."""
        try:
            status = await self._gate.upstream.acting_for(person, execution_id).status(execution_id)
        except NoetlError:  # who waits is told when something is heard next
            return
        await tell(", ".join(status.current_steps) or status.status, None)

    # ------------------------------------------------------------------ runs as tasks

    async def task(self, person: Person, call: Call) -> dict[str, Any]:
        """`tasks/get`: how a run is; the modern answer has its result, too."""
        document = await self._document(person, call)
        made = task_of(document, is_modern=call.is_modern)
        if call.is_modern and not document.is_open:
            made["result"] = {"resultType": "complete", **of_document(document)}
        return made

    async def task_result(self, person: Person, call: Call) -> dict[str, Any]:
        """`tasks/result`: the result when it is there; every request has an end."""
        document = await self._document(person, call)
        while document.is_open:
            document = await self._document(person, call, self._wait_s)
        related = {_RELATED: {"taskId": document.request_id}}
        return {**of_document(document), "_meta": related}

    async def cancelled(self, person: Person, call: Call) -> dict[str, Any]:
        """`tasks/cancel`: end a run."""
        document = await self._document(person, call)
        if not document.is_open:
            raise RpcFault(INVALID_PARAMS, f"The task has ended: {document.state}")
        await self._gate.requests.cancel(person, request_id=document.request_id)
        if call.is_modern:
            return {}
        document = await self._document(person, call, CANCEL_S)
        return {**task_of(document, is_modern=False), "status": "cancelled"}

    async def tasks(self, person: Person) -> dict[str, Any]:
        """`tasks/list`: the newest runs of the caller."""
        found = await self._gate.requests.listed(person, MOST_TASKS)
        return {"tasks": [task_of(one, is_modern=False) for one in found]}

    async def _document(self, person: Person, call: Call, wait_s: float = 0.0) -> RequestDocument:
        try:
            return await self._gate.requests.document(person, call.text("taskId"), wait_s)
        except UnknownRequest:
            raise RpcFault(INVALID_PARAMS, "Task not found") from None
