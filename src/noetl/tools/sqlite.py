"""Runs SQL on a SQLite file under the data roots, in a thread, as one transaction."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.dsl.tasks import Sqlite
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.python import source_of
from noetl.tools.roots import place_for
from noetl.tools.statements import split

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext

BUSY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    path: Path
    statements: list[str]
    params: Any
    max_rows: int
    max_bytes: int
    as_objects: bool


class SqliteTool:
    """The kind `sqlite`."""

    kind: ClassVar[str] = "sqlite"
    Config: ClassVar[type[Task]] = Sqlite
    traits: ClassVar[Traits] = Traits()

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots

    async def run(self, config: Sqlite, ctx: ToolContext) -> Outcome:
        """Run the statements; the data belongs to the last one that returned rows."""
        statements = await _statements(config, ctx)
        if config.params and len(statements) != 1:
            raise ToolError("config", "invalid_config", "/params: they need a single statement")
        work = _Work(
            path=place_for(config.path, self._roots),
            statements=statements,
            params=config.params,
            max_rows=int(config.max_rows),
            max_bytes=int(config.max_bytes),
            as_objects=config.as_objects,
        )
        connection = sqlite3.connect(
            work.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        with closing(connection):
            connection.set_authorizer(_refuse_other_files)
            running = asyncio.ensure_future(asyncio.to_thread(_run, connection, work))
            try:
                return Outcome(data=await asyncio.shield(running))
            except asyncio.CancelledError:
                await _stop(connection, running)
                raise

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task interrupts its statement."""


async def _stop(connection: sqlite3.Connection, running: asyncio.Future[Any]) -> None:
    """Interrupt until the thread is out: an interrupt between two statements is lost."""
    while not running.done():
        connection.interrupt()
        await asyncio.wait([running], timeout=0.05)
    running.exception()


async def _statements(config: Sqlite, ctx: ToolContext) -> list[str]:
    texts: list[str] = []
    if config.command is not None:
        texts += [config.command] if isinstance(config.command, str) else list(config.command)
    texts += config.commands
    if config.script is not None:
        texts.append(await source_of(None, None, config.script, ctx))
    return [statement for text in texts for statement in split(text)]


def _refuse_other_files(action: int, first: str | None, *_: str | None) -> int:
    """No statement reaches another file than the one that was allowed."""
    if action == sqlite3.SQLITE_ATTACH and first not in {":memory:", ""}:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _run(connection: sqlite3.Connection, work: _Work) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    connection.execute("begin")
    try:
        for index, statement in enumerate(work.statements):
            parts.append(_one(connection, statement, work, index))
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    last = next((part for part in reversed(parts) if part["columns"]), parts[-1] if parts else None)
    top = last or {"columns": [], "rows": [], "row_count": 0, "affected_rows": 0}
    return {**top, **{f"command_{index}": part for index, part in enumerate(parts)}}


def _one(connection: sqlite3.Connection, statement: str, work: _Work, index: int) -> dict[str, Any]:
    before = connection.total_changes
    try:
        cursor = connection.execute(statement, work.params or ())
        columns = [column[0] for column in cursor.description or ()]
        found = cursor.fetchmany(work.max_rows + 1) if columns else []
    except (sqlite3.Error, sqlite3.Warning) as fault:
        raise _failure(fault, index) from fault
    if len(found) > work.max_rows:
        message = f"the statement returned over {work.max_rows} rows"
        raise ToolError("limit", "row_limit", message, details={"index": index})
    values = [[_plain(value) for value in row] for row in found]
    rows = [dict(zip(columns, row, strict=True)) for row in values] if work.as_objects else values
    if rows and len(msgspec.json.encode(rows)) > work.max_bytes:
        message = f"the rows are larger than {work.max_bytes} bytes"
        raise ToolError("limit", "output_limit", message, details={"index": index})
    return {
        "columns": columns,
        "rows": rows,
        "row_count": len(rows),
        "affected_rows": connection.total_changes - before,
    }


def _plain(value: object) -> object:
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _failure(fault: Exception, index: int) -> ToolError:
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
    return ToolError(kind, code, str(fault), details={"index": index})
