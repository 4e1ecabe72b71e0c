"""SQLite files as a source and a target."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from noetl.tools.base import ToolError
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
from noetl.tools.transfer.shape import Observed, batch_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from noetl.tools.transfer.plan import Pair, Plan
    from noetl.tools.transfer.work import Work

BUSY_S: Final = 5.0
STAGE: Final = quoted("temp", "noetl_stage")
_PLAIN: Final = (str, int, float, bytes)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that two threads may use, one after the other; it reaches no other file."""
    made = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    made.set_authorizer(_refuse_other_files)
    return made


def _refuse_other_files(action: int, first: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_ATTACH and first not in {":memory:", ""}:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


@contextmanager
def failing() -> Iterator[None]:
    """Say what went wrong in the words of tools."""
    try:
        yield
    except sqlite3.Error as fault:
        code = str(getattr(fault, "sqlite_errorname", "SQLITE_ERROR"))
        if code in {"SQLITE_CONSTRAINT_DATATYPE", "SQLITE_MISMATCH"}:
            raise type_error(str(fault)) from None
        if "ON CONFLICT clause does not match" in str(fault):
            message = "/key: the table has no unique index on these columns"
            raise ToolError("config", "invalid_config", message) from None
        kind = "db_error"
        if code.startswith("SQLITE_CONSTRAINT"):
            kind = "db_constraint"
        elif code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            kind = "db_timeout"
        elif code.startswith("SQLITE_FULL"):
            kind = "storage_quota"
        raise ToolError(kind, code, str(fault)) from None


class SqliteSource:
    """The rows of a query; a first pass finds the types, since a column may hold any."""

    def __init__(self, connection: sqlite3.Connection, query: str, params: Any, plan: Plan) -> None:  # noqa: ANN401 - a list or a map
        self._connection = connection
        self._query = query
        self._params = params or ()
        self._plan = plan
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        """The columns, with a type that all their values have."""
        if self._schema is None:
            with failing():
                self._connection.execute("begin")  # both passes see the same rows
                seen = Observed()
                names: list[str] = []
                for names, columns in self._columns():
                    for name, values in zip(names, columns, strict=True):
                        seen.column(name, values)
                found = seen.schema() if names else pa.schema([])
            self._schema = found if len(found) else self._empty()
            pairs_of(self._schema.names, self._plan)
        return self._schema

    def _empty(self) -> pa.Schema:
        cursor = self._connection.execute(self._query, self._params)
        return pa.schema([(item[0], pa.string()) for item in cursor.description or ()])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, read again."""
        schema = self.schema()
        with failing():
            for _, columns in self._columns():
                yield batch_of(columns, schema, is_lenient=self._plan.is_lenient)

    def _columns(self) -> Iterator[tuple[list[str], list[Any]]]:
        cursor = self._connection.execute(self._query, self._params)
        names = [item[0] for item in cursor.description or ()]
        while rows := cursor.fetchmany(self._plan.chunk_size):
            yield names, list(zip(*rows, strict=True))

    def stop(self) -> None:
        """Interrupt the query."""
        self._connection.interrupt()


class SqliteTarget:
    """A table, filled in one transaction from a temporary one."""

    def __init__(self, connection: sqlite3.Connection, table: str, work: Work) -> None:
        self._connection = connection
        self._plan = work.plan
        self._lanes = work.lanes
        self._name = parts_of(table)
        self._table = quoted(*self._name)
        self._ledger = quoted(*self._name[:-1], LEDGER)
        self._pairs: tuple[Pair, ...] = ()
        self._columns: tuple[str, ...] = ()
        self._converts: list[Callable[[Any], Any]] = []
        self._makes = ""

    async def earlier(self) -> dict[str, Any] | None:
        """What the ledger holds under our mark."""
        return await self._lanes.run(self._earlier)

    async def commit(self, said: dict[str, Any]) -> dict[str, Any]:
        """One transaction from the temporary table."""
        return await self._lanes.run(self._commit, said)

    def stop(self) -> None:
        """Interrupt the statement."""
        self._connection.interrupt()

    def _known(self, parts: tuple[str, ...]) -> dict[str, str]:
        ask = "select name, type from pragma_table_info(?, ?)"
        given = (parts[-1], parts[0] if len(parts) > 1 else "main")
        return dict(self._connection.execute(ask, given).fetchall())

    def _earlier(self) -> dict[str, Any] | None:
        with failing():
            if not self._known((*self._name[:-1], LEDGER)):
                return None
            ask = filled("select outcome from {ledger} where key = ?", ledger=self._ledger)
            row = self._connection.execute(ask, (self._plan.mark,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def begin(self, schema: pa.Schema) -> None:
        """Make the temporary table."""
        self._pairs = pairs_of(schema.names, self._plan)
        wanted = [pair.column for pair in self._pairs]
        with failing():
            known = self._known(self._name)
            if not known and not self._plan.is_made:
                raise no_table(self._table)
            if not known:
                types = {p.column: _type(schema.field(p.field).type) for p in self._pairs}
                self._makes = self._making(types)
                known = types
            spelled = named(wanted, known, self._table)
            self._columns = tuple(spelled[name] for name in wanted)
            self._converts = [
                _converter(name, known[name], is_lenient=self._plan.is_lenient)
                for name in self._columns
            ]
            make = "create temporary table noetl_stage ({columns})"
            self._connection.execute(filled(make, columns=listed(self._columns)))

    def _making(self, types: dict[str, str]) -> str:
        columns = [f"{quoted(name)} {kind}" for name, kind in types.items()]
        if self._plan.key:
            columns.append(f"primary key ({listed(self._plan.key)})")
        text = "create table if not exists {table} ({columns})"
        return filled(text, table=self._table, columns=", ".join(columns))

    def write(self, batch: pa.RecordBatch) -> None:
        """Put rows into the temporary table."""
        columns = [
            [convert(value) for value in batch.column(pair.field).to_pylist()]
            for pair, convert in zip(self._pairs, self._converts, strict=True)
        ]
        places = ", ".join("?" * len(columns))
        text = filled("insert into {stage} values ({places})", stage=STAGE, places=places)
        with failing():
            self._connection.execute("begin")
            self._connection.executemany(text, zip(*columns, strict=True))
            self._connection.execute("commit")

    def _commit(self, said: dict[str, Any]) -> dict[str, Any]:
        with failing():
            self._connection.execute("begin immediate")
            try:
                is_first = self._claim(said)
                if is_first:
                    self._show()
                self._connection.execute("commit")
            except BaseException:
                self._connection.execute("rollback")
                raise
        return said if is_first else self._earlier() or said

    def _claim(self, said: dict[str, Any]) -> bool:
        make = (
            "create table if not exists {ledger} (key text primary key, outcome text not null,"
            " done_at text not null default current_timestamp)"
        )
        self._connection.execute(filled(make, ledger=self._ledger))
        claim = "insert into {ledger} (key, outcome) values (?, ?) on conflict (key) do nothing"
        given = (self._plan.mark, json.dumps(said))
        return self._connection.execute(filled(claim, ledger=self._ledger), given).rowcount == 1

    def _show(self) -> None:
        if self._makes:
            self._connection.execute(self._makes)
        if self._plan.mode == "replace":
            self._connection.execute(filled("delete from {table}", table=self._table))
        text = "insert into {table} ({columns}) select {columns} from {stage}"
        parts = {"table": self._table, "columns": listed(self._columns), "stage": STAGE}
        if self._plan.mode == "upsert":
            wanted = {name.lower() for name in self._plan.key}
            key = [name for name in self._columns if name.lower() in wanted]
            rest = [name for name in self._columns if name not in key]
            changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
            text += (
                " where rowid in (select max(rowid) from {stage} group by {key})"
                " on conflict ({key}) do {change}"
            )
            change = f"update set {changes}" if rest else "nothing"
            parts |= {"key": listed(key), "change": change}
        self._connection.execute(filled(text, **parts))


def _type(kind: Any) -> str:  # noqa: ANN401 - an Arrow type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "real"
    return "blob" if pa.types.is_binary(kind) else "text"


def _converter(name: str, declared: str, *, is_lenient: bool) -> Callable[[Any], Any]:
    """Makes values of a column; SQLite itself would keep a text among numbers."""
    word = declared.upper()
    number: Callable[[Any], Any] | None = None
    if "INT" in word:
        number = int
    elif any(part in word for part in ("REAL", "FLOA", "DOUB")):
        number = float

    def convert(value: Any) -> Any:  # noqa: ANN401 - any value
        made = _plain(value)
        if number is None or not isinstance(made, str):
            return made
        try:
            return number(made)
        except ValueError:
            if is_lenient:
                return None
            message = f"column {name}: a value is no {word.lower()}"
            raise type_error(message, column=name) from None

    return convert


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value
    if value is None or value.__class__ in _PLAIN:
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return text_of(value)
