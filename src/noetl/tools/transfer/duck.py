"""DuckDB files as a source and a target: a child runs the SQL, rows pass as Parquet files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it has no types

from noetl.tools.base import ToolError
from noetl.tools.transfer.files import ParquetFiles
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

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from noetl.tools.duckdb.children import Child
    from noetl.tools.duckdb.engine import Engine
    from noetl.tools.transfer.plan import Pair
    from noetl.tools.transfer.work import Work

_BAD_VALUES: Final = frozenset({"DUCKDB_CONVERSION", "DUCKDB_OUTOFRANGE", "DUCKDB_INVALIDTYPE"})
_MEMORY: Final = ":memory:"


async def read(
    engine: Engine,
    child: Child,
    asked: tuple[str, str, Any],
    work: Work,
) -> ParquetFiles:
    """The rows of a query, which the child writes to its folder."""
    database, query, params = asked
    file = None if database == _MEMORY else engine.file_of(database)
    job = engine.job(
        str(file or _MEMORY), [query], params=params, max_rows=0,
        spill=str(child.scratch), spill_all=True,
    )  # fmt: skip
    async with engine.writer([] if file is None else [file], work.ctx):
        data = await engine.run(child, job)
    path = data.get("file")
    if path is None:
        raise ToolError("config", "invalid_config", "/source/query: it returns no rows at all")
    return ParquetFiles(path, work.plan)


class DuckTarget:
    """A table; rows wait in a file of the child's folder for the one transaction."""

    def __init__(self, engine: Engine, child: Child, file: Path, table: str, work: Work) -> None:
        self._engine = engine
        self._child = child
        self._file = file
        self._plan = work.plan
        self._ctx = work.ctx
        self._name = parts_of(table)
        self._table = quoted(*self._name)
        self._ledger = quoted(*self._name[:-1], LEDGER)
        self._path = child.scratch / "rows.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._pairs: tuple[Pair, ...] = ()

    async def earlier(self) -> dict[str, Any] | None:
        """What the ledger holds under our mark."""
        async with self._engine.writer([self._file], self._ctx):
            return await self._earlier()

    def begin(self, schema: pa.Schema) -> None:
        """Open the file."""
        self._pairs = pairs_of(schema.names, self._plan)
        self._writer = pq.ParquetWriter(self._path, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the file."""
        if self._writer is None:
            raise RuntimeError("the target has not begun")
        self._writer.write_batch(batch)

    def stop(self) -> None:
        """A cancelled task ends its child."""

    async def commit(self, said: dict[str, Any]) -> dict[str, Any]:
        """One transaction from the file; nobody else of this worker writes meanwhile."""
        if self._writer is not None:
            self._writer.close()
        async with self._engine.writer([self._file], self._ctx):
            first = await self._earlier()
            if first is not None:
                return first
            known = await self._known()
            if not known and not self._plan.is_made:
                raise no_table(self._table)
            try:
                await self._run([*self._texts(known), *self._ledgered(said)])
            except ToolError as fault:
                raise _told(fault) from None
        return said

    async def _run(self, texts: list[str], params: Any = None) -> dict[str, Any]:  # noqa: ANN401 - a list
        job = self._engine.job(str(self._file), texts, params=params)
        return await self._engine.run(self._child, job)

    async def _known(self) -> dict[str, str]:
        return await self._columns_of(self._name)

    async def _columns_of(self, parts: tuple[str, ...]) -> dict[str, str]:
        ask = (
            "select column_name, data_type from duckdb_columns() where table_name = ?"
            " and (? = '' or schema_name = ?) and database_name = current_database()"
            " order by column_index"
        )
        schema = parts[-2] if len(parts) > 1 else ""
        found = await self._run([ask], [parts[-1], schema, schema])
        return {row["column_name"]: row["data_type"] for row in found["rows"]}

    async def _earlier(self) -> dict[str, Any] | None:
        if not self._file.exists() or not await self._columns_of((*self._name[:-1], LEDGER)):
            return None
        ask = filled("select outcome from {ledger} where key = ?", ledger=self._ledger)
        rows = (await self._run([ask], [self._plan.mark]))["rows"]
        return dict(json.loads(rows[0]["outcome"])) if rows else None

    def _texts(self, known: dict[str, str]) -> list[str]:
        source = f"read_parquet({_text(str(self._path))}, file_row_number = true)"
        texts = []
        if not known:
            texts.append(self._making(source))
        wanted = [pair.column for pair in self._pairs]
        spelled = named(wanted, known, self._table) if known else {name: name for name in wanted}
        columns = [spelled[name] for name in wanted]
        if self._plan.mode == "replace":
            texts.append(filled("delete from {table}", table=self._table))
        values = [
            self._value(pair.field, known.get(spelled[pair.column], "")) for pair in self._pairs
        ]
        text = "insert into {table} ({columns}) select {values} from {source}"
        parts = {
            "table": self._table, "columns": listed(columns), "values": ", ".join(values),
            "source": source,
        }  # fmt: skip
        if self._plan.mode == "upsert":
            text, parts = self._upsert(text, parts, columns)
        return [*texts, filled(text, **parts)]

    def _upsert(
        self, text: str, parts: dict[str, str], columns: list[str]
    ) -> tuple[str, dict[str, str]]:
        wanted = {name.lower() for name in self._plan.key}
        fields = [pair.field for pair in self._pairs if pair.column.lower() in wanted]
        key = [name for name in columns if name.lower() in wanted]
        rest = [name for name in columns if name not in key]
        changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
        text += (
            " qualify row_number() over (partition by {fields} order by file_row_number desc) = 1"
            " on conflict ({key}) do {change}"
        )
        change = f"update set {changes}" if rest else "nothing"
        return text, {**parts, "fields": listed(fields), "key": listed(key), "change": change}

    def _value(self, field: str, kind: str) -> str:
        name = quoted(field)
        return f"try_cast({name} as {kind})" if self._plan.is_lenient and kind else name

    def _making(self, source: str) -> str:
        fields = ", ".join(f"{quoted(p.field)} as {quoted(p.column)}" for p in self._pairs)
        text = "create table if not exists {table} as select {fields} from {source} limit 0"
        made = filled(text, table=self._table, fields=fields, source=source)
        if not self._plan.key:
            return made
        index = "; create unique index if not exists {index} on {table} ({key})"
        name = quoted(f"{self._name[-1]}_key")
        return made + filled(index, index=name, table=self._table, key=listed(self._plan.key))

    def _ledgered(self, said: dict[str, Any]) -> list[str]:
        make = (
            "create table if not exists {ledger} (key varchar primary key,"
            " outcome varchar not null, done_at timestamptz not null default now())"
        )
        put = "insert into {ledger} (key, outcome) values ({key}, {outcome})"
        return [
            filled(make, ledger=self._ledger),
            filled(put, ledger=self._ledger, key=_text(self._plan.mark),
                   outcome=_text(json.dumps(said))),
        ]  # fmt: skip


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _told(fault: ToolError) -> ToolError:
    if fault.code in _BAD_VALUES:
        return type_error(fault.message)
    if "referenced by the ON CONFLICT" in fault.message or "ON CONFLICT" in fault.message:
        message = f"/key: the table has no unique index on these columns: {fault.message}"
        return ToolError("config", "invalid_config", message)
    return fault
