"""Snowflake as a source and a target, through the cursors of its connector."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from noetl.tools.base import ToolError
from noetl.tools.snowflake.failures import translated
from noetl.tools.transfer.plan import (
    LEDGER,
    filled,
    listed,
    named,
    no_table,
    pairs_of,
    parts_of,
    quoted,
    type_error,
)
from noetl.tools.transfer.shape import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.tools.transfer.plan import Pair, Plan
    from noetl.tools.transfer.work import Work

STAGE: Final = quoted("NOETL_STAGE")
NUMBER: Final = quoted("NOETL_NUMBER")
MARK: Final = quoted("NOETL_MARK")
_BAD_VALUES: Final = frozenset({100035, 100037, 100038, 100039, 100040, 100046, 100071, 100078})
"""Numbers of errors that say a value is not one of its type."""
_NO_TABLE: Final = 2003


@contextmanager
def failing() -> Iterator[None]:
    """A value that does not fit its column has a name of its own."""
    try:
        with translated():
            yield
    except ToolError as fault:
        if (fault.details or {}).get("errno") in _BAD_VALUES:
            raise type_error(fault.message, **(fault.details or {})) from None
        raise


def folded(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Names as Snowflake folds them: what needs no quotes is in capitals."""
    return tuple(
        part.upper() if part.isidentifier() and part == part.lower() else part for part in parts
    )


class SnowSource:
    """The rows of a query."""

    def __init__(self, connection: Any, query: str, params: Any, plan: Plan) -> None:  # noqa: ANN401 - of the connector
        self._cursor = connection.cursor()
        self._query = query
        self._params = params
        self._plan = plan
        self._batches: Iterator[pa.Table] | None = None
        self._first: pa.Table | None = None
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        """The columns of the first batch; a query without rows has texts."""
        if self._schema is None:
            with failing():
                self._cursor.execute(self._query, self._params or None)
                self._batches = iter(self._cursor.fetch_arrow_batches())
                self._first = next(self._batches, None)
            if self._first is not None:
                self._schema = self._first.schema.remove_metadata()
            else:
                found = self._cursor.description or ()
                self._schema = pa.schema([(item[0], pa.string()) for item in found])
            pairs_of(self._schema.names, self._plan)
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; a batch of the server is cut into chunks."""
        schema = self.schema()
        table = self._first
        while table is not None:
            same = table.replace_schema_metadata(None).cast(schema)
            yield from same.to_batches(max_chunksize=self._plan.chunk_size)
            with failing():
                table = next(self._batches or iter(()), None)

    def stop(self) -> None:
        """Cancel the query."""
        _cancel(self._cursor)


class SnowTarget:
    """A table, filled in one transaction from a temporary one."""

    def __init__(self, connection: Any, table: str, work: Work) -> None:  # noqa: ANN401 - of the connector
        self._cursor = connection.cursor()
        self._plan = work.plan
        self._lanes = work.lanes
        parts = folded(parts_of(table))
        self._shown = table
        self._table = quoted(*parts)
        self._ledger = quoted(*parts[:-1], LEDGER.upper())
        self._pairs: tuple[Pair, ...] = ()
        self._types: dict[str, str] = {}
        self._is_new = False
        self._rows = 0

    async def earlier(self) -> dict[str, Any] | None:
        """What the ledger holds under our mark."""
        return await self._lanes.run(self._earlier)

    async def commit(self, said: dict[str, Any]) -> dict[str, Any]:
        """One transaction from the temporary table."""
        return await self._lanes.run(self._commit, said)

    def stop(self) -> None:
        """Cancel the statement."""
        _cancel(self._cursor)

    def _run(self, text: str, params: Any = None) -> list[Any]:  # noqa: ANN401 - a list
        self._cursor.execute(text, params)
        found = self._cursor.fetchall()
        return list(found or ())

    def _known(self, table: str) -> dict[str, str]:
        try:
            with failing():
                rows = self._run(filled("describe table {table}", table=table))
        except ToolError as fault:
            if (fault.details or {}).get("errno") == _NO_TABLE:
                return {}
            raise
        return {row[0]: row[1] for row in rows}

    def _earlier(self) -> dict[str, Any] | None:
        if not self._known(self._ledger):
            return None
        ask = filled("select outcome from {ledger} where key = ?", ledger=self._ledger)
        with failing():
            rows = self._run(ask, (self._plan.mark,))
        return dict(json.loads(rows[0][0])) if rows else None

    def begin(self, schema: pa.Schema) -> None:
        """Make the tables that are needed: here each of these ends a transaction."""
        self._pairs = pairs_of(schema.names, self._plan)
        wanted = [pair.column for pair in self._pairs]
        known = self._known(self._table)
        self._is_new = not known
        if self._is_new and not self._plan.is_made:
            raise no_table(self._shown)
        if self._is_new:
            known = {
                folded((pair.column,))[0]: _type(schema.field(pair.field).type)
                for pair in self._pairs
            }
        spelled = named(wanted, known, self._shown)
        self._types = {spelled[name]: known[spelled[name]] for name in wanted}
        columns = ", ".join(
            f"{quoted(name)} {'varchar' if self._plan.is_lenient else kind}"
            for name, kind in self._types.items()
        )
        make = "create or replace temporary table {stage} ({columns}, {number} integer)"
        with failing():
            self._run(filled(make, stage=STAGE, columns=columns, number=NUMBER))

    def write(self, batch: pa.RecordBatch) -> None:
        """Bind rows by position, as many as came."""
        columns = [plain(batch.column(pair.field)).to_pylist() for pair in self._pairs]
        numbers = range(self._rows, self._rows + batch.num_rows)
        self._rows += batch.num_rows
        places = ", ".join("?" * (len(columns) + 1))
        text = filled("insert into {stage} values ({places})", stage=STAGE, places=places)
        with failing():
            self._cursor.executemany(text, list(zip(*columns, numbers, strict=True)))

    def _commit(self, said: dict[str, Any]) -> dict[str, Any]:
        make = (
            "create table if not exists {ledger}"
            " (key varchar, outcome varchar, done_at timestamp_tz)"
        )
        with failing():
            self._run(filled(make, ledger=self._ledger))
            mark = "create or replace temporary table {mark} (key varchar, outcome varchar)"
            self._run(filled(mark, mark=MARK))
            put = filled("insert into {mark} values (?, ?)", mark=MARK)
            self._run(put, (self._plan.mark, json.dumps(said)))
            if self._is_new:
                self._run(self._making())
            self._run("begin transaction")
            try:
                is_first = self._claim()
                for text in self._texts() if is_first else ():
                    self._run(text)
                self._run("commit")
            except BaseException:
                with suppress(Exception):  # the first failure is the one to tell
                    self._run("rollback")
                raise
        return said if is_first else self._earlier() or said

    def _claim(self) -> bool:
        """Write the ledger first: whoever does so second waits for the table, and finds the row."""
        text = (
            "merge into {ledger} as done using {mark} as asked on done.key = asked.key"
            " when not matched then insert (key, outcome, done_at)"
            " values (asked.key, asked.outcome, current_timestamp())"
        )
        [[count, *_], *_] = self._run(filled(text, ledger=self._ledger, mark=MARK))
        return int(count) == 1

    def _making(self) -> str:
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in self._types.items())
        text = "create table if not exists {table} ({columns})"
        return filled(text, table=self._table, columns=columns)

    def _texts(self) -> list[str]:
        names = list(self._types)
        parts = {
            "table": self._table, "stage": STAGE, "number": NUMBER, "columns": listed(names),
            "values": ", ".join(self._value(name) for name in names),
        }  # fmt: skip
        if self._plan.mode == "upsert":
            return [self._merge(names, parts)]
        insert = filled("insert into {table} ({columns}) select {values} from {stage}", **parts)
        wipe = filled("delete from {table}", **parts)
        return [wipe, insert] if self._plan.mode == "replace" else [insert]

    def _value(self, name: str) -> str:
        if not self._plan.is_lenient:
            return quoted(name)
        return f"try_cast({quoted(name)} as {self._types[name]}) as {quoted(name)}"

    def _merge(self, names: list[str], parts: dict[str, str]) -> str:
        wanted = {name.lower() for name in self._plan.key}
        key = [name for name in names if name.lower() in wanted]
        rest = [name for name in names if name not in key]
        both = " and ".join(f"old.{quoted(name)} = new.{quoted(name)}" for name in key)
        changes = ", ".join(f"old.{quoted(name)} = new.{quoted(name)}" for name in rest)
        text = (
            "merge into {table} as old using (select {values} from {stage} qualify"
            " row_number() over (partition by {key} order by {number} desc) = 1) as new"
            " on {both}{matched} when not matched then"
            " insert ({columns}) values ({new})"
        )
        matched = f" when matched then update set {changes}" if rest else ""
        return filled(
            text, **parts, key=listed(key), both=both, matched=matched, new=listed(names, "new.")
        )


def _type(kind: Any) -> str:  # noqa: ANN401 - an Arrow type
    if pa.types.is_decimal(kind):
        return f"number({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp_tz"
    known = (
        (pa.types.is_boolean, "boolean"), (pa.types.is_integer, "number(38, 0)"),
        (pa.types.is_floating, "float"), (pa.types.is_date, "date"), (pa.types.is_time, "time"),
    )  # fmt: skip
    return next((name for is_it, name in known if is_it(kind)), "varchar")


def _cancel(cursor: Any) -> None:  # noqa: ANN401 - of the connector
    with suppress(Exception):  # it may have ended meanwhile
        cursor.connection.cursor().execute("select system$cancel_query(?)", (cursor.sfqid,))
