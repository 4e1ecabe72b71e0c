"""Opens the two sides of a transfer; drivers are imported with the first that needs them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from noetl.tools.auth import fields_of
from noetl.tools.base import ToolError
from noetl.tools.roots import inside, place_for
from noetl.tools.transfer.plan import pairs_of
from noetl.tools.transfer.pump import Moved, pump

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from noetl.dsl.tasks import Transfer
    from noetl.tools.duckdb.engine import Engine
    from noetl.tools.http.tool import HttpTool
    from noetl.tools.transfer.plan import Source, Target
    from noetl.tools.transfer.work import Work

MEMORY = ":memory:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The stores of one worker."""

    duckdb: Engine
    http: HttpTool

    async def source(self, config: Transfer, work: Work, held: AsyncExitStack) -> Source:
        """Where the rows come from."""
        side, auth = config.source, _auth(config, "source")
        if side.kind == "http":
            from noetl.tools.transfer.http import read  # noqa: PLC0415 - an extra

            return await read(self.http, side, auth, work)
        if side.kind in {"s3", "gcs"}:
            from noetl.tools.transfer.objects import read as fetch  # noqa: PLC0415 - an extra

            return await fetch((str(side.uri), side.format, side.data_path), auth, work)
        opened = getattr(self, f"_{side.kind}_source")
        found: Source = await opened(config, auth, work, held)
        work.lanes.on_stop(found.stop)
        return found

    async def target(self, config: Transfer, work: Work, held: AsyncExitStack) -> Target:
        """Where the rows go."""
        side, auth = config.target, _auth(config, "target")
        if side.kind in {"s3", "gcs"}:
            from noetl.tools.transfer.objects import ObjectTarget  # noqa: PLC0415 - an extra

            return ObjectTarget(str(side.uri), auth, work)
        opened = getattr(self, f"_{side.kind}_target")
        found: Target = await opened(config, auth, work, held)
        work.lanes.on_stop(found.stop)
        return found

    async def move(self, source: Source, target: Target, work: Work) -> Moved:
        """Move every row to where the target keeps them until they are shown."""
        tell = _teller(work)
        if type(source).__name__ == "PostgresSource" and type(target).__name__ == "PostgresTarget":
            from noetl.tools.transfer.postgres.pipe import pipe  # noqa: PLC0415 - a driver

            return await work.lanes.run(pipe, (source, target), work, tell)
        schema = await work.lanes.run(source.schema)
        await work.lanes.run(target.begin, schema)
        moved = await pump(source, target, work.lanes, tell)
        moved.columns = tuple(pair.column for pair in pairs_of(schema.names, work.plan))
        return moved

    # ------------------------------------------------------------------ PostgreSQL

    async def _postgres(
        self, about: tuple[Any, str, str | None], work: Work, held: AsyncExitStack
    ) -> Any:  # noqa: ANN401 - a connection of the driver
        from noetl.tools.postgres.address import address_of  # noqa: PLC0415 - a driver
        from noetl.tools.transfer.postgres.connection import connect  # noqa: PLC0415 - a driver

        auth, where, database = about
        fields = await fields_of(auth, work.ctx, types=("postgres",), where=where)
        asked: Any = SimpleNamespace(connection=None, auth=_with(fields, database=database))
        address = await address_of(asked, work.ctx)
        connection = await work.lanes.run(connect, address)
        held.callback(connection.close)
        return connection

    async def _postgres_source(
        self, config: Transfer, auth: Any, work: Work, held: AsyncExitStack  # noqa: ANN401 - an alias or a map
    ) -> Source:  # fmt: skip
        from noetl.tools.transfer.postgres.source import PostgresSource  # noqa: PLC0415 - a driver

        side = config.source
        about = (auth, "/source/auth", side.database)
        connection = await self._postgres(about, work, held)
        return PostgresSource(connection, str(side.query), side.params, work.plan)

    async def _postgres_target(
        self, config: Transfer, auth: Any, work: Work, held: AsyncExitStack  # noqa: ANN401 - an alias or a map
    ) -> Target:  # fmt: skip
        from noetl.tools.transfer.postgres.target import PostgresTarget  # noqa: PLC0415 - a driver

        side = config.target
        about = (auth, "/target/auth", side.database)
        connection = await self._postgres(about, work, held)
        made = PostgresTarget(connection, str(side.table), side.schema, work)
        held.callback(made.close)
        return made

    # ------------------------------------------------------------------ files

    async def _sqlite_source(
        self, config: Transfer, auth: Any, work: Work, held: AsyncExitStack  # noqa: ANN401 - an alias or a map
    ) -> Source:  # fmt: skip
        from noetl.tools.transfer.sqlite import SqliteSource, connect  # noqa: PLC0415 - an extra

        del auth
        side = config.source
        path = inside(str(side.path or side.database), self.duckdb.roots)
        if not path.exists():
            raise ToolError("not_found", "file_not_found", f"/source/path: there is no {path.name}")
        connection = connect(path)
        held.callback(connection.close)
        return SqliteSource(connection, str(side.query), side.params, work.plan)

    async def _sqlite_target(
        self, config: Transfer, auth: Any, work: Work, held: AsyncExitStack  # noqa: ANN401 - an alias or a map
    ) -> Target:  # fmt: skip
        from noetl.tools.transfer.sqlite import SqliteTarget, connect  # noqa: PLC0415 - an extra

        del auth
        side = config.target
        connection = connect(place_for(str(side.path or side.database), self.duckdb.roots))
        held.callback(connection.close)
        return SqliteTarget(connection, str(side.table), work)

    async def _duckdb_source(
        self, config: Transfer, auth: Any, work: Work, held: AsyncExitStack  # noqa: ANN401 - an alias or a map
    ) -> Source:  # fmt: skip
        from noetl.tools.transfer.duck import read  # noqa: PLC0415 - an extra

        del auth
        side = config.source
        child = await held.enter_async_context(self.duckdb.child())
        asked = (str(side.path or side.database or MEMORY), str(side.query), side.params)
        return await read(self.duckdb, child, asked, work)

    async def _duckdb_target(
        self, config: Transfer, auth: Any, work: Work, held: AsyncExitStack  # noqa: ANN401 - an alias or a map
    ) -> Target:  # fmt: skip
        from noetl.tools.transfer.duck import DuckTarget  # noqa: PLC0415 - an extra

        del auth
        side = config.target
        child = await held.enter_async_context(self.duckdb.child())
        file = self.duckdb.file_of(str(side.path or side.database))
        return DuckTarget(self.duckdb, child, file, str(side.table), work)

    # ------------------------------------------------------------------ Snowflake

    async def _snowflake(
        self,
        auth: Any,  # noqa: ANN401 - an alias or a map
        where: str,
        work: Work,
        held: AsyncExitStack,
    ) -> Any:  # noqa: ANN401 - a connection of the driver
        from noetl.tools.snowflake.session import connect  # noqa: PLC0415 - an extra

        fields = await fields_of(auth, work.ctx, types=("snowflake",), where=where)
        connection = await connect(fields)
        held.push_async_callback(work.lanes.run, connection.close)
        return connection

    async def _snowflake_source(
        self, config: Transfer, auth: Any, work: Work, held: AsyncExitStack  # noqa: ANN401 - an alias or a map
    ) -> Source:  # fmt: skip
        from noetl.tools.transfer.snow import SnowSource  # noqa: PLC0415 - an extra

        side = config.source
        given = _with(auth, database=side.database)
        connection = await self._snowflake(given, "/source/auth", work, held)
        return SnowSource(connection, str(side.query), side.params, work.plan)

    async def _snowflake_target(
        self, config: Transfer, auth: Any, work: Work, held: AsyncExitStack  # noqa: ANN401 - an alias or a map
    ) -> Target:  # fmt: skip
        from noetl.tools.transfer.snow import SnowTarget  # noqa: PLC0415 - an extra

        side = config.target
        given = _with(auth, database=side.database, schema=side.schema)
        connection = await self._snowflake(given, "/target/auth", work, held)
        return SnowTarget(connection, str(side.table), work)


def _auth(config: Transfer, side: str) -> Any:  # noqa: ANN401 - an alias or a map
    """The credential of a side: its own, or that of its name in the task's `auth`."""
    own = getattr(config, side).auth
    if own is not None:
        return own
    shared = config.auth
    if isinstance(shared, dict) and shared.keys() & {"source", "target"}:
        return shared.get(side)
    return shared


def _with(auth: Any, **more: str | None) -> Any:  # noqa: ANN401 - an alias or a map
    """The same with fields that the task writes out."""
    own = {name: value for name, value in more.items() if value}
    if not own or auth is None:
        return auth
    return {**(auth if isinstance(auth, dict) else {"credential": auth}), **own}


def _teller(work: Work) -> Callable[[Moved], None]:
    """Tells the loop of the worker, from a thread, how far the transfer is."""
    loop = asyncio.get_running_loop()
    told = 0

    def tell(moved: Moved) -> None:
        nonlocal told
        rows = moved.rows
        if rows - told >= work.plan.chunk_size or told == 0:
            told = rows
            loop.call_soon_threadsafe(work.ctx.progress, 0.0, f"{rows} rows")

    return tell
