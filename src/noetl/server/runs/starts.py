"""Runs that callers ask for: what they may ask, and what it means."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from noetl.api.executions import Rehearsed
from noetl.clock import rfc3339
from noetl.dsl.secret_inputs import CALLBACK, CALLBACK_URL
from noetl.edge.errors import Conflict, Forbidden, Unacceptable, UnknownExecution
from noetl.edge.moments import moment_of
from noetl.engine import events as ev
from noetl.ids import parse
from noetl.server.access.entry import LOCAL, free_pool, must
from noetl.server.access.grants import space_of
from noetl.server.access.permissions import SERVICES
from noetl.server.ingest.wanted import (
    Wanted,
    about,
    check,
    must_be_runnable,
    of_tenant,
    pool_of,
    workload_of,
)
from noetl.server.runs import requirements
from noetl.telemetry.traces import context as traceparent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.api.executions import Execute, Rerun, Started
    from noetl.server.access.entry import Caller
    from noetl.server.access.quota import Quotas
    from noetl.server.auditing.audit import Audits
    from noetl.server.ingest.programs import Programs
    from noetl.server.parts import ServerParts
    from noetl.server.runs.backlog import Backlog
    from noetl.server.runs.execute import Runs
    from noetl.server.runs.messages import Messages
    from noetl.store.base import CatalogEntry

MOST_LABELS: Final = 32
MOST_LABEL_NAME: Final = 63
MOST_LABEL: Final = 255
MOST_KEY: Final = 200
KEY_WINDOW_S: Final = 86_400
MOST_DELAY: Final = timedelta(days=366)
_OF_SERVICES: Final = ("execution_id", "request", "trigger", "added", "ingress")
_INJECTED: Final = ("request_id", CALLBACK_URL, CALLBACK[0])
"""What a gateway puts into the workload of a run that answers a request."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_CLIENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
_REHEARSED: Final = frozenset({
    "invalid_input", "requirement_missing", "invalid_playbook", "not_executable", "no_entry_step",
})  # fmt: skip


class Starts:
    """Turns requests into runs."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made from
        self,
        parts: ServerParts,
        runs: Runs,
        programs: Programs,
        quotas: Quotas,
        audits: Audits,
        backlog: Backlog,
        messages: Messages,
    ) -> None:
        self._backlog = backlog
        self.messages = messages
        self.quotas = quotas
        self.audits = audits
        self._store = parts.store
        self._clock = parts.clock
        self._runs = runs
        self._programs = programs

    async def execute(
        self,
        body: Execute,
        caller: Caller = LOCAL,
        *,
        key: str | None = None,
        trace: dict[str, Any] | None = None,
    ) -> Started:
        """Start a run; `key` and `trace` come with the request's headers."""
        is_anew = body.parent_execution_id is None or body.ingress is not None
        if is_anew and caller is not LOCAL:
            self._backlog.check(
                (
                    caller.tenant_id,
                    body.path,
                    _id(body.catalog_id),
                    body.version,
                    body.execution_pool,
                )
            )
        self.quotas.pace(caller)
        wanted = await self.wanted(body, caller, trace=trace)
        if key is not None and wanted.dedup is None:
            if not _KEY.fullmatch(key):
                raise Unacceptable(f"`Idempotency-Key` has 1..{MOST_KEY} visible characters")
            wanted.dedup = (_scope(caller), f"idempotency:{key}", KEY_WINDOW_S)
            wanted.is_exact = True
        started = await self._runs.start(wanted)
        await self.messages.answered([(wanted, started)])
        return started

    async def wanted(
        self,
        body: Execute,
        caller: Caller = LOCAL,
        *,
        trace: dict[str, Any] | None = None,
        entries: dict[tuple[Any, ...], CatalogEntry] | None = None,
    ) -> Wanted:
        """What a request means, if its caller may ask for it."""
        must_be_of_services(body, caller)
        if caller.mark("execution:run") == "o" and body.parent_execution_id is None:
            raise Forbidden(f"{caller.account} starts runs only under a run of its own")
        _must_be_labels(body.labels)
        if body.payload is not None and body.workload is not None:
            raise Unacceptable("`workload` is another word for `payload`; name one of them")
        parent = None if body.parent_execution_id is None else parse(body.parent_execution_id)
        wanted = Wanted(
            path=body.path,
            catalog_id=_id(body.catalog_id),
            version=body.version,
            payload=body.payload or body.workload or {},
            execution_id=None if body.execution_id is None else parse(body.execution_id),
            pool=body.execution_pool,
            priority=body.priority,
            parent_execution_id=parent,
            trace=_trace(body.trace),
            labels=body.labels,
            trigger=body.trigger or {"kind": "api"},
            created_by=caller.account,
            tenant_id=caller.tenant_id,
            is_metered=caller is not LOCAL,
            start_at=self._start_at(body.start_at),
        )
        if body.request is not None:
            answering(wanted, body.request, caller)
        beside = "" if parent is None else await self._under(wanted, parent, caller, body)
        if body.ingress is not None and wanted.subscription is None:
            raise Unacceptable(
                "`ingress` is for the messages of a subscription",
                errors=({"pointer": "/parent_execution_id", "code": "validation_failed"},),
            )
        if body.ingress is None:  # else the headers of each message decide, not of the request
            wanted.trace = wanted.trace or trace
        if (dedup := body.dedup) is not None:
            scope = parent or _scope(caller)
            wanted.dedup = (scope, dedup.key, dedup.window_secs)
            if dedup.replay_key is not None:
                wanted.replay = (scope, dedup.replay_key, dedup.replay_window_secs)
        check(wanted)
        await self._resolved(wanted, {} if entries is None else entries)
        self._must_be_open(wanted, caller, beside)
        return wanted

    async def _resolved(self, wanted: Wanted, entries: dict[tuple[Any, ...], CatalogEntry]) -> None:
        """Look the document up."""
        asked = (wanted.tenant_id, wanted.path, wanted.catalog_id, wanted.version)
        entry = entries.get(asked)
        if entry is None:
            entry = entries[asked] = await self._runs.resolve(*asked)
        must_be_runnable(entry)
        wanted.entry = entry

    def _must_be_open(self, wanted: Wanted, caller: Caller, beside: str) -> None:
        """Refuse a document that the caller may not run, or not where it would run.

        What the platform runs may start what is the platform's own.
        """
        entry = wanted.entry
        if entry is None:
            raise AssertionError("a wish is resolved")
        is_own = bool(space_of(entry.path, wanted.tenant_id))
        if is_own and not caller.is_bound and space_of(beside, wanted.tenant_id):
            return
        must(caller, "execution:run", entry.path)
        if is_own and caller is not LOCAL:
            self.audits.noted(caller, "execution.run", entry.path)
        free_pool(caller, wanted.pool or pool_of(self._programs.of(entry).playbook))

    async def _under(self, wanted: Wanted, parent: str, caller: Caller, body: Execute) -> str:
        """Make a wish one for a child; the path of its parent."""
        row = None if body.ingress else await self._store.executions.get(parent)
        if row is None:
            path = await self.messages.under(wanted, parent, caller, body)
            if path is not None:
                return path
        if row is None or (caller.is_bound and row.tenant_id != caller.tenant_id):
            raise UnknownExecution(f"there is no execution {parent}")
        if caller.is_bound:
            must(caller, "execution:run", row.path)
        wanted.tenant_id = row.tenant_id
        if row.completed_at is not None:
            raise Conflict(f"the parent is {row.status}", code="already_terminal")
        first = (await self._store.log.read(parent, 0, 1))[0].event
        if isinstance(first, ev.PlaybookStarted):
            wanted.depth = first.depth + 1
            wanted.trace = wanted.trace or first.trace
        return row.path

    def _start_at(self, text: str | None) -> str | None:
        """The moment to wait for; none when it has come already."""
        if text is None:
            return None
        moment, now = moment_of(text, "start_at"), self._clock.now()
        if moment > rfc3339(now + MOST_DELAY):
            raise Unacceptable(
                f"`start_at` is more than {MOST_DELAY.days} days away", code="bad_time"
            )
        return moment if moment > rfc3339(now) else None

    async def rehearse(self, body: Execute, caller: Caller = LOCAL) -> Rehearsed:
        """Check and merge what a start would, and store nothing."""
        try:
            wanted = await self.wanted(body, caller)
            entry = wanted.entry
            if entry is None:
                raise AssertionError("a wish is resolved")
            program = self._programs.of(entry)
            pool = wanted.pool or pool_of(program.playbook)
            told = about(wanted.execution_id or "0", entry, pool)
            workload, warnings = workload_of(wanted, program, told)
            requirements.check(program.playbook, await self._runs.kinds())
        except Unacceptable as refusal:
            if refusal.code not in _REHEARSED:
                raise
            problem = {"code": refusal.code, "detail": refusal.message}
            return Rehearsed(valid=False, problems=refusal.errors or (problem,))
        return Rehearsed(
            valid=True,
            entry_step=program.entry,
            workload=workload,
            problems=tuple({"code": "warning", "detail": warning} for warning in warnings),
        )


def _id(text: str | int | None) -> str | None:
    return None if text is None else parse(text)


def _trace(trace: dict[str, Any] | None) -> dict[str, Any] | None:
    if not trace:
        return None
    parent = trace.get("traceparent")
    if parent is None and trace.get("baggage"):
        return trace  # baggage crosses by itself, too
    if traceparent.parsed(parent) is None:
        raise Unacceptable(
            "`trace.traceparent` is not one of W3C",
            errors=({"pointer": "/trace/traceparent", "code": "validation_failed"},),
        )
    return trace


def must_be_of_services(body: Execute | Rerun, caller: Caller) -> None:
    """Refuse fields that only the platform's own processes may send."""
    if caller.is_gateway or not SERVICES.isdisjoint(caller.roles):
        return
    for name in _OF_SERVICES:
        if getattr(body, name, None):
            raise Forbidden(
                f"`{name}` is for the platform's own processes", code="field_not_allowed"
            )


def answering(wanted: Wanted, request: dict[str, Any], caller: Caller) -> None:
    """Make a wish one that answers a client's request.

    What the gateway has put into the payload is no input of the playbook, and what proves a
    callback is a secret; so is what the gateway names as one.
    """
    _must_be("request_id", request.get("request_id"), _REQUEST_ID)
    client_id, user_id = request.get("client_id"), request.get("user_id")
    if client_id is None or client_id == "":
        request = {name: value for name, value in request.items() if name != "client_id"}
    else:
        _must_be("client_id", client_id, _CLIENT_ID)
    if caller.is_gateway and user_id is not None and user_id != caller.account_id:
        raise Forbidden("the request is that of somebody else", code="field_not_allowed")
    wanted.request = request
    payload = dict(wanted.payload)
    wanted.added |= {name: payload.pop(name) for name in _INJECTED if name in payload}
    wanted.payload = payload
    named = [name for name in request.get("secret_inputs") or () if isinstance(name, str)]
    wanted.places += (CALLBACK, *((name,) for name in named))


def _must_be(name: str, value: object, form: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise Unacceptable(
            f"`request.{name}` is not a name",
            errors=({"pointer": f"/request/{name}", "code": "validation_failed"},),
        )


def _scope(caller: Caller) -> str:
    """Within what the dedup keys of a caller are his own."""
    return of_tenant(caller.tenant_id, f"api:{caller.account}")


def _must_be_labels(labels: Mapping[str, str]) -> None:
    is_fit = len(labels) <= MOST_LABELS and all(
        1 <= len(name) <= MOST_LABEL_NAME and len(value) <= MOST_LABEL
        for name, value in labels.items()
    )
    if not is_fit:
        raise Unacceptable(
            "`labels` are out of bounds",
            hint=f"{MOST_LABELS} labels; names of 1..{MOST_LABEL_NAME} and values of up to "
            f"{MOST_LABEL} characters",
            errors=({"pointer": "/labels", "code": "validation_failed"},),
        )
