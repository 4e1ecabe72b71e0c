"""Runs that somebody follows: from a place on, without a gap, until they end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from noetl.api.problems import Refused
from noetl.edge.errors import Unacceptable
from noetl.errors import NoetlError
from noetl.gateway.errors import SERVER_FAULT
from noetl.ids import parse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.gateway.graphql.asked import Asked

_FIRST_S: Final = 0.2
_LONGEST_S: Final = 5.0
_log: Final = logging.getLogger(__name__)


async def events(asked: Asked, execution_id: str, after_seq: int) -> AsyncIterator[dict[str, Any]]:
    """The rows of a run's log behind a place, as long as there are new ones.

    The server says first whether the run may be seen. A stream that breaks is begun again behind
    the last row that was told.
    """
    if after_seq < 0:
        raise Unacceptable("`afterSeq` is below 0")
    run = parse(execution_id)
    await asked.server(run).status(run)
    last, pause_s = after_seq, _FIRST_S
    since = await _event_at(asked, run, after_seq)
    while True:
        try:
            async for told in asked.server(run).stream(run, since_event_id=since, fields="full"):
                if told["event"] == "end":
                    return
                since, pause_s = told["id"] or since, _FIRST_S
                if told["data"]["seq"] > last:
                    last = told["data"]["seq"]
                    yield told["data"]
        except NoetlError as fault:
            if isinstance(fault, Refused) and fault.problem.status < SERVER_FAULT:
                raise
            _log.info("a followed run is not told of now", extra={"code": fault.code})
        await asyncio.sleep(pause_s)
        pause_s = min(_LONGEST_S, pause_s * 2)


async def _event_at(asked: Asked, run: str, seq: int) -> str | None:
    """The event at a place of the log: none before the first one."""
    if seq == 0:
        return None
    page = await asked.server(run).events(run, after=seq - 1, limit=1)
    return str(page.items[0]["event_id"]) if page.items else None
