"""Runs SQL on Snowflake; the connector is imported with the first task."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.dsl.tasks import Snowflake
from noetl.dsl.views import Outcome
from noetl.tools.auth import fields_of
from noetl.tools.base import ToolError, Traits
from noetl.tools.snowflake.session import CONNECT_S, connect
from noetl.tools.snowflake.values import bound
from noetl.tools.statements import SNOWFLAKE, controls_transactions, first_word, statements_of
from noetl.tools.tabular.rows import PREVIEW_ROWS, Budget, at_index, together

if TYPE_CHECKING:
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext
    from noetl.tools.snowflake.queries import Queries

TOLD_BYTES: Final = 65_536
"""How much of the results before a failure is told with it."""
_OWN: Final = ("warehouse", "database", "role", "schema")
_OF_SESSION: Final = frozenset({"USE", "SET", "UNSET", "ALTER", "CREATE", "EXECUTE", "CALL"})
"""First words of statements that may leave something behind in their session."""
_OF_FILES: Final = frozenset({"PUT", "GET"})
_encode: Final = msgspec.json.Encoder(decimal_format="string").encode


class SnowflakeTool:
    """The kind `snowflake`."""

    kind: ClassVar[str] = "snowflake"
    Config: ClassVar[type[Task]] = Snowflake
    traits: ClassVar[Traits] = Traits(credentialed=True, extra="snowflake")

    def __init__(self, connect_s: int = CONNECT_S) -> None:
        self._connect_s = connect_s

    async def run(self, config: Snowflake, ctx: ToolContext) -> Outcome:
        """Run the statements one after another; each is a transaction of its own."""
        statements, params = await statements_of(config, ctx, SNOWFLAKE)
        for index, statement in enumerate(statements):
            _refuse_files(statement, index)
        sent = [(statement, *bound(statement, params)) for statement in statements]
        fields = await fields_of(config.auth, ctx, types=(self.kind,))
        own = {name: getattr(config, name) for name in _OWN if getattr(config, name)}
        connection = await connect({**fields, **own}, self._connect_s)
        # The connector is there by now, and takes longer to import than a short local run.
        from noetl.tools.snowflake.queries import Queries  # noqa: PLC0415 - see above

        queries = Queries(connection)
        budget = Budget(config, ctx, self.kind)
        try:
            parts = await _parts(queries, sent, _Kept(sent, own, ctx), budget)
        finally:
            await queries.close()
        data = together(parts, budget)
        data |= {f"statement_{index}": part for index, part in enumerate(parts)}
        return Outcome(data=data, ref=data.get("ref"))

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task has the server stop its statement."""


_Sent = list[tuple[str, str, list[Any] | None]]


class _Kept:
    """The ids of the queries that were sent, for the next try of the task."""

    def __init__(self, sent: _Sent, own: dict[str, Any], ctx: ToolContext) -> None:
        self._ctx = ctx
        self._ids: list[str] = []
        # What needs the session of an earlier statement cannot go on in another session.
        self._is_on = not any(_needs_session(statement) for statement, *_ in sent[:-1])
        told = _encode([[row[1:] for row in sent], own, ctx.idempotency_key])
        self._of = hashlib.sha256(told).hexdigest()

    def earlier(self) -> list[str]:
        """The ids of an earlier try of the same statements."""
        state = self._ctx.resume
        if not self._is_on or not isinstance(state, dict) or state.get("of") != self._of:
            return []
        found = state.get("queries")
        return [str(one) for one in found] if isinstance(found, list) else []

    def add(self, query_id: str) -> None:
        """One more was sent."""
        self._ids.append(query_id)
        if self._is_on:
            self._ctx.keep({"of": self._of, "queries": list(self._ids)})


async def _parts(
    queries: Queries, sent: _Sent, kept: _Kept, budget: Budget
) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    earlier = kept.earlier()
    try:
        for statement, text, values in sent:
            query_id = earlier[len(parts)] if len(parts) < len(earlier) else ""
            if not query_id or not await queries.is_there(query_id):
                earlier = []
                query_id = await queries.sent(text, values)
            kept.add(query_id)
            await queries.ended(query_id)
            parts.append(await queries.read(statement, query_id, budget))
    except ToolError as fault:
        raise _with_results(at_index(fault, len(parts)), parts) from None
    return parts


def _with_results(fault: ToolError, parts: list[dict[str, Any]]) -> ToolError:
    """The error with what earlier statements returned, which is not undone."""
    left = TOLD_BYTES
    told: dict[str, Any] = {}
    for index, part in enumerate(parts):
        size = len(_encode(part))
        is_whole = size <= left
        left -= size if is_whole else 0
        rows = part["rows"] if is_whole else part["rows"][:PREVIEW_ROWS]
        more = {} if is_whole else {"truncated": True}
        told[f"command_{index}"] = {**part, "rows": rows, **more}
    fault.details = {**(fault.details or {}), **told}
    return fault


def _needs_session(statement: str) -> bool:
    word = first_word(statement, SNOWFLAKE)
    return word in _OF_SESSION or controls_transactions(statement, SNOWFLAKE)


def _refuse_files(statement: str, index: int) -> None:
    if first_word(statement, SNOWFLAKE) in _OF_FILES:
        message = "PUT and GET touch files of the worker; `kind: transfer` moves rows"
        raise ToolError("config", "invalid_config", message, details={"index": index})
