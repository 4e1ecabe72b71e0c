"""A table of PostgreSQL, filled in one transaction from a temporary one."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from noetl.tools.base import ToolError
from noetl.tools.transfer.plan import LEDGER, named, no_table, pairs_of, parts_of
from noetl.tools.transfer.postgres.connection import cut, writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from noetl.tools.transfer.plan import Pair
    from noetl.tools.transfer.work import Work

STAGE: Final = "noetl_stage"
NUMBER: Final = "noetl_number"
LENIENT_FROM: Final = 160_000
"""The first version that can say of a text whether it is a value of a type."""
_COLUMNS: Final = """
select a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid::int
from pg_attribute a
where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped
order by a.attnum"""
_MAKE_LEDGER: Final = """
create table if not exists {ledger} (
    key text primary key,
    outcome jsonb not null,
    done_at timestamptz not null default now()
)"""
_CLAIM: Final = "insert into {ledger} (key, outcome) values (%s, %s) on conflict (key) do nothing"


class PostgresTarget:
    """A table, filled in one transaction from a temporary one."""

    def __init__(
        self, connection: psycopg.Connection[Any], table: str, schema: str | None, work: Work
    ) -> None:
        self.connection = connection
        self._plan = work.plan
        self._lanes = work.lanes
        parts = parts_of(table, schema)
        self._table = sql.Identifier(*parts)
        self._ledger = sql.Identifier(*parts[:-1], LEDGER)
        self._shown = table
        self._exit = ExitStack()
        self._copy: psycopg.Copy | None = None
        self._pairs: tuple[Pair, ...] = ()
        self._types: dict[str, str] = {}
        self._is_new = False

    async def earlier(self) -> dict[str, Any] | None:
        """What the ledger holds under our mark."""
        return await self._lanes.run(self._earlier)

    async def commit(self, said: dict[str, Any]) -> dict[str, Any]:
        """End the COPY, then one transaction."""
        return await self._lanes.run(self._commit, said)

    def stop(self) -> None:
        """Cut the connection."""
        cut(self.connection)

    def close(self) -> None:
        """Close the connection; a COPY that was not ended is undone with it."""
        self.connection.close()
        left = ConnectionError("the transfer ended before its COPY did")
        with suppress(psycopg.Error, ConnectionError):
            self._exit.__exit__(type(left), left, None)

    def known(self) -> dict[str, tuple[str, int]]:
        """The columns of the table with their types; nothing when there is no table."""
        with writing():
            name = self._table.as_string(self.connection)
            found = self.connection.execute(_COLUMNS, (name,)).fetchall()
        return {row[0]: (row[1], row[2]) for row in found}

    def _earlier(self) -> dict[str, Any] | None:
        with writing():
            name = self._ledger.as_string(self.connection)
            [there] = self.connection.execute(
                "select to_regclass(%s) is not null", (name,)
            ).fetchone() or (False,)
            if not there:
                return None
            ask = sql.SQL("select outcome from {} where key = %s").format(self._ledger)
            row = self.connection.execute(ask, (self._plan.mark,)).fetchone()
        return None if row is None else dict(row[0])

    def begin(self, schema: pa.Schema) -> None:
        """Make the temporary table for Arrow batches and open the COPY into it."""
        from noetl.tools.transfer.postgres.arrow import sql_types  # noqa: PLC0415 - an extra

        self.stage(schema.names, sql_types(schema))
        self.open("csv")

    def stage(self, fields: Sequence[str], types: Mapping[str, str]) -> None:
        """Make the temporary table: as the target is, or as the source when that is made."""
        self._pairs = pairs_of(fields, self._plan)
        known = self.known()
        self._is_new = not known
        if self._is_new and not self._plan.is_made:
            raise no_table(self._shown)
        if self._is_new:
            self._types = {pair.column: types[pair.field] for pair in self._pairs}
        else:
            spelled = named([pair.column for pair in self._pairs], known, self._shown)
            self._types = {
                spelled[pair.column]: known[spelled[pair.column]][0] for pair in self._pairs
            }
        if self._plan.is_lenient and self.connection.info.server_version < LENIENT_FROM:
            message = "/on_type_error: `null` needs PostgreSQL 16 or later"
            raise ToolError("config", "invalid_config", message)
        columns = [
            sql.SQL("{} {}").format(
                sql.Identifier(name),
                sql.SQL("text" if self._plan.is_lenient else kind),
            )
            for name, kind in self._types.items()
        ]
        if self._plan.mode == "upsert":
            number = sql.SQL("{} bigint generated always as identity")
            columns.append(number.format(sql.Identifier(NUMBER)))
        make = sql.SQL("create temporary table {} ({})")
        with writing():
            self.connection.execute(make.format(sql.Identifier(STAGE), sql.SQL(", ").join(columns)))

    def open(self, form: str) -> psycopg.Copy:
        """Open the COPY into the temporary table."""
        text = sql.SQL("copy {} ({}) from stdin (format {})").format(
            sql.Identifier(STAGE),
            _names(self._types),
            sql.SQL(form),
        )
        with writing():
            self._copy = self._exit.enter_context(self.connection.cursor().copy(text))
        return self._copy

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Which field fills which column."""
        return self._pairs

    def write(self, batch: pa.RecordBatch) -> None:
        """Send rows as CSV, which Arrow writes and the server reads."""
        if self._copy is None:
            raise RuntimeError("the target has not begun")
        from noetl.tools.transfer.postgres.arrow import csv_of  # noqa: PLC0415 - an extra

        text = csv_of(batch, self._pairs)
        with writing():
            self._copy.write(text)

    def _commit(self, said: dict[str, Any]) -> dict[str, Any]:
        with writing():
            self._exit.close()
            self._make_ledger()
        with writing(), self.connection.transaction():
            claim = sql.SQL(_CLAIM).format(ledger=self._ledger)
            given = (self._plan.mark, json.dumps(said))
            is_first = self.connection.execute(claim, given).rowcount == 1
            if is_first:
                self._show()
        return said if is_first else self._earlier() or said

    def _make_ledger(self) -> None:
        with self.connection.transaction():
            self.connection.execute(
                "select pg_advisory_xact_lock(hashtextextended(%s, 0))", (LEDGER,)
            )
            self.connection.execute(sql.SQL(_MAKE_LEDGER).format(ledger=self._ledger))

    def _show(self) -> None:
        names, plan = _names(self._types), self._plan
        if self._is_new:
            self._make()
        if plan.mode == "replace":
            self.connection.execute(sql.SQL("delete from {}").format(self._table))
        rows = sql.SQL("select {} from {}").format(self._values(), sql.Identifier(STAGE))
        ending: sql.Composable = sql.SQL("")
        if plan.mode == "upsert":
            key = _names([name for name in self._types if name in self._key()])
            latest = sql.SQL("select distinct on ({0}) * from {1} order by {0}, {2} desc").format(
                key, sql.Identifier(STAGE), sql.Identifier(NUMBER)
            )
            rows = sql.SQL("select {} from ({}) as latest").format(self._values(), latest)
            ending = self._conflict(key)
        insert = sql.SQL("insert into {} ({}) {}{}").format(self._table, names, rows, ending)
        self.connection.execute(insert)

    def _key(self) -> set[str]:
        wanted = {name.lower() for name in self._plan.key}
        return {name for name in self._types if name.lower() in wanted}

    def _conflict(self, key: sql.Composed) -> sql.Composed:
        rest = [name for name in self._types if name not in self._key()]
        if not rest:
            return sql.SQL(" on conflict ({}) do nothing").format(key)
        changes = sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in rest
        )
        return sql.SQL(" on conflict ({}) do update set {}").format(key, changes)

    def _values(self) -> sql.Composed:
        if not self._plan.is_lenient:
            return _names(self._types)
        text = sql.SQL("case when pg_input_is_valid({0}, {1}) then {0}::{2} end")
        return sql.SQL(", ").join(
            text.format(sql.Identifier(name), sql.Literal(kind), sql.SQL(kind))
            for name, kind in self._types.items()
        )

    def _make(self) -> None:
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in self._types.items()
        ]
        if self._plan.key:
            columns.append(sql.SQL("primary key ({})").format(_names(self._plan.key)))
        make = sql.SQL("create table if not exists {} ({})")
        self.connection.execute(make.format(self._table, sql.SQL(", ").join(columns)))


def _names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)
