"""The schema: what can be asked, changed and followed, each in the name of whoever asks."""
# mypy: disable-error-code="untyped-decorator"
# (the decorators of the kit have no types of their own)

from __future__ import annotations

from collections.abc import AsyncIterator  # noqa: TC003 - strawberry reads the types
from typing import TYPE_CHECKING, Any, Final

import msgspec
import strawberry
from strawberry.schema.config import StrawberryConfig

from noetl import __version__
from noetl.api.catalog import CatalogQuery
from noetl.edge.errors import Unacceptable
from noetl.gateway.graphql import following, runs
from noetl.gateway.graphql.asked import Asked
from noetl.gateway.graphql.inputs import (
    JSON,
    Delivery,
    ExecutableResourceKind,
    ExecutionFilter,
    OnTimeout,
    ProxyInput,
    is_given,
)
from noetl.gateway.graphql.types import (
    ExecuteResult,
    Execution,
    ExecutionEvent,
    ExecutionPage,
    Playbook,
    PlaybookPage,
    ProxyResponse,
    Request,
    RequestUpdate,
    Whole,
)
from noetl.ids import parse

if TYPE_CHECKING:
    from graphql import GraphQLSchema

    from noetl.api.executions import Execution as Run

Info = strawberry.Info[Asked, None]

MOST_FIRST: Final = 200
DEFAULT_FIRST: Final = 50


@strawberry.type
class Query:
    """What can be asked."""

    @strawberry.field(description="`ok` while the gateway answers.")
    def health(self) -> str:
        """Whether the gateway answers."""
        return "ok"

    @strawberry.field(description="The version of the gateway.")
    def version(self) -> str:
        """The version of the gateway."""
        return __version__

    @strawberry.field(description="One run.")
    async def execution(self, info: Info, id: strawberry.ID) -> Execution | None:  # noqa: A002 - the schema's name
        """One run."""
        run = parse(str(id))
        found = await info.context.server(run).execution(run, with_state=False)

        async def known() -> Run:
            return found

        return Execution.of(found, Whole(known))

    @strawberry.field(description="One request to run a playbook.")
    async def request(self, info: Info, id: strawberry.ID) -> Request | None:  # noqa: A002 - as above
        """One request."""
        return Request.of(await info.context.gate.requests.document(info.context.person, str(id)))

    @strawberry.field(description="Runs, the newest first.")
    async def executions(
        self,
        info: Info,
        filter: ExecutionFilter | None = strawberry.UNSET,  # noqa: A002 - as above
        first: int | None = DEFAULT_FIRST,
        after: str | None = strawberry.UNSET,
    ) -> ExecutionPage:
        """A page of runs."""
        asked: dict[str, Any] = filter.asked() if filter else {}
        asked["limit"] = _page(first)
        if is_given(after):
            asked["cursor"] = after
        page = await info.context.server().executions(**asked)
        items = [Execution.of(one, _whole(info.context, one.execution_id)) for one in page.items]
        return ExecutionPage(items=items, next_cursor=page.next_cursor)

    @strawberry.field(description="The newest requests of the caller.")
    async def requests(self, info: Info, first: int | None = DEFAULT_FIRST) -> list[Request]:
        """The newest requests of the caller."""
        found = await info.context.gate.requests.listed(info.context.person, _page(first))
        return [Request.of(one) for one in found]

    @strawberry.field(description="Playbooks of the catalog that the caller may see.")
    async def playbooks(
        self,
        info: Info,
        search: str | None = strawberry.UNSET,
        first: int | None = DEFAULT_FIRST,
        after: str | None = strawberry.UNSET,
    ) -> PlaybookPage:
        """A page of playbooks."""
        page = await info.context.server().catalog(
            CatalogQuery(
                resource_type="playbook",
                q=search or None,
                limit=_page(first),
                cursor=after or None,
            )
        )
        items = [Playbook.of(one) for one in page.entries]
        return PlaybookPage(items=items, next_cursor=page.next_cursor)


@strawberry.type
class Mutation:
    """What can be changed."""

    @strawberry.mutation(description="Runs a playbook.")
    async def execute_playbook(  # noqa: PLR0913, PLR0917 - the schema's arguments
        self,
        info: Info,
        name: str,
        variables: JSON | None = strawberry.UNSET,
        resource_kind: ExecutableResourceKind | None = ExecutableResourceKind.playbook,
        client_id: str | None = strawberry.UNSET,
        version: int | None = strawberry.UNSET,
        delivery: Delivery | None = strawberry.UNSET,
        idempotency_key: str | None = strawberry.UNSET,
        timeout_secs: int | None = strawberry.UNSET,
        on_timeout: OnTimeout | None = OnTimeout.leave,
        wait: int | None = 0,
    ) -> ExecuteResult:
        """Run a playbook."""
        given = {
            "name": name,
            "variables": variables,
            "resource_kind": resource_kind.value if resource_kind else None,
            "client_id": client_id,
            "version": version,
            "delivery": delivery.value if delivery else None,
            "idempotency_key": idempotency_key if is_given(idempotency_key) else info.context.key,
            "timeout_secs": timeout_secs,
            "on_timeout": on_timeout.value if on_timeout else None,
        }
        wish = runs.wish_of({key: value for key, value in given.items() if is_given(value)})
        return await runs.started(info.context, wish, wait or 0)

    @strawberry.mutation(description="Runs a playbook again, with other variables or the same.")
    async def rerun_execution(
        self,
        info: Info,
        execution_id: str,
        variables: JSON | None = strawberry.UNSET,
        client_id: str | None = strawberry.UNSET,
    ) -> ExecuteResult:
        """Run a playbook again."""
        given = variables if is_given(variables) else None
        return await runs.repeated(info.context, execution_id, given, client_id or None)

    @strawberry.mutation(description="Ends a run.")
    async def cancel_execution(
        self,
        info: Info,
        execution_id: str,
        cascade: bool | None = True,  # noqa: FBT001, FBT002 - the schema's argument
        reason: str | None = strawberry.UNSET,
    ) -> ExecuteResult:
        """End a run."""
        does_cascade = True if cascade is None else cascade
        return await runs.cancelled(info.context, execution_id, reason or "", cascade=does_cascade)

    @strawberry.mutation(description="Calls the API of the server, as under `/noetl/`.")
    async def proxy_request(self, info: Info, input: ProxyInput) -> ProxyResponse:  # noqa: A002 - the schema's name
        """Call the API of the server."""
        sent = msgspec.json.encode(input.body) if is_given(input.body) else b""
        status, headers, body = await info.context.proxy.ask(
            info.context.person, input.method.upper(), input.path, input.query or "", sent
        )
        return ProxyResponse(
            status=status,
            headers=JSON(
                {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
            ),
            body=runs.body_of(body),
        )


@strawberry.type
class Subscription:
    """What can be followed."""

    @strawberry.subscription(description="The events of a run, until it has ended.")
    async def execution_events(
        self, info: Info, execution_id: strawberry.ID, after_seq: int | None = 0
    ) -> AsyncIterator[ExecutionEvent]:
        """The events of a run behind a place of its log."""
        async for row in following.events(info.context, str(execution_id), after_seq or 0):
            yield ExecutionEvent.of(row)

    @strawberry.subscription(description="A request, each time something of it has changed.")
    async def request_updates(
        self, info: Info, request_id: strawberry.ID
    ) -> AsyncIterator[RequestUpdate]:
        """A request until it has ended."""
        asked = info.context
        async for document in asked.gate.requests.followed(asked.person, str(request_id)):
            yield RequestUpdate.of(document)


def make_schema() -> GraphQLSchema:
    """The schema."""
    scalar = strawberry.scalar(name="JSON", description="Any value that JSON has.")
    config = StrawberryConfig(scalar_map={JSON: scalar})
    made = strawberry.Schema(
        query=Query, mutation=Mutation, subscription=Subscription, config=config
    )
    return made._schema  # noqa: SLF001 - documents are parsed, measured and checked by us


def pages_of(schema: GraphQLSchema) -> dict[str, int]:
    """Fields whose answers are as long as `first` says, and what it is when nobody says it."""
    query = schema.query_type
    fields = {} if query is None else query.fields
    return {name: DEFAULT_FIRST for name, field in fields.items() if "first" in field.args}


def _page(first: int | None) -> int:
    wanted = DEFAULT_FIRST if first is None else first
    if not 1 <= wanted <= MOST_FIRST:
        raise Unacceptable(f"`first` is not in 1..{MOST_FIRST}")
    return wanted


def _whole(asked: Asked, execution_id: str) -> Whole:
    async def ask() -> Run:
        async with asked.lanes:
            return await asked.server(execution_id).execution(execution_id, with_state=False)

    return Whole(ask)
