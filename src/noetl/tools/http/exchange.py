"""One question and its answer: redirects followed, the body read, the status judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, failed
from noetl.tools.http.answer import Wanted, lower_headers, read_body
from noetl.tools.http.failures import status_error

if TYPE_CHECKING:
    import httpcore

    from noetl.clock import Clock
    from noetl.dsl.tasks import Http
    from noetl.tools.base import ToolContext
    from noetl.tools.http.request import Request
    from noetl.tools.http.transport import Door

MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was asked for in one task, and the means to ask."""

    config: Http
    ctx: ToolContext
    door: Door
    clock: Clock

    async def ask(self, request: Request) -> Outcome:
        """Send the request; an answer that is not ok is a failed outcome with its body."""
        begun = self.clock.monotonic()
        for _ in range(MOST_REDIRECTS + 1):
            async with self.door.send(request) as response:
                headers = lower_headers(response.headers)
                location = headers.get("location")
                if not (request.follows and response.status in _REDIRECTS and location):
                    return await self._read(request, response, headers, begun)
            request = request.redirected(response.status, location)
        message = f"more than {MOST_REDIRECTS} redirects"
        raise ToolError("client_error", "too_many_redirects", message)

    async def _read(
        self, request: Request, response: httpcore.Response, headers: dict[str, str], begun: float
    ) -> Outcome:
        status = response.status
        wanted = Wanted(
            response_type=self.config.response_type,
            max_bytes=int(self.config.max_bytes),
            is_ok=self._is_ok(status),
        )
        http = {"status": status, "headers": headers}
        try:
            body = await read_body(response.aiter_stream(), headers, wanted, self.ctx)
        except ToolError as fault:  # what the server said of itself is known all the same
            return replace(failed(fault), http=http)
        data = {
            "status_code": status,
            "headers": headers,
            "body": body.value,
            "data": body.value,
            "url": str(request.url),
            "elapsed_ms": round((self.clock.monotonic() - begun) * 1000),
        }
        if wanted.is_ok:
            return Outcome(data=data, ref=body.ref, http=http)
        error = status_error(status, headers, body.value, self.clock.now())
        return Outcome(status="error", data=data, error=error.as_map(), http=http)

    def _is_ok(self, status: int) -> bool:
        return status in (self.config.ok_status or range(200, 300))
