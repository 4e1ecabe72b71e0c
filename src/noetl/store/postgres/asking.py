"""A question of a person to the database: read only, short, and bounded."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, ClassVar, Final

import asyncpg

from noetl.clock import rfc3339
from noetl.errors import NoetlError
from noetl.store.postgres.dump import connected

MOST_ROWS: Final = 10_000
TIMEOUT: Final = "10s"
_FIRST: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*(\w+)", re.DOTALL)
_READS: Final = frozenset({"select", "with", "values", "table", "show", "explain"})
_EXACT: Final = 1 << 53


class BadStatement(NoetlError):
    """A statement that the database refuses, or that is none that reads."""

    code = "bad_statement"
    status: ClassVar[int] = 422


async def ask(url: str, sql: str, schema: str = "noetl") -> tuple[list[dict[str, Any]], bool]:
    """The rows of one statement that reads, and whether there are more than are told."""
    first = _FIRST.match(sql)
    if first is None or first[1].lower() not in _READS:
        raise BadStatement(
            "only a statement that reads is taken",
            hint=f"it begins with {', '.join(sorted(_READS))}",
        )
    settings = {"application_name": "noetl query", "statement_timeout": TIMEOUT}
    async with connected(url, **settings) as connection:
        try:
            async with connection.transaction(readonly=True):
                await connection.execute(
                    "select set_config('search_path', $1, true)", f'"{schema}", public'
                )
                statement = await connection.prepare(sql)
                kinds = {item.name: item.type.name for item in statement.get_attributes()}
                cursor = await statement.cursor()
                found = await cursor.fetch(MOST_ROWS + 1)
        except asyncpg.QueryCanceledError as fault:
            raise BadStatement(f"the statement took longer than {TIMEOUT}") from fault
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as fault:
            raise BadStatement(str(fault), hint=getattr(fault, "hint", None) or "") from fault
    rows = [{name: _plain(name, row[name], kinds[name]) for name in kinds} for row in found]
    return rows[:MOST_ROWS], len(rows) > MOST_ROWS


def _plain(name: str, value: Any, kind: str) -> Any:  # noqa: ANN401 - any type of the database
    """A value as JSON has it; ids are texts, whatever they count."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return str(value) if name.endswith("_id") or abs(value) >= _EXACT else value
    if isinstance(value, list | tuple):
        return [_plain(name, item, kind.strip("[]")) for item in value]
    return _text(value, kind)


def _text(value: Any, kind: str) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, datetime):
        return rfc3339(value) if value.tzinfo else value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if kind in {"json", "jsonb"} and isinstance(value, str):
        return json.loads(value)
    return str(value)
