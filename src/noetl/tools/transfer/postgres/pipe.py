"""PostgreSQL to PostgreSQL: the bytes of COPY as they come, without a look at a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import sql

from noetl.tools.transfer.plan import pairs_of
from noetl.tools.transfer.postgres.connection import reading, writing
from noetl.tools.transfer.pump import Moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.tools.transfer.plan import Plan
    from noetl.tools.transfer.postgres.source import PostgresSource
    from noetl.tools.transfer.postgres.target import PostgresTarget
    from noetl.tools.transfer.work import Work

PIECE: Final = 1 << 18
_BUILT_IN: Final = 16_384
"""Types below this number are the same in every database."""


def pipe(
    sides: tuple[PostgresSource, PostgresTarget],
    work: Work,
    on_batch: Callable[[Moved], None],
) -> Moved:
    """Move the rows of the source to the temporary table of the target; in a thread."""
    source, target = sides
    plan = work.plan
    columns = {column.name: column for column in source.columns}
    target.stage(
        [column.name for column in source.columns],
        {name: column.type for name, column in columns.items()},
    )
    form = "binary" if _is_same(sides, plan) else "text"
    fields = sql.SQL(", ").join(sql.Identifier(pair.field) for pair in target.pairs)
    text = sql.SQL("copy (select {} from ({}\n) as asked) to stdout (format {})").format(
        fields, source.query, sql.SQL(form)
    )
    moved = Moved()
    put = target.open(form)
    pending = bytearray()
    with reading(), source.connection.cursor().copy(text) as got:
        for piece in got:
            moved.rows += 1
            pending += piece
            if len(pending) >= PIECE:
                _flush(moved, pending, put.write)
                pending = bytearray()
                on_batch(moved)
                if work.lanes.stopped.is_set():
                    return moved
        _flush(moved, pending, put.write)
    if form == "binary":
        moved.rows -= 1  # the trailer
    moved.columns = tuple(pair.column for pair in target.pairs)
    moved.chunks = -(-moved.rows // plan.chunk_size)
    return moved


def _flush(moved: Moved, pending: bytearray, write: Callable[[bytearray], None]) -> None:
    moved.bytes += len(pending)
    moved.chunks += 1
    with writing():
        write(pending)


def _is_same(sides: tuple[PostgresSource, PostgresTarget], plan: Plan) -> bool:
    """Whether each column has the very type of its field, and one that both sides know."""
    source, target = sides
    if plan.is_lenient:
        return False
    known = target.known()
    oids = {column.name: column.oid for column in source.columns}
    if not known:
        return all(oid < _BUILT_IN for oid in oids.values())
    return all(
        oids[pair.field] < _BUILT_IN and known.get(pair.column, ("", -1))[1] == oids[pair.field]
        for pair in pairs_of(list(oids), plan)
    )
