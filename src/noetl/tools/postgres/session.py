"""One task on one connection: its settings, its statements, its notices."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import generators, sql
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format

from noetl.tools.base import ToolError
from noetl.tools.postgres.failures import refused, unconnected
from noetl.tools.postgres.types import CONTEXT, KINDS, MOMENTS, TEXT_OID, bindable, moments
from noetl.tools.tabular.columns import Column, unique
from noetl.tools.tabular.rows import Part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from psycopg.abc import PQGen
    from psycopg.abc import Transformer as Adapting
    from psycopg.errors import Diagnostic
    from psycopg.pq.abc import PGresult

    from noetl.dsl.tasks import Postgres
    from noetl.tools.base import ToolContext
    from noetl.tools.postgres.address import Address
    from noetl.tools.postgres.params import Bound
    from noetl.tools.postgres.pools import Connection
    from noetl.tools.tabular.rows import Budget

CONNECT_S: Final = 10.0
CHUNK_ROWS: Final = 1_000
_ROWS: Final = (ExecStatus.TUPLES_CHUNK, ExecStatus.SINGLE_TUPLE, ExecStatus.TUPLES_OK)
_COPYING: Final = (ExecStatus.COPY_IN, ExecStatus.COPY_OUT, ExecStatus.COPY_BOTH)
_READING: Final = (b"SELECT", b"FETCH", b"SHOW")
_LEVELS: Final = {"WARNING": "warning", "DEBUG": "debug", "LOG": "debug"}
# What the texts of values depend on; sessions of others may have been set up differently.
_FORMS: Final = (
    "datestyle = ISO", "intervalstyle = iso_8601", "timezone = 'UTC'", "bytea_output = hex",
)  # fmt: skip


async def connect(address: Address) -> Connection:
    """A new connection."""
    try:
        async with asyncio.timeout(CONNECT_S), _certificates(address) as more:
            return await psycopg.AsyncConnection.connect(
                autocommit=True,
                prepare_threshold=None,
                context=CONTEXT,
                passfile="/dev/null",  # no password of this machine
                **address.options,
                **more,
            )
    except TimeoutError:
        message = f"no connection within {CONNECT_S:g} s; check `host` and `port`"
        raise ToolError("timeout", "CONN_TIMEOUT", message) from None
    except psycopg.Error as fault:
        raise unconnected(fault) from None


@asynccontextmanager
async def _certificates(address: Address) -> AsyncIterator[dict[str, Any]]:
    """Where libpq finds the certificates, for as long as it looks."""
    if address.ca is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="noetl-ca-") as folder:
        path = Path(folder) / "ca.pem"
        await asyncio.to_thread(path.write_text, address.ca, encoding="utf-8")
        yield {"sslrootcert": str(path)}


def beginning(config: Postgres, *, is_one: bool) -> Callable[[Connection], Any]:
    """What makes a connection ready for a task: its transaction, and its settings."""
    word = "set local" if is_one else "set"
    steps = [f"{word} {form}" for form in _FORMS]
    if is_one:
        steps.insert(0, "begin read only" if config.read_only else "begin")
    elif config.read_only:
        steps.append("set default_transaction_read_only = on")
    if config.schema:
        names = [quoted_name(name.strip()) for name in config.schema.split(",") if name.strip()]
        steps.append(f"{word} search_path = {', '.join(names)}")
    if config.statement_timeout:
        steps.append(f"{word} statement_timeout = {round(config.statement_timeout * 1000)}")
    text = "; ".join(steps)

    async def begin(connection: Connection) -> None:
        try:
            await connection.execute(text.encode())
        except psycopg.Error as fault:
            raise refused(fault, None, None) from None

    return begin


def quoted_name(name: str) -> str:
    """A name of a table or schema as SQL has it."""
    return sql.Identifier(name).as_string(None)


@asynccontextmanager
async def listening(connection: Connection, ctx: ToolContext) -> AsyncIterator[None]:
    """Notices of the server go to the log of the task."""

    def tell(said: Diagnostic) -> None:
        level = _LEVELS.get((said.severity_nonlocalized or "")[:7].rstrip("12345"), "info")
        ctx.log(f"{said.severity}: {said.message_primary}", level=level)

    connection.add_notice_handler(tell)
    try:
        yield
    finally:
        connection.remove_notice_handler(tell)


async def run_statement(
    connection: Connection, bound: Bound, budget: Budget, index: int
) -> dict[str, Any]:
    """Run a statement; its rows are read as they come, not all at once."""
    transformer: Adapting = Transformer(connection)
    try:
        async with connection.lock:
            await connection.wait(_send(connection, transformer, bound))
            return await _answer(connection, transformer, budget)
    except psycopg.Error as fault:
        raise refused(fault, bound, index) from None


def _send(connection: Connection, transformer: Adapting, bound: Bound) -> PQGen[None]:
    values = [bindable(value) for value in bound.values]
    dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
    connection.pgconn.send_query_params(
        bound.text.encode(),
        dumped,
        param_types=transformer.types,
        param_formats=transformer.formats,
    )
    connection.pgconn.set_chunked_rows_mode(CHUNK_ROWS)
    yield from generators.send(connection.pgconn)


async def _answer(connection: Connection, transformer: Adapting, budget: Budget) -> dict[str, Any]:
    part = Part(budget)
    rows: _Rows | None = None
    fault: psycopg.Error | None = None
    try:
        async for result in _results(connection):
            if result.status == ExecStatus.FATAL_ERROR:
                fault = psycopg.errors.error_from_result(result)
            elif result.status in _ROWS:
                if rows is None:
                    part.columns = unique(list(_columns(result)))
                    rows = _Rows(result, transformer, part.names if budget.as_objects else None)
                if result.ntuples:
                    await part.add(rows.read(result))
            if result.command_status:  # of the last chunk, not of what ends them
                part.affected = _affected(result, result.command_status)
        if fault is None:
            return await part.end()
    except psycopg.OperationalError:
        if fault is None:  # else the server said why it hung up
            raise
    finally:
        await part.close()
    raise fault


class _Rows:
    """Reads the rows of one statement, chunk by chunk."""

    def __init__(self, first: PGresult, transformer: Adapting, names: list[str] | None) -> None:
        """Settle how each column is read; without names rows are lists."""
        oids = [first.ftype(at) for at in range(first.nfields)]
        self._moments = [at for at, oid in enumerate(oids) if oid in MOMENTS]
        self._names = names
        self._transformer = transformer
        transformer.set_pgresult(first, set_loaders=False)
        # Points in time are texts at first: a call for each would cost more than all the rest.
        read = [TEXT_OID if oid in MOMENTS else oid for oid in oids]
        transformer.set_loader_types(read, Format.TEXT)

    def read(self, result: PGresult) -> list[Any]:
        """The rows of a chunk."""
        self._transformer.set_pgresult(result, set_loaders=False)
        rows: Iterable[Any] = self._transformer.load_rows(0, result.ntuples, tuple)
        if self._moments:
            columns = list(zip(*rows))  # noqa: B905 - rows of one result
            for at in self._moments:
                columns[at] = tuple(moments(columns[at]))
            rows = zip(*columns)  # noqa: B905 - columns of one result
        names = self._names
        if names is None:
            return [list(row) for row in rows]
        return [dict(zip(names, row)) for row in rows]  # noqa: B905 - a row has every column


async def _results(connection: Connection) -> AsyncIterator[PGresult]:
    """What the server answers, piece by piece."""
    while (result := await connection.wait(generators.fetch(connection.pgconn))) is not None:
        if result.status in _COPYING:
            await connection.close()
            message = "a COPY in the text has nowhere to go: `copy` of the task streams rows"
            raise ToolError("config", "invalid_config", message)
        yield result


def _columns(result: PGresult) -> Iterator[Column]:
    for at in range(result.nfields):
        name = result.fname(at)
        yield Column((name or b"").decode(), KINDS.get(result.ftype(at), "text"))


def _affected(result: PGresult, tag: bytes) -> int:
    """How many rows a statement changed."""
    if result.nfields and tag.startswith(_READING):
        return 0
    return result.command_tuples or 0
