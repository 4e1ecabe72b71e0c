"""Sends progress or a result to the client that waits for a run.

Where the client waits and what proves the callback come with the command, as for the kind `http`;
the token is opened for the request that carries it, and no template, event or line has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.api.codes import PROBLEMS
from noetl.api.gateway import (
    CALLBACK_HEADER,
    MOST_CALLBACK_BYTES,
    Callback,
    CallbackAnswer,
    CallbackHeard,
    Progress,
    end_of,
)
from noetl.api.problems import Problem
from noetl.dsl.tasks import Gateway
from noetl.dsl.tasks.calls import REQUEST_ID
from noetl.dsl.template import render
from noetl.dsl.views import Outcome
from noetl.secrets.fetch import Ask
from noetl.telemetry.traces.context import onward
from noetl.tools.base import ToolError, Traits

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.dsl.tasks.task import Task
    from noetl.secrets.fetch import Answer
    from noetl.tools.base import ToolContext
    from noetl.tools.http.fetching import Fetcher

ASK_S: Final = 60.0
"""How long each part of an exchange may take."""
UNKNOWN: Final = "unknown_request"
_ROUTES: Final = {"result": "/api/internal/callback", "progress": "/api/internal/progress"}
_WITHOUT: Final = {"result": ("progress",), "progress": ("status", "data")}
"""Keys that say nothing in an operation."""
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{1,63}")
_UNPROVED: Final = (
    "nothing proves that this run may send word to the client of the request: leave `request_id`"
    " out, or let the parent hand on `request_id`, `gateway_url` and `callback_token` of its"
    " workload"
)


class GatewayTool:
    """The kind `gateway`."""

    kind: ClassVar[str] = "gateway"
    Config: ClassVar[type[Task]] = Gateway
    traits: ClassVar[Traits] = Traits()

    def __init__(self, fetcher: Fetcher, clock: Clock) -> None:
        """Take the way out, which is guarded, and the clock that dates in answers are read by."""
        self._fetcher = fetcher
        self._clock = clock

    async def run(self, config: Gateway, ctx: ToolContext) -> Outcome:
        """Send word to the client; without a request nobody waits."""
        request_id = config.request_id or await _own_request(ctx)
        if not request_id:
            return Outcome(data={"delivered": False})
        body = msgspec.json.encode(_word(config, request_id, ctx))
        if len(body) > MOST_CALLBACK_BYTES:
            message = (
                f"the client is sent {MOST_CALLBACK_BYTES >> 20} MiB at most, and this is"
                f" {len(body)} bytes: send a reference, or end the run with the value"
            )
            raise ToolError("limit", "output_limit", message)
        callback = ctx.callback
        token = None if callback is None else await callback.token()
        if callback is None or token is None:
            raise ToolError("auth", "callback_token_missing", _UNPROVED)
        ask = Ask(
            method="POST",
            url=callback.url.rstrip("/") + _ROUTES[config.operation],
            headers={
                "content-type": "application/json",
                **onward(ctx.trace),
                CALLBACK_HEADER: token,
            },
            body=body,
            timeout_s=ASK_S,
        )
        answer = await self._fetcher.sent(ask)
        return Outcome(data=self._told(config, answer))

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task closes its connection."""

    async def close(self) -> None:
        """Close every connection."""
        await self._fetcher.close()

    def _told(self, config: Gateway, answer: Answer) -> dict[str, Any]:
        """What became of it, in the words of the gateway."""
        if not answer.is_ok:
            fault = self._refusal(answer)
            if fault.code != UNKNOWN:
                raise fault
            return {"delivered": False, "status": UNKNOWN}
        try:
            if config.operation == "progress":
                status = msgspec.json.decode(answer.body, type=CallbackAnswer).status
                return {"delivered": status == "sent", "status": status}
            heard = msgspec.json.decode(answer.body, type=CallbackHeard)
        except msgspec.DecodeError:
            message = "no gateway answered: mend NOETL_GATEWAY_URL of the gateway"
            raise ToolError("parse", "bad_answer", message) from None
        return {
            "delivered": heard.delivered,
            "status": heard.message if heard.delivered else UNKNOWN,
        }

    def _refusal(self, answer: Answer) -> ToolError:
        """The error of an answer that is not ok, with what to do about it."""
        # The client of HTTP is imported with the first request.
        from noetl.tools.http.failures import kind_of, retry_after  # noqa: PLC0415 - see above

        status, code, said = answer.status, f"http_{answer.status}", ""
        try:
            problem = msgspec.json.decode(answer.body, type=Problem)
        except msgspec.DecodeError:
            pass  # something in between answered; its status says all
        else:
            code = problem.code if _CODE.fullmatch(problem.code) else code
            known = PROBLEMS.get(code)
            said = f": {problem.detail}" + ("" if known is None else f". {known.remedy}")
        return ToolError(
            kind_of(status),
            code,
            f"the gateway answered {status}{said}",
            status_code=status,
            retry_after_s=retry_after(answer.headers.get("retry-after"), self._clock.now()),
        )


async def _own_request(ctx: ToolContext) -> str:
    """The request that the run answers; empty without one."""
    found = await ctx.touched(lambda: render(REQUEST_ID, ctx.scope))
    if found is None or isinstance(found, str):
        return found or ""
    raise ToolError("config", "invalid_config", "/request_id: `workload.request_id` is no text")


def _word(config: Gateway, request_id: str, ctx: ToolContext) -> Callback | Progress:
    """What the gateway is told."""
    left_out = [name for name in _WITHOUT[config.operation] if getattr(config, name) is not None]
    if config.operation == "progress":
        word: Callback | Progress = Progress(
            request_id=request_id,
            step=ctx.step,
            message=config.message,
            progress=config.progress,  # type: ignore[arg-type]  # templates are rendered
        )
    else:
        status = config.status or "COMPLETED"
        end = end_of(status)
        if end is None:
            message = "/status: is none of COMPLETED, FAILED, CANCELLED and TIMEOUT"
            raise ToolError("config", "invalid_config", message)
        error = None
        if config.message is not None and end == "completed":
            left_out.append("message")
        elif config.message is not None:
            error = {"message": config.message}
        word = Callback(
            request_id=request_id, step=ctx.step, status=status, data=config.data, error=error
        )
    if left_out:
        keys = ", ".join(f"`{name}`" for name in left_out)
        ctx.log(
            f"left out, since this {config.operation} has no place for it: {keys}", level="warning"
        )
    return word
