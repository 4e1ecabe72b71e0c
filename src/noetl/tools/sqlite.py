"""Runs SQL on a SQLite file under the data roots, in a thread, as one transaction."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from noetl.dsl.tasks import Sqlite
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.roots import place_for
from noetl.tools.statements import SQLITE, statements_of
from noetl.tools.tabular.columns import Column
from noetl.tools.tabular.rows import Budget, Part, at_index, together

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext

    T = TypeVar("T")

BUSY_S: Final = 5.0
BATCH_ROWS: Final = 2_000


class SqliteTool:
    """The kind `sqlite`."""

    kind: ClassVar[str] = "sqlite"
    Config: ClassVar[type[Task]] = Sqlite
    traits: ClassVar[Traits] = Traits()

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots

    async def run(self, config: Sqlite, ctx: ToolContext) -> Outcome:
        """Run the statements; the data belongs to the last one that returned rows."""
        statements, params = await statements_of(config, ctx, SQLITE)
        budget = Budget(config, ctx, self.kind)
        connection = sqlite3.connect(
            place_for(config.path, self._roots),
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        parts: list[dict[str, Any]] = []
        with closing(connection):  # which rolls back what was not committed
            connection.set_authorizer(_refuse_other_files)
            session = _Session(connection, budget)
            await session.run("begin")
            try:
                for statement in statements:
                    part = await session.rows(statement, params or ())
                    parts.append(part)
            except ToolError as fault:
                raise at_index(fault, len(parts)) from None
            await session.run("commit")
        data = together(parts, budget)
        return Outcome(data=data, ref=data.get("ref"))

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task interrupts its statement."""


class _Session:
    """One task on its connection, which works in a thread."""

    def __init__(self, connection: sqlite3.Connection, budget: Budget) -> None:
        self._connection = connection
        self._budget = budget

    async def run(self, statement: str) -> None:
        """Run a statement of ours."""
        await self._threaded(lambda: self._connection.execute(statement))

    async def rows(self, statement: str, params: Any) -> dict[str, Any]:  # noqa: ANN401 - a list or a map
        """Run a statement, and read its rows batch by batch."""
        before = self._connection.total_changes
        cursor, found = await self._threaded(lambda: self._begun(statement, params))
        part = Part(self._budget, [Column(column[0]) for column in cursor.description or ()])
        names = part.names if self._budget.as_objects else None
        try:
            while found:
                await part.add([_row(row, names) for row in found])
                if len(found) < BATCH_ROWS:
                    break
                found = await self._threaded(lambda: cursor.fetchmany(BATCH_ROWS))
            part.affected = self._connection.total_changes - before
            return await part.end()
        finally:
            await part.close()

    def _begun(self, statement: str, params: Any) -> tuple[sqlite3.Cursor, list[Any]]:  # noqa: ANN401 - a list or a map
        cursor = self._connection.execute(statement, params)
        return cursor, cursor.fetchmany(BATCH_ROWS) if cursor.description else []

    async def _threaded(self, work: Callable[[], T]) -> T:
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _stop(self._connection, running)
            raise
        except (sqlite3.Error, sqlite3.Warning) as fault:
            raise _failure(fault) from fault


async def _stop(connection: sqlite3.Connection, running: asyncio.Future[Any]) -> None:
    """Interrupt until the thread is out: an interrupt between two statements is lost."""
    while not running.done():
        connection.interrupt()
        await asyncio.wait([running], timeout=0.05)
    running.exception()


def _refuse_other_files(action: int, first: str | None, *_: str | None) -> int:
    """No statement reaches another file than the one that was allowed."""
    if action == sqlite3.SQLITE_ATTACH and first not in {":memory:", ""}:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _row(values: tuple[Any, ...], names: list[str] | None) -> Any:  # noqa: ANN401 - a map or a list
    plain = [_plain(value) for value in values]
    return plain if names is None else dict(zip(names, plain, strict=True))


def _plain(value: object) -> object:
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _failure(fault: Exception) -> ToolError:
    code = getattr(fault, "sqlite_errorname", "SQLITE_ERROR")
    kind = "db_error"
    if code.startswith("SQLITE_CONSTRAINT"):
        kind = "db_constraint"
    elif code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        kind = "db_timeout"
    elif code.startswith("SQLITE_FULL"):
        kind = "storage_quota"
    elif code.startswith(("SQLITE_AUTH", "SQLITE_READONLY", "SQLITE_PERM")):
        kind = "storage_access"
    elif code.startswith("SQLITE_INTERRUPT"):
        kind = "cancelled"
    said = f"{fault}; mend the statement" if code == "SQLITE_ERROR" else str(fault)
    return ToolError(kind, code, said)
