"""Runs SQL on PostgreSQL; the driver is imported with the first task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.tasks import Postgres
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.postgres.address import address_of
from noetl.tools.postgres.params import bind
from noetl.tools.postgres.pools import Pools
from noetl.tools.statements import controls_transactions, statements_of
from noetl.tools.tabular.rows import Budget, at_index, together

if TYPE_CHECKING:
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.postgres.params import Bound
    from noetl.tools.postgres.pools import Connection

WELL: Final = {"code": None, "sqlstate": "00000"}


class PostgresTool:
    """The kind `postgres`."""

    kind: ClassVar[str] = "postgres"
    Config: ClassVar[type[Task]] = Postgres
    traits: ClassVar[Traits] = Traits(credentialed=True)

    def __init__(self, pools: Pools | None = None) -> None:
        self.pools = Pools() if pools is None else pools

    async def run(self, config: Postgres, ctx: ToolContext) -> Outcome:
        """Run the statements, then the copy, as one transaction unless told otherwise."""
        # The driver takes longer to import than a short local run without it.
        from noetl.tools.postgres.session import beginning, connect, listening  # noqa: PLC0415 - see above

        statements, params = await statements_of(config, ctx)
        bound = [bind(statement, params) for statement in statements]
        is_one = config.transaction and not any(map(controls_transactions, statements))
        address = await address_of(config, ctx)
        begin = beginning(config, is_one=is_one)
        budget = Budget(config, ctx, self.kind)
        async with self.pools.lend(address.key, lambda: connect(address), begin) as lease:
            connection = lease.connection
            async with listening(connection, ctx):
                try:
                    parts = await _parts(connection, config, bound, budget)
                    if is_one:
                        await _commit(connection)
                finally:
                    lease.is_spoiled = is_busy(connection)
        data = together(parts, budget)
        ref = data.get("ref")
        if config.copy is not None:
            data["copy"] = parts[-1]["copy"]
            ref = data["copy"].get("ref") or ref
        return Outcome(data=data, ref=ref, pg=WELL)

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task asks the server to cancel its statement."""

    async def close(self) -> None:
        """Close the connections that are kept."""
        await self.pools.close()


async def _parts(
    connection: Connection, config: Postgres, bound: list[Bound], budget: Budget
) -> list[dict[str, Any]]:
    from noetl.tools.postgres.copy import run_copy  # noqa: PLC0415 - brings the driver
    from noetl.tools.postgres.session import run_statement  # noqa: PLC0415 - brings the driver

    parts: list[dict[str, Any]] = []
    try:
        for one in bound:
            parts.append(await run_statement(connection, one, budget, len(parts)))
        if config.copy is not None:
            parts.append(await run_copy(connection, config.copy, budget.ctx, len(parts)))
    except ToolError as fault:
        raise at_index(fault, len(parts)) from None
    return parts


async def _commit(connection: Connection) -> None:
    from psycopg import Error  # noqa: PLC0415 - loaded with the first task

    from noetl.tools.postgres.failures import refused  # noqa: PLC0415 - brings the driver

    try:
        await connection.execute("commit")
    except Error as fault:
        raise refused(fault, None, None) from None


def is_busy(connection: Connection) -> bool:
    """Whether a connection is lost, or in the middle of something."""
    from psycopg.pq import TransactionStatus  # noqa: PLC0415 - loaded with the first task

    status = connection.pgconn.transaction_status
    return connection.closed or status in (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)
