"""Queries of one task: sent, waited for and read by their ids, so that another try finds them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from snowflake.connector import errors as sf
from snowflake.connector.constants import QueryStatus

from noetl.tools.base import ToolError
from noetl.tools.snowflake.failures import refused
from noetl.tools.snowflake.values import columns_of, row_maker
from noetl.tools.statements import SNOWFLAKE, first_word
from noetl.tools.tabular.rows import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.tools.tabular.rows import Budget

    T = TypeVar("T")

BATCH_ROWS: Final = 2_000
FIRST_WAIT_S: Final = 0.02
LONGEST_WAIT_S: Final = 1.0
GRACE_S: Final = 5.0
"""How long a task that is stopped waits for the connector."""
_OVER: Final = frozenset({
    QueryStatus.SUCCESS, QueryStatus.FAILED_WITH_ERROR, QueryStatus.FAILED_WITH_INCIDENT,
    QueryStatus.ABORTED, QueryStatus.DISCONNECTED,
})  # fmt: skip
_LOST: Final = (_OVER - {QueryStatus.SUCCESS}) | {QueryStatus.ABORTING, QueryStatus.NO_DATA}
_COUNTS: Final = "number of rows "
_READING: Final = frozenset({"SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "CALL", "EXECUTE"})


class Queries:
    """One session, whose connector works in threads."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - of the connector
        self._connection = connection

    async def sent(self, text: str, values: list[Any] | None) -> str:
        """Send a statement; its id, as soon as the server has it."""
        sending = asyncio.ensure_future(asyncio.to_thread(self._send, text, values))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait([sending], timeout=GRACE_S)
            if sending.done() and sending.exception() is None:
                await self.abort(sending.result())
            raise
        except sf.Error as fault:
            raise refused(fault) from None

    def _send(self, text: str, values: list[Any] | None) -> str:
        return str(self._connection.cursor().execute_async(text, values)["queryId"])

    async def is_there(self, query_id: str) -> bool:
        """Whether a query of an earlier try still runs, or has ended well."""
        with suppress(ToolError):  # unknown ids are refused in more than one way
            return await self._status(query_id) not in _LOST
        return False

    async def ended(self, query_id: str) -> None:
        """Wait until a query is over; a task that is stopped stops it."""
        wait_s = FIRST_WAIT_S
        try:
            while await self._status(query_id) not in _OVER:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 1.5, LONGEST_WAIT_S)
        except asyncio.CancelledError:
            await self.abort(query_id)
            raise

    async def abort(self, query_id: str) -> None:
        """Have the server stop a query."""
        stopping = asyncio.ensure_future(
            asyncio.to_thread(lambda: self._connection.cursor().abort_query(query_id))
        )
        done, _ = await asyncio.wait([stopping], timeout=GRACE_S)
        if done:
            stopping.exception()  # it may have ended meanwhile

    async def read(self, statement: str, query_id: str, budget: Budget) -> dict[str, Any]:
        """The result of a query that is over, batch by batch."""
        cursor = await self._threaded(lambda: self._result(query_id))
        described = list(cursor.description or ())
        part = Part(budget)
        found = await self._threaded(lambda: cursor.fetchmany(BATCH_ROWS))
        if _is_count(statement, described):
            rows = [dict(zip((item.name for item in described), row, strict=True)) for row in found]
            part.affected = _changed(rows)
            return await part.end()
        part = Part(budget, columns_of(described))
        make = row_maker(described, part.names if budget.as_objects else None)
        try:
            while found:
                await part.add([make(row) for row in found])
                if len(found) < BATCH_ROWS:
                    break
                found = await self._threaded(lambda: cursor.fetchmany(BATCH_ROWS))
            return await part.end()
        finally:
            await part.close()

    async def close(self) -> None:
        """End the session."""
        closing = asyncio.ensure_future(asyncio.to_thread(self._connection.close))
        done, _ = await asyncio.wait([closing], timeout=GRACE_S)
        if done:
            closing.exception()  # the work is done, and a session ends by itself

    def _result(self, query_id: str) -> Any:  # noqa: ANN401 - a cursor of the connector
        return self._connection.cursor().query_result(query_id)

    async def _status(self, query_id: str) -> QueryStatus:
        return await self._threaded(lambda: self._connection.get_query_status(query_id))

    async def _threaded(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except sf.Error as fault:
            raise refused(fault) from None


def _is_count(statement: str, described: list[Any]) -> bool:
    """Whether the rows only tell what a statement did."""
    names = [str(item.name).lower() for item in described]
    if first_word(statement, SNOWFLAKE) in _READING:
        return False
    return names == ["status"] or (
        bool(names) and all(one.startswith("number of ") for one in names)
    )


def _changed(rows: list[dict[str, Any]]) -> int:
    """How many rows a statement inserted, updated and deleted."""
    return sum(
        int(value or 0)
        for row in rows
        for name, value in row.items()
        if name.lower().startswith(_COUNTS)
    )
