"""The types of the schema, and how each is made from what the server and the gateway tell."""
# mypy: disable-error-code="untyped-decorator"
# (the decorators of the kit have no types of their own)

from __future__ import annotations

import asyncio
from collections.abc import Mapping  # noqa: TC003 - strawberry reads the types of the fields
from typing import TYPE_CHECKING, Any, Self

import strawberry

from noetl.api import gateway as told
from noetl.gateway.graphql.inputs import JSON, plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api import executions as runs
    from noetl.api.catalog import CatalogItem


class Whole:
    """All of a run, asked for when somebody wants more than a list tells, and once."""

    def __init__(self, ask: Callable[[], Awaitable[runs.Execution]]) -> None:
        self._ask = ask
        self._asked: asyncio.Future[runs.Execution] | None = None

    async def get(self) -> runs.Execution:
        """The run."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._ask())
        return await self._asked


@strawberry.type(description="One run of a playbook.")
class Execution:
    """One run."""

    id: strawberry.ID
    execution_id: strawberry.ID
    catalog_id: strawberry.ID
    path: str
    version: int
    status: str
    pool: str
    priority: int
    started_at: str
    completed_at: str | None
    duration_ms: float
    parent_execution_id: strawberry.ID | None
    current_steps: list[str]
    steps: JSON
    labels: JSON
    event_count: int
    pending_commands: int
    error: JSON | None
    whole: strawberry.Private[Whole]

    @classmethod
    def of(cls, run: runs.ExecutionItem | runs.Execution, whole: Whole) -> Self:
        """A run as lists and single answers tell it."""
        parent = run.parent_execution_id
        return cls(
            id=strawberry.ID(run.execution_id),
            execution_id=strawberry.ID(run.execution_id),
            catalog_id=strawberry.ID(run.catalog_id),
            path=run.path,
            version=run.version,
            status=run.status,
            pool=run.pool,
            priority=run.priority,
            started_at=run.started_at,
            completed_at=run.completed_at,
            duration_ms=run.duration_ms,
            parent_execution_id=None if parent is None else strawberry.ID(parent),
            current_steps=list(run.current_steps),
            steps=JSON(run.steps),
            labels=JSON(run.labels),
            event_count=run.event_count,
            pending_commands=run.pending_commands,
            error=plain(run.error),
            whole=whole,
        )

    @strawberry.field(description="What it was given.")
    async def workload(self) -> JSON:
        """What it was given."""
        return JSON((await self.whole.get()).workload)

    @strawberry.field(description="What it returned.")
    async def result(self) -> JSON | None:
        """What it returned."""
        return plain((await self.whole.get()).result)

    @strawberry.field(description="Where its result lies, when it is large.")
    async def reference(self) -> JSON | None:
        """Where its result lies."""
        return plain((await self.whole.get()).reference)

    @strawberry.field(description="When it changed last.")
    async def updated_at(self) -> str:
        """When it changed last."""
        return (await self.whole.get()).updated_at

    @strawberry.field(description="Who asked for it.")
    async def created_by(self) -> str:
        """Who asked for it."""
        return (await self.whole.get()).created_by

    @strawberry.field(description="The run that this one repeats.")
    async def rerun_of(self) -> strawberry.ID | None:
        """The run that this one repeats."""
        found = (await self.whole.get()).rerun_of
        return None if found is None else strawberry.ID(found)

    @strawberry.field(description="How many events its log has.")
    async def last_seq(self) -> int:
        """How many events its log has."""
        return (await self.whole.get()).last_seq


@strawberry.type(description="A page of runs, the newest first.")
class ExecutionPage:
    """A page of runs."""

    items: list[Execution]
    next_cursor: str | None


@strawberry.type(description="A playbook of the catalog, its newest version.")
class Playbook:
    """A playbook."""

    id: strawberry.ID
    catalog_id: strawberry.ID
    path: str
    kind: str
    version: int
    digest: str
    created_at: str
    created_by: str
    meta: JSON | None

    @classmethod
    def of(cls, item: CatalogItem) -> Self:
        """A document of a list."""
        return cls(
            id=strawberry.ID(item.catalog_id),
            catalog_id=strawberry.ID(item.catalog_id),
            path=item.path,
            kind=item.kind,
            version=item.version,
            digest=item.digest,
            created_at=item.created_at,
            created_by=item.created_by,
            meta=plain(item.meta),
        )


@strawberry.type(description="A page of playbooks.")
class PlaybookPage:
    """A page of playbooks."""

    items: list[Playbook]
    next_cursor: str | None


@strawberry.type(description="Why there is no result, in the codes of JSON-RPC.")
class RequestError:
    """Why there is no result."""

    code: int
    message: str
    data: JSON | None


@strawberry.type(description="A result that is read apart, since it is large.")
class ResultRef:
    """A large result."""

    ref: str
    bytes: float
    sha256: str


@strawberry.type(description="What is known of a request to run a playbook.")
class Request:
    """A request."""

    id: strawberry.ID
    request_id: strawberry.ID
    execution_id: strawberry.ID
    playbook_path: str
    state: str
    status: str
    created_at: str
    deadline: str
    result: JSON | None
    error: RequestError | None
    result_ref: ResultRef | None
    late_result: JSON | None

    @classmethod
    def of(cls, document: told.RequestDocument) -> Self:
        """A request as it is polled."""
        error, ref = document.error, document.result_ref
        return cls(
            id=strawberry.ID(document.request_id),
            request_id=strawberry.ID(document.request_id),
            execution_id=strawberry.ID(document.execution_id),
            playbook_path=document.playbook_path,
            state=document.state,
            status=status_of(document),
            created_at=document.created_at,
            deadline=document.deadline,
            result=plain(document.result),
            error=None
            if error is None
            else RequestError(code=error.code, message=error.message, data=plain(error.data)),
            result_ref=None
            if ref is None
            else ResultRef(ref=ref.ref, bytes=ref.bytes, sha256=ref.sha256),
            late_result=plain(document.late_result),
        )


@strawberry.type(description="A request when something of it has changed; the last one is its end.")
class RequestUpdate(Request):
    """A request when something of it has changed."""


@strawberry.type(description="An event of a run, in the order of its log.")
class ExecutionEvent:
    """An event of a run."""

    id: strawberry.ID
    event_id: strawberry.ID
    execution_id: strawberry.ID
    seq: int
    event_type: str
    status: str
    step: str | None
    node_name: str | None
    command_id: strawberry.ID | None
    attempt: int | None
    at: str
    duration_ms: float | None
    result: JSON | None
    error: JSON | None
    context: JSON | None
    meta: JSON | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """A row of the log."""
        command = row.get("command_id")
        return cls(
            id=strawberry.ID(row["event_id"]),
            event_id=strawberry.ID(row["event_id"]),
            execution_id=strawberry.ID(row["execution_id"]),
            seq=row["seq"],
            event_type=row["event_type"],
            status=row["status"],
            step=row.get("step") or None,
            node_name=row.get("node_name") or None,
            command_id=None if command is None else strawberry.ID(command),
            attempt=row.get("attempt"),
            at=row["created_at"],
            duration_ms=row.get("duration_ms"),
            result=row.get("result"),
            error=row.get("error"),
            context=row.get("context"),
            meta=row.get("meta"),
        )


@strawberry.type(description="A run that was started or steered.")
class ExecuteResult:
    """A run that was started or steered."""

    id: strawberry.ID
    execution_id: strawberry.ID
    request_id: strawberry.ID | None
    name: str | None
    status: str | None
    text_output: str | None


@strawberry.type(description="What the server answered.")
class ProxyResponse:
    """What the server answered."""

    status: int
    headers: JSON
    body: JSON | None


def status_of(document: told.RequestDocument) -> str:
    """A request in the words of runs."""
    if document.is_open:
        return "PENDING" if document.state == "accepted" else "RUNNING"
    return told.status_of(document.state)
