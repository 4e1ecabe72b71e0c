"""Tells the server how jobs ended: their logs first, then the callback, until it is answered."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.telemetry.redact import Redactor
from noetl.tools.container.ticket import MOST_LOG_BYTES, callback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.callbacks import ContainerCallback, ContainerTaken
    from noetl.api.client import Client
    from noetl.tools.container.ticket import End, Secrets, Ticket

    T = TypeVar("T")
    Send = Callable[[Ticket, ContainerCallback], Awaitable[ContainerTaken]]

STEP_S: Final = 2.0
MOST_S: Final = 60.0
_SERVER_SIDE: Final = 500
_WORTH_IT: Final = frozenset({408, 425, 429})
_TEXT: Final = "text/plain; charset=utf-8"
_WITHHELD: Final = "log and output are withheld: nobody knows the secrets in them"

_log = logging.getLogger("noetl.worker")


def as_watcher(client: Client) -> Send:
    """The callback of our own processes, which the internal token opens."""
    return lambda ticket, body: client.container_ended(ticket.execution_id, ticket.step, body)


def as_worker(client: Client) -> Send:
    """The same callback for a worker, whose token opens it for commands of its pool alone."""
    return lambda ticket, body: client.container_of_command(ticket.command_id, body)


class Messenger:
    """Brings ends of jobs to the server; one that it refuses for good is logged once."""

    def __init__(
        self,
        client: Client,
        send: Send,
        *,
        redactor: Redactor | None = None,
        step_s: float = STEP_S,
    ) -> None:
        self._client = client
        self._send = send
        self._redactor = redactor or Redactor()
        self._step_s = step_s

    async def tell(
        self, ticket: Ticket, end: End, log: bytes, secrets: Secrets = ()
    ) -> ContainerTaken | None:
        """Tell an end for as long as it takes; none when the server will not hear it."""
        if secrets is None and (log or end.output is not None):
            reason = _WITHHELD if end.reason is None else f"{end.reason}; {_WITHHELD}"
            end, log = msgspec.structs.replace(end, reason=reason, output=None), b""
        redactor, held = self._redactor, secrets or ()
        redactor.add(*held)
        try:
            uri = await self._kept(ticket, log) if log else None
            reason, output = redactor.redact_value(end.reason), redactor.redact_value(end.output)
        finally:
            redactor.release(*held)
        body = callback(ticket, msgspec.structs.replace(end, reason=reason, output=output), uri)
        return await self._patiently(lambda: self._send(ticket, body), ticket)

    async def _kept(self, ticket: Ticket, log: bytes) -> str | None:
        """Where the log lies; the end matters more than a log that cannot be kept."""
        clean = self._redactor.redact(log[:MOST_LOG_BYTES].decode("utf-8", "replace")).encode()
        kept = await self._patiently(
            lambda: self._client.put_result(ticket.execution_id, ticket.step, clean, _TEXT), ticket
        )
        return None if kept is None else str(kept["ref"])

    async def _patiently(self, call: Callable[[], Awaitable[T]], ticket: Ticket) -> T | None:
        delay_s = self._step_s
        while True:
            try:
                return await call()
            except (Refused, NoAnswer, OSError) as fault:
                if not _is_passing(fault):
                    about = {"job": ticket.name, "execution_id": ticket.execution_id}
                    _log.error("an end of a job is refused", extra={**about, "reason": str(fault)})
                    return None
            await asyncio.sleep(delay_s)
            delay_s = min(MOST_S, delay_s + self._step_s)


def _is_passing(fault: Exception) -> bool:
    if not isinstance(fault, Refused):
        return True
    status = fault.problem.status
    return status >= _SERVER_SIDE or status in _WORTH_IT
