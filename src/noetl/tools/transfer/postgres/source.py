"""The rows of a query of PostgreSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from noetl.tools.postgres.params import bind
from noetl.tools.statements import pieces
from noetl.tools.transfer.plan import pairs_of
from noetl.tools.transfer.postgres.column import Column
from noetl.tools.transfer.postgres.connection import cut, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

    from noetl.tools.transfer.plan import Plan

_PLACE: Final = re.compile(r"\$(\d+)")


class PostgresSource:
    """The rows of a query."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        query: str,
        params: Any,  # noqa: ANN401 - a list or a map
        plan: Plan,
    ) -> None:
        self.connection = connection
        self._plan = plan
        self.query = sql.SQL(_bound(query.strip().rstrip(";"), params, connection))
        self._columns: tuple[Column, ...] | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the query, asked once."""
        if self._columns is None:
            with reading():
                ask = sql.SQL("select * from ({}\n) as asked limit 0").format(self.query)
                found = self.connection.execute(ask).description or []
                oids = [(item.type_code, item._fmod) for item in found]  # noqa: SLF001 - the one way to know
                told = self.connection.execute(
                    "select format_type(t, m) from unnest(%s::oid[], %s::int[]) as asked (t, m)",
                    ([oid for oid, _ in oids], [more for _, more in oids]),
                ).fetchall()
            self._columns = tuple(
                Column(
                    name=item.name,
                    oid=item.type_code,
                    type=row[0],
                    precision=item.precision or 0,
                    scale=item.scale or 0,
                )
                for item, row in zip(found, told, strict=True)
            )
        return self._columns

    def schema(self) -> pa.Schema:
        """The columns as Arrow; what has no type there is text."""
        from noetl.tools.transfer.postgres.arrow import schema_of  # noqa: PLC0415 - an extra

        return schema_of(self.columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows through a cursor of the server."""
        from noetl.tools.transfer.postgres.arrow import is_plain  # noqa: PLC0415 - an extra
        from noetl.tools.transfer.shape import batch_of  # noqa: PLC0415 - an extra

        schema = self.schema()
        pairs_of(schema.names, self._plan)
        fields = [
            sql.Identifier(column.name)
            if is_plain(column)
            else sql.SQL("{}::text").format(sql.Identifier(column.name))
            for column in self.columns
        ]
        query = sql.SQL("select {} from ({}\n) as asked").format(
            sql.SQL(", ").join(fields), self.query
        )
        with reading(), self.connection.transaction():
            self.connection.execute("set transaction read only")
            with self.connection.cursor("noetl_read", binary=True) as cursor:
                cursor.execute(query)
                while rows := cursor.fetchmany(self._plan.chunk_size):
                    columns = list(zip(*rows, strict=True))
                    yield batch_of(columns, schema, is_lenient=self._plan.is_lenient)

    def stop(self) -> None:
        """Cut the connection."""
        cut(self.connection)


def _bound(text: str, params: Any, connection: psycopg.Connection[Any]) -> Any:  # noqa: ANN401 - a text for the driver
    """The query with its values in it, quoted by the driver: COPY takes no parameters."""
    if not params:
        return text
    bound = bind(text, params)

    def literal(found: re.Match[str]) -> str:
        return sql.Literal(bound.values[int(found[1]) - 1]).as_string(connection)

    return "".join(
        _PLACE.sub(literal, piece.text) if piece.kind == "code" else piece.text
        for piece in pieces(bound.text)
    )
