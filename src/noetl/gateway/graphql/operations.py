"""Operations: read, measured, checked, then done, in this order and on every way in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from graphql import (
    ExecutionResult,
    GraphQLError,
    NoSchemaIntrospectionCustomRule,
    execute,
    get_operation_ast,
    specified_rules,
    subscribe,
    validate,
)
from graphql.validation.validate import ValidationAbortedError

from noetl.edge.errors import Unacceptable
from noetl.gateway.graphql.asked import Asked
from noetl.gateway.graphql.faults import outcome, refused, shown
from noetl.gateway.graphql.limits import MOST_S, LimitExceeded, must_fit, parsed
from noetl.gateway.graphql.schema import make_schema, pages_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from graphql import DocumentNode, GraphQLSchema

    from noetl.gateway.gate import Gate
    from noetl.gateway.person import Person
    from noetl.gateway.proxy import Proxy

SUBSCRIPTION: Final = "subscription"
MOST_ERRORS: Final = 20
_LONG: Final = 32 * 1024
"""A text that is read beside everything else."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a caller sends."""

    query: str
    operation_name: str | None = None
    variables: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that may be done."""

    document: DocumentNode
    kind: str
    ask: Ask


@cache
def shared_schema() -> tuple[GraphQLSchema, dict[str, int]]:
    """The schema of this process, and its lists: neither ever changes."""
    made = make_schema()
    return made, pages_of(made)


class Operations:
    """Does operations for people."""

    def __init__(self, gate: Gate, proxy: Proxy) -> None:
        self._gate = gate
        self._schema, self._pages = shared_schema()
        self._proxy = proxy
        self._shows_schema = gate.settings.shows_schema
        hidden = () if self._shows_schema else (NoSchemaIntrospectionCustomRule,)
        self._rules = (*specified_rules, *hidden)

    def asked(self, person: Person, request_id: str, key: str | None = None) -> Asked:
        """What resolvers know of an operation of somebody."""
        return Asked(
            gate=self._gate, proxy=self._proxy, person=person, request_id=request_id, key=key
        )

    async def prepared(self, message: object) -> Operation:
        """An operation that is within the limits and fits the schema; no resolver has run."""
        if isinstance(message, list):
            raise LimitExceeded("batches are not taken")
        try:
            ask = msgspec.convert(message, Ask)
        except msgspec.ValidationError as fault:
            raise Unacceptable(str(fault)) from None
        if len(ask.query) > _LONG:
            document = await asyncio.to_thread(parsed, ask.query)
        else:
            document = parsed(ask.query)
        must_fit(document, ask.variables or {}, self._pages)
        operation = get_operation_ast(document, ask.operation_name)
        if operation is None:
            raise Unacceptable("`operationName` names no operation of the document")
        self._must_be_valid(document)
        return Operation(document, operation.operation.value, ask)

    def _must_be_valid(self, document: DocumentNode) -> None:
        hides = not self._shows_schema
        found = validate(self._schema, document, self._rules, MOST_ERRORS, hide_suggestions=hides)
        if len(found) == 1 and isinstance(found[0], ValidationAbortedError):
            raise LimitExceeded("the document is too complex")
        if found:
            raise Invalid(found)

    async def answer(self, asked: Asked, message: object) -> tuple[int, dict[str, Any]]:
        """The status and the body of an answer over HTTP."""
        kind = "other"
        try:
            operation = await self.prepared(message)
            kind = operation.kind
            _must_be_answered_once(kind)
            body = await self.done(asked, operation)
        except Exception as error:  # noqa: BLE001 - the border: every error is an answer
            errors = self.errors_of(error, asked.request_id)
            self.count(kind, errors)
            return refused(errors), {"errors": errors}
        errors = body.get("errors", [])
        self.count(kind, errors)
        return (refused(errors, body["data"]) if errors else 200), body

    async def done(self, asked: Asked, operation: Operation) -> dict[str, Any]:
        """The answer of a query or a mutation, in time."""
        limit = asyncio.timeout(MOST_S)
        try:
            async with limit:
                asked.limit = limit
                made = execute(
                    self._schema,
                    operation.document,
                    context_value=asked,
                    variable_values=operation.ask.variables,
                    operation_name=operation.ask.operation_name,
                    hide_suggestions=not self._shows_schema,
                )
                result = made if isinstance(made, ExecutionResult) else await made
        except TimeoutError:
            if not limit.expired():
                raise
            raise LimitExceeded(f"the operation took more than {MOST_S:.0f} s") from None
        return self.told(result, asked.request_id)

    async def followed(self, asked: Asked, operation: Operation) -> AsyncIterator[dict[str, Any]]:
        """The answers of a subscription, as they come."""
        made: Any = subscribe(
            self._schema,
            operation.document,
            context_value=asked,
            variable_values=operation.ask.variables,
            operation_name=operation.ask.operation_name,
            hide_suggestions=not self._shows_schema,
        )
        source = await made if asyncio.iscoroutine(made) or asyncio.isfuture(made) else made
        if isinstance(source, ExecutionResult):
            raise Invalid(source.errors or [])
        try:
            async for result in source:
                yield self.told(result, asked.request_id)
        finally:
            await source.aclose()

    def told(self, result: ExecutionResult, request_id: str) -> dict[str, Any]:
        """A result as it is sent."""
        body: dict[str, Any] = {"data": result.data}
        if result.errors:
            body["errors"] = [shown(one, request_id) for one in result.errors]
        return body

    def errors_of(self, error: BaseException, request_id: str) -> list[dict[str, Any]]:
        """The errors of an operation that was not begun."""
        many = error.errors if isinstance(error, Invalid) else [error]
        return [shown(one, request_id) for one in many]

    def count(self, kind: str, errors: list[dict[str, Any]]) -> None:
        """Count an operation."""
        self._gate.metrics.graphql.inc(kind, outcome(errors))


def _must_be_answered_once(kind: str) -> None:
    if kind == SUBSCRIPTION:
        raise Unacceptable("a subscription is followed over a WebSocket")


class Invalid(Exception):
    """A document that does not fit the schema, with everything that is wrong with it."""

    def __init__(self, errors: list[GraphQLError]) -> None:
        super().__init__("the document is not valid")
        self.errors = errors
