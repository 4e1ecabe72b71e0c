"""The contract of a tool: what it is given, what it returns, and how its failures are told."""

from __future__ import annotations

import asyncio
import errno
import socket
import sqlite3
import ssl
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar, runtime_checkable

import msgspec

from noetl.api.failures import reason_of
from noetl.dsl.diagnostics import Findings
from noetl.dsl.shape import Of
from noetl.dsl.shape.reader import Reader
from noetl.dsl.tasks.errors import ERROR_KINDS, RETRYABLE_KINDS
from noetl.dsl.template import TemplateFailure
from noetl.dsl.views import NeedsObject, Outcome
from noetl.dsl.yaml import ROOT, Document
from noetl.errors import NoetlError
from noetl.telemetry.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.dsl.tasks.shared import Script
    from noetl.dsl.tasks.task import Task
    from noetl.dsl.views import Reference
    from noetl.dsl.yaml import Place

T = TypeVar("T")

MESSAGE_BYTES: Final = 4096
CANCEL_S: Final = 5.0
"""So long a tool may take to stop what it began; then nobody waits for that any more."""
_CUT: Final = " …"
_OF_ITSELF: Final = "the message"
_SERVER: Final = 500
_REMEDIES: Final = {
    401: "give the task `auth`, or mend its credential (`noetl credentials rotate`)",
    403: "the credential of `auth` may not do this",
    404: "mend the address",
    429: "let the step retry, or ask less often",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the worker must know of a kind before it runs one."""

    side_effects: bool = True
    credentialed: bool = False
    parks: bool = False
    settles: bool = False
    """Run once more with what it waited for (`ctx.awaited`), which is else its outcome."""
    extra: str = ""


class Plain(dict[str, Any]):
    """Data that is JSON already: nobody has to look through its many values for what is not."""

    def __init__(self, data: Mapping[str, Any], once: list[Any]) -> None:
        """Take the data, and what it is made of without repetitions."""
        super().__init__(data)
        self.once = once


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """The task waits for something outside and gives its slot back."""

    reason: str
    request: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """Where the client of a run waits for word of it, and what proves that the run sends it."""

    url: str
    token: Callable[[], Awaitable[str | None]] = field(repr=False)


async def _nothing_found(_name: str) -> tuple[bool, Any]:
    return False, None


def _ignore_line(_stream: str, _level: str, _text: str) -> None:
    """Nobody listens."""


def _ignore_progress(_percent: float, _message: str) -> None:
    """Nobody listens."""


def _ignore_state(_state: Any) -> None:  # noqa: ANN401 - the tool's own JSON
    """Nobody keeps it: the next try begins anew."""


def _ignore_work(_work: Callable[[], Awaitable[None]]) -> None:
    """Nobody reports: what was to follow does not."""


@dataclass(slots=True, kw_only=True)
class ToolContext:
    """What one run of a task may know and use; every sink passes the redactor."""

    execution_id: str
    step: str
    command_id: str
    idempotency_key: str
    task: str = ""
    attempt: int = 1
    try_number: int = 1  # of the task's rules: the same for every attempt of one try
    deadline: float | None = None  # in the time of the event loop
    timeout_s: float | None = None  # what the author wrote, for kinds that park
    domain: str = ""  # tenant, catalog path and requirements: who may share an interpreter
    input: Mapping[str, Any] = field(default_factory=dict)
    scope: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    pool: str = ""  # of the worker
    worker_id: str = ""
    ids: Any = None  # makes ids that no other process makes
    trace: Mapping[str, Any] | None = None  # where in its trace the task is, for those it asks
    redactor: Redactor = field(default_factory=Redactor)
    fetch: Callable[[str], Awaitable[tuple[bool, Any]]] = _nothing_found
    load: Callable[[Reference], Awaitable[None]] | None = None  # makes it readable in the scope
    load_script: Callable[[Script], Awaitable[str]] | None = None
    secrets: Callable[[str], Awaitable[Mapping[str, Any]]] | None = None
    callback: Callback | None = None
    name_secret: Callable[[str, Mapping[str, Any]], Awaitable[None]] | None = None
    results: Any = None
    client: Any = None  # the worker's way to the server, for what ends after the task has parked
    blobs: Any = None
    stores: Any = None  # object stores by address: `tools.objects.store.Stores`
    http: Any = None
    on_log: Callable[[str, str, str], None] = _ignore_line
    on_progress: Callable[[float, str], None] = _ignore_progress
    resume: Any = None  # what an earlier try of this task kept
    awaited: Outcome | None = None  # what the task waited for, for kinds that settle
    on_keep: Callable[[Any], None] = _ignore_state
    on_afterwards: Callable[[Callable[[], Awaitable[None]]], None] = _ignore_work
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def log(self, text: str, *, level: str = "info", stream: str = "log") -> None:
        """Write one line to the log of the command."""
        clean = self.redactor.redact(text)
        if clean != text:
            self.redactor.covered["log"] += 1
        self.on_log(stream, level, clean)

    def progress(self, percent: float, message: str = "") -> None:
        """Tell how far the task is, from 0 to 100."""
        bounded = min(100.0, max(0.0, percent)) if percent == percent else 0.0  # noqa: PLR0124 - NaN
        self.on_progress(bounded, self.redactor.redact(message)[:500])

    async def touched(self, make: Callable[[], T]) -> T:
        """What `make` renders of the scope; a value that lies elsewhere is fetched before."""
        while True:
            try:
                return make()
            except NeedsObject as need:
                if self.load is None:
                    raise
                reference = need.reference
            await self.load(reference)

    def after_report(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have something done when the server has stored that the command went well.

        It is not done for a report that was refused, came late or never arrived.
        """
        self.on_afterwards(work)

    def keep(self, state: Any) -> None:  # noqa: ANN401 - the tool's own JSON
        """Keep where the task is, for its next try; a state with a secret in it is not kept."""
        if self.on_keep is not _ignore_state and self.redactor.redact_value(state) == state:
            self.on_keep(state)


@runtime_checkable
class Tool(Protocol):
    """One kind of task."""

    kind: ClassVar[str]
    Config: ClassVar[type[Task]]
    traits: ClassVar[Traits]

    async def run(self, config: Any, ctx: ToolContext) -> Outcome | Parked:  # noqa: ANN401 - of its Config
        """Do the work; a raised exception is a failure (see `classify`)."""

    async def cancel(self, ctx: ToolContext) -> None:
        """Stop what cancelling the task alone would not stop."""


class ToolError(NoetlError):
    """A task failed; the kind decides whether another try is worth it."""

    def __init__(  # noqa: PLR0913 - the facts of one error
        self,
        kind: str,
        code: str,
        message: str,
        *,
        retryable: bool | None = None,
        status_code: int | None = None,
        retry_after_s: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        if kind not in ERROR_KINDS:
            raise ValueError(f"{kind} is not a kind of error")
        super().__init__(message, code=code)
        self.kind = kind
        self.is_retryable = kind in RETRYABLE_KINDS if retryable is None else retryable
        self.status_code = status_code
        self.retry_after_s = retry_after_s
        self.details = details

    def as_map(self) -> dict[str, Any]:
        """The error as rules, events and pages show it."""
        return {
            "kind": self.kind,
            "code": self.code,
            "message": bounded(self.message),
            "retryable": self.is_retryable,
            "status_code": self.status_code,
            "retry_after_s": self.retry_after_s,
            "details": None if self.details is None else dict(self.details),
        }


def bounded(text: str, most: int = MESSAGE_BYTES) -> str:
    """The text cut to a number of bytes."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= most:
        return text
    return raw[: most - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def remedied(error: ToolError) -> ToolError:
    """The error with the remedy of its code; one that points at the message adds nothing to it."""
    reason = reason_of(error.code)
    if reason is not None and _OF_ITSELF not in reason.remedy.lower():
        error.message = f"{error.message}: {reason.remedy}"
    return error


def remedy_of(status: int) -> str:
    """What an answer that is not ok asks for."""
    if status >= _SERVER:
        return "let the step retry; look after the service if it lasts"
    return _REMEDIES.get(status, "mend the request")


def missing_extra(kind: str, extra: str) -> ToolError:
    """The error of a kind whose packages are not installed."""
    message = f'kind {kind} needs the extra: pip install "noetl[{extra}]"'
    return ToolError("config", "missing_extra", message)


# The first row whose class fits; more special classes stand first.
_ORIGINS: Final[tuple[tuple[type[BaseException], str, str, bool | None], ...]] = (
    (asyncio.CancelledError, "cancelled", "cancelled", None),
    (TimeoutError, "timeout", "tool_timeout", None),
    (ssl.SSLError, "connection", "TLS_ERROR", False),
    (socket.gaierror, "connection", "DNS_ERROR", None),
    (ConnectionRefusedError, "connection", "CONN_REFUSED", None),
    (ConnectionError, "connection", "CONN_RESET", None),
    (PermissionError, "storage_access", "permission_denied", None),
    (MemoryError, "limit", "memory_limit", None),
    (msgspec.ValidationError, "schema", "invalid_shape", None),
    (msgspec.DecodeError, "parse", "invalid_json", None),
    (UnicodeDecodeError, "parse", "invalid_text", None),
    (sqlite3.IntegrityError, "db_constraint", "SQLITE_CONSTRAINT", None),
    (sqlite3.Error, "db_error", "SQLITE_ERROR", None),
)
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


def classify(fault: BaseException) -> dict[str, Any]:
    """The error map of any exception that left a tool."""
    return _as_error(fault).as_map()


def _as_error(fault: BaseException) -> ToolError:
    if isinstance(fault, ToolError):
        return fault
    said = str(fault) or type(fault).__name__
    if isinstance(fault, TemplateFailure):
        return ToolError("template", fault.code, said)
    if isinstance(fault, OSError) and fault.errno in _FULL:
        return ToolError("storage_quota", "disk_full", said)
    for cls, kind, code, retryable in _ORIGINS:
        if isinstance(fault, cls):
            return ToolError(kind, code, said, retryable=retryable)
    if isinstance(fault, NoetlError):
        return ToolError("internal", fault.code, said, retryable=fault.retryable)
    return ToolError("internal", "internal", f"{type(fault).__name__}: {said}")


class _Rendered(Reader):
    """Reads a configuration whose templates were rendered: its texts are data."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        super().__init__(Document("", root, Findings()))

    def text(self, text: str, place: Place, role: str) -> bool:
        """No text is a template any more."""
        del text, place, role
        return False

    def condition(self, text: str, place: Place, role: str) -> None:
        """Conditions are the pipeline's affair."""

    def walk(self, value: object, place: Place, role: str) -> None:
        """No text is a template any more."""


def read_config(cls: type[Task], config: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an instance of cls
    """The rendered configuration as its model; faults name their fields."""
    reader = _Rendered(config)
    made = Of(cls).read(dict(config), ROOT, reader)
    faults = [
        {"field": item.pointer, "message": item.message}
        for item in reader.findings.sorted()
        if item.severity == "error"
    ]
    if faults:
        told = "; ".join(f"{item['field'] or '/'}: {item['message']}" for item in faults)
        raise ToolError("config", "invalid_config", told, details={"fields": faults})
    return made


async def run_tool(tool: Tool, config: Mapping[str, Any], ctx: ToolContext) -> Outcome | Parked:
    """The border of every tool: check, run within the deadline, translate, redact."""
    try:
        model = read_config(tool.Config, config)
        async with asyncio.timeout_at(ctx.deadline):
            outcome = await tool.run(model, ctx)
    except asyncio.CancelledError:
        await _stopped(tool, ctx)
        raise
    except Exception as fault:  # noqa: BLE001 - the border: any failure of a tool is an outcome
        if isinstance(fault, TimeoutError):
            await _stopped(tool, ctx)
            if not str(fault):
                fault = TimeoutError("the tool did not end in time")
        outcome = failed(fault)
    return outcome if isinstance(outcome, Parked) else redacted(outcome, ctx.redactor)


async def _stopped(tool: Tool, ctx: ToolContext) -> None:
    """Have a tool stop what it began; one that cannot changes nothing of how the task ended."""
    try:
        await asyncio.wait_for(tool.cancel(ctx), CANCEL_S)
    except Exception as fault:  # noqa: BLE001 - the border, as above
        told = str(fault) or type(fault).__name__
        ctx.log(f"what the task began could not be stopped: {told}", level="warning")


def failed(fault: BaseException) -> Outcome:
    """The outcome of an exception."""
    error = classify(fault)
    details = error["details"] or {}
    py = pg = None
    if "traceback" in details:
        py = {"exception": details.get("exception"), "traceback": details["traceback"]}
    if "sqlstate" in details:
        pg = {"code": error["code"], "sqlstate": details["sqlstate"]}
    return Outcome(status="error", error=error, py=py, pg=pg)


def _clean_data(data: Any, redactor: Redactor) -> Any:  # noqa: ANN401 - data of a tool
    if isinstance(data, Plain) and redactor.redact_value(data.once) is data.once:
        return data
    return redactor.redact_value(data)


def redacted(outcome: Outcome, redactor: Redactor) -> Outcome:
    """The outcome without secrets."""
    clean = redactor.redact_value
    data, error = _clean_data(outcome.data, redactor), clean(outcome.error)
    if data is not outcome.data and data != outcome.data:
        redactor.covered["result"] += 1
    if error is not outcome.error and error != outcome.error:
        redactor.covered["error"] += 1
    return replace(
        outcome,
        data=data,
        error=error,
        http=clean(outcome.http),
        pg=clean(outcome.pg),
        py=clean(outcome.py),
    )
