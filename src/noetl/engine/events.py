"""The closed union of events: the vocabulary of the product.

Long because it is one table: one class per event, in the order of a run. Decisions are events too;
there is no second vocabulary of actions or statuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Union, cast

import msgspec

from noetl.dsl.views import Reference  # noqa: TC001 - msgspec reads the types of the fields
from noetl.engine.subscriptions import OF_RUNS, TOLD

Json = Any
Values = dict[str, Json]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event_type"):
    """What happened; the facts that every kind of event has are in `Recorded`."""

    status: ClassVar[str] = ""
    node_type: ClassVar[str] = "execution"


class Error(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why something failed."""

    kind: str
    code: str
    message: str
    retryable: bool = False
    step: str | None = None
    task: str | None = None
    index: int | None = None
    details: Values | None = None


# ---------------------------------------------------------------------------- the run


class PlaybookStarted(Event, frozen=True, tag="playbook.started"):
    """A run was accepted."""

    status: ClassVar[str] = "STARTED"
    execution_id: str
    path: str
    version: int
    catalog_id: str
    workload: Values
    pool: str = "shared"
    priority: int = 5
    trigger: Values = {}
    parent_execution_id: str | None = None
    parent_key: str | None = None
    """The `child_key` under which the parent asked for this run."""
    depth: int = 0
    engine_version: int = 1
    is_queued: bool = False
    concurrency_key: str | None = None
    dedup_key: str | None = None
    rerun_of: str | None = None
    forked_from: Values | None = None
    warnings: tuple[str, ...] = ()
    labels: Values = {}
    trace: Values | None = None
    created_by: str = ""
    """The account that asked for the run."""
    tenant_id: str = "default"
    """Whose run it is."""
    request: Values | None = None
    """The client's request that it answers: who is to be told, and by when."""
    subscription: Values | None = None
    """The message that it is started for: `id`, `path`, `message_id`, `downstream`."""
    replay_of: str | None = None
    """The delivery of a sender that it repeats, on somebody's request."""


class StateRestored(Event, frozen=True, tag="state.restored"):
    """A fork begins where another run was: its state, then what the caller changed."""

    status: ClassVar[str] = "STARTED"
    source: Values
    snapshot: Json = None
    reference: Reference | None = None
    overrides: Values = {}


class ExecutionQueued(Event, frozen=True, tag="execution.queued"):
    """The run waits for others of its concurrency key."""

    status: ClassVar[str] = "PENDING"
    node_type: ClassVar[str] = "control"
    concurrency_key: str = ""


class ExecutionAdmitted(Event, frozen=True, tag="execution.admitted"):
    """A queued run may begin."""

    status: ClassVar[str] = "RUNNING"
    node_type: ClassVar[str] = "control"
    concurrency_key: str = ""


class EngineFailed(Event, frozen=True, tag="engine.error"):
    """A defect of the engine; not folded."""

    status: ClassVar[str] = "FAILED"
    node_type: ClassVar[str] = "control"
    message: str


class ExecutionPaused(Event, frozen=True, tag="execution.paused"):
    """Nothing new is issued until the run is resumed."""

    status: ClassVar[str] = "PAUSED"
    node_type: ClassVar[str] = "control"
    by: str = ""
    reason: str = ""


class ExecutionResumed(Event, frozen=True, tag="execution.resumed"):
    """A paused run goes on."""

    status: ClassVar[str] = "RUNNING"
    node_type: ClassVar[str] = "control"
    by: str = ""
    reason: str = ""


class PlaybookCompleted(Event, frozen=True, tag="playbook.completed"):
    """The run ended and no failure is unhandled."""

    status: ClassVar[str] = "COMPLETED"
    result: Json = None
    reference: Reference | None = None
    by: str = ""


class PlaybookFailed(Event, frozen=True, tag="playbook.failed"):
    """The run ended with an unhandled failure."""

    status: ClassVar[str] = "FAILED"
    error: Error
    failed_steps: tuple[str, ...] = ()
    result: Json = None
    reference: Reference | None = None
    by: str = ""


class PlaybookCancelled(Event, frozen=True, tag="playbook.cancelled"):
    """The run was ended from outside."""

    status: ClassVar[str] = "CANCELLED"
    by: str = ""
    reason: str = ""


# ---------------------------------------------------------------------------- steps


class StepEntered(Event, frozen=True, tag="step.enter"):
    """A visit of a step began."""

    status: ClassVar[str] = "ENTERED"
    node_type: ClassVar[str] = "step"
    step: str
    visit: int
    from_: tuple[str, ...] = msgspec.field(default=(), name="from")
    iterations_expected: int | None = None


class StepSkipped(Event, frozen=True, tag="step.skipped"):
    """A step was not entered; its own arcs are followed after a refused admission."""

    status: ClassVar[str] = "SKIPPED"
    node_type: ClassVar[str] = "step"
    step: str
    reason: Literal["admission", "not_taken", "dead_path"]
    routing: Routing | None = None


class ArcTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an arc was or was not taken."""

    step: str
    on: str
    value: Json = None
    taken: bool = False
    error: Error | None = None


class Routing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the arcs of a step were evaluated."""

    mode: str
    arcs: tuple[ArcTaken, ...] = ()


class StepExited(Event, frozen=True, tag="step.exit"):
    """A visit of a step ended."""

    node_type: ClassVar[str] = "step"
    step: str
    visit: int
    outcome: Literal["COMPLETED", "FAILED"]
    routing: Routing
    result: Json = None
    reference: Reference | None = None
    error: Error | None = None
    handled: bool = False
    child_execution_id: str | None = None


class CtxUpdated(Event, frozen=True, tag="ctx.updated"):
    """Durable state of the execution or of a step was written."""

    status: ClassVar[str] = "CONTEXT"
    node_type: ClassVar[str] = "step"
    step: str
    cause: str
    ctx: Values = {}
    of_step: Values = {}
    refs: dict[str, Reference] = {}
    """Values of `ctx` over the inline limit, by path."""


# ---------------------------------------------------------------------------- loops


class LoopStarted(Event, frozen=True, tag="loop.started"):
    """The source of a loop was evaluated."""

    status: ClassVar[str] = "STARTED"
    node_type: ClassVar[str] = "loop"
    step: str
    visit: int
    total: int
    mode: str
    max_in_flight: int
    items: Json = None
    items_ref: tuple[Reference, ...] = ()
    """Chunks of the items, 1,000 each, when they are over the inline limit."""
    frame_spec: Values = {}
    """How a cursor's frames are cut: rows, concurrency, limits, retries."""


class LoopDone(Event, frozen=True, tag="loop.done"):
    """Every iteration that will run has ended."""

    node_type: ClassVar[str] = "loop"
    step: str
    visit: int
    outcome: Literal["COMPLETED", "FAILED"]
    stats: dict[str, int]
    result: Json = None
    reference: Reference | None = None
    errors: tuple[Values, ...] = ()
    error: Error | None = None


class FrameDispatched(Event, frozen=True, tag="frame.dispatched"):
    """A lane of a cursor loop claims rows."""

    status: ClassVar[str] = "STARTED"
    node_type: ClassVar[str] = "loop"
    step: str
    visit: int
    frame: int
    attempt: int = 1


class FrameCommitted(Event, frozen=True, tag="frame.committed"):
    """Every row of a frame has ended."""

    status: ClassVar[str] = "COMPLETED"
    node_type: ClassVar[str] = "loop"
    step: str
    visit: int
    frame: int
    rows: int
    failed: int = 0
    attempt: int = 1


class FrameFailed(Event, frozen=True, tag="frame.failed"):
    """A frame could not be claimed, or rows of it failed; it is tried again while it may."""

    status: ClassVar[str] = "FAILED"
    node_type: ClassVar[str] = "loop"
    step: str
    visit: int
    frame: int
    error: Error
    attempt: int = 1


# ---------------------------------------------------------------------------- commands


class CommandIssued(Event, frozen=True, tag="command.issued"):
    """Work for a worker, with only the values that its templates name."""

    status: ClassVar[str] = "PENDING"
    node_type: ClassVar[str] = "command"
    step: str
    visit: int
    command_key: str
    kind: str
    pool: str | None
    bindings: Values = {}
    refs: dict[str, Reference] = {}
    """Bindings over the inline limit, by path (`steps.fetch`, `ctx.big`, `iter.item`)."""
    index: int | None = None
    frame: int | None = None
    is_claim: bool = False
    """The claim of a cursor: its statement runs, not the step's tools."""
    total: int | None = None
    idempotency_key: str = ""
    idempotent: bool = True
    max_attempts: int = 3
    priority: int = 5
    deadline: str | None = None


class CommandClaimed(Event, frozen=True, tag="command.claimed"):
    """A worker holds the lease of an attempt."""

    status: ClassVar[str] = "CLAIMED"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    worker_id: str
    attempt: int
    lease_until: str = ""


class CommandStarted(Event, frozen=True, tag="command.started"):
    """A worker began an attempt."""

    status: ClassVar[str] = "RUNNING"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    attempt: int


class StepProgress(Event, frozen=True, tag="step.progress"):
    """How far a command is."""

    status: ClassVar[str] = "RUNNING"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    attempt: int
    percent: float
    message: str = ""


class CallDone(Event, frozen=True, tag="call.done"):
    """A worker reports success; of a container, that it has ended, well or not."""

    status: ClassVar[str] = "COMPLETED"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    attempt: int
    outcome: Literal["COMPLETED", "FAILED"] = "COMPLETED"
    error: Error | None = None
    """Why a container failed."""
    origin: str = msgspec.field(default="", name="node_type")
    """`container` when no worker reports, but a container that has ended."""
    result: Json = None
    reference: Reference | None = None
    worker_id: str = ""
    duration_ms: float | None = None
    logs: Values | None = None
    ctx: Values = {}
    iter: Values = {}
    of_step: Values = {}
    ends_loop: bool = False
    tasks: tuple[Values, ...] = ()


class CallError(Event, frozen=True, tag="call.error"):
    """A worker reports failure."""

    status: ClassVar[str] = "FAILED"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    attempt: int
    error: Error
    result: Json = None
    reference: Reference | None = None
    worker_id: str = ""
    duration_ms: float | None = None
    logs: Values | None = None
    tasks: tuple[Values, ...] = ()


class CommandCompleted(Event, frozen=True, tag="command.completed"):
    """Closes a command; its data is in the report, or in what it waited for."""

    status: ClassVar[str] = "COMPLETED"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    iter: Values = {}
    ends_loop: bool = False


class CommandFailed(Event, frozen=True, tag="command.failed"):
    """Closes a command that failed."""

    status: ClassVar[str] = "FAILED"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    error: Error


class CommandCancelled(Event, frozen=True, tag="command.cancelled"):
    """Closes a command that is no longer wanted."""

    status: ClassVar[str] = "CANCELLED"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    reason: str


class CommandLost(Event, frozen=True, tag="command.lost"):
    """The lease of an attempt expired."""

    status: ClassVar[str] = "LOST"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    attempt: int


class CommandLate(Event, frozen=True, tag="command.late"):
    """A report that no open attempt expects; kept, never applied."""

    status: ClassVar[str] = "LATE"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    attempt: int
    worker_id: str = ""
    report: Values = {}


class CommandParked(Event, frozen=True, tag="command.parked"):
    """A command waits for an event and holds no slot."""

    status: ClassVar[str] = "PARKED"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    attempt: int
    reason: Literal["retry", "child", "callback"]
    worker_id: str = ""
    delay_ms: int | None = None
    checkpoint: Json = None
    task: str | None = None
    request: Values | None = None
    """What a parked task of a pipeline waits for: a child to start, or a wait."""
    callback_key: str | None = None
    """Minted by the host when the reason is `callback`: whoever has it may answer."""
    deadline: str | None = None
    error: Error | None = None
    """Why a task is tried again."""


class CommandResumed(Event, frozen=True, tag="command.resumed"):
    """A parked command is work again."""

    status: ClassVar[str] = "PENDING"
    node_type: ClassVar[str] = "command"
    step: str
    command_key: str
    attempt: int
    checkpoint: Json = None
    awaited: Json = None
    """The outcome of the task that waited: `{status, data?, error?}`."""


class ExecutionRequested(Event, frozen=True, tag="execution.requested"):
    """A child is to be started; the host does it, once per `child_key`."""

    status: ClassVar[str] = "REQUESTED"
    node_type: ClassVar[str] = "control"
    step: str
    command_key: str
    child_key: str
    path: str | None = None
    catalog_id: str | None = None
    version: str | None = None
    workload: Values = {}
    refs: dict[str, Reference] = {}
    pool: str | None = None
    is_awaited: bool = True
    return_step: str | None = None
    dedup_key: str | None = None


class ExecutionReturned(Event, frozen=True, tag="execution.returned"):
    """A child ended (or, when nobody waits for it, was started)."""

    node_type: ClassVar[str] = "control"
    child_key: str
    child_execution_id: str | None
    outcome: Literal["COMPLETED", "FAILED", "CANCELLED", "STARTED"]
    result: Json = None
    reference: Reference | None = None
    error: Error | None = None


# ---------------------------------------------------------------------------- timers


class TimerSet(Event, frozen=True, tag="timer.set"):
    """A durable timer."""

    status: ClassVar[str] = "SCHEDULED"
    node_type: ClassVar[str] = "timer"
    timer_key: str
    kind: str
    due_at: str
    step: str = "playbook"


class TimerFired(Event, frozen=True, tag="timer.fired"):
    """A timer's time has come."""

    status: ClassVar[str] = "FIRED"
    node_type: ClassVar[str] = "timer"
    timer_key: str


class TimerCancelled(Event, frozen=True, tag="timer.cancelled"):
    """A timer is no longer needed."""

    status: ClassVar[str] = "CANCELLED"
    node_type: ClassVar[str] = "timer"
    timer_key: str


AnyEvent = (
    PlaybookStarted | StateRestored | ExecutionQueued | ExecutionAdmitted | EngineFailed
    | ExecutionRequested | ExecutionReturned | FrameDispatched | FrameCommitted
    | FrameFailed | ExecutionPaused | ExecutionResumed | PlaybookCompleted | PlaybookFailed
    | PlaybookCancelled | StepEntered | StepSkipped | StepExited | CtxUpdated | LoopStarted
    | LoopDone | CommandIssued | CommandClaimed | CommandStarted | StepProgress | CallDone
    | CallError | CommandCompleted | CommandFailed | CommandCancelled | CommandLost | CommandLate
    | CommandParked | CommandResumed | TimerSet | TimerFired | TimerCancelled
)  # fmt: skip

# ---------------------------------------------------------------------------- subscriptions


class SubscriptionEvent(Event, frozen=True):
    """An event of a subscription, whose facts are free: `context` and `meta` of its row."""

    node_type: ClassVar[str] = "subscription"
    step: ClassVar[str] = "subscription"
    facts: Values = {}
    about: Values = {}


def _of_subscriptions(name: str, status: str, meaning: str) -> type[SubscriptionEvent]:
    made = msgspec.defstruct(
        "".join(part.capitalize() for part in name.replace("_", ".").split(".")),
        [],
        bases=(SubscriptionEvent,),
        namespace={
            "__doc__": meaning,
            "status": status,
            "step": "ingress" if name in OF_RUNS else SubscriptionEvent.step,
        },
        module=__name__,
        frozen=True,
        tag=name,
    )
    return cast("type[SubscriptionEvent]", made)


OF_SUBSCRIPTIONS: dict[str, type[SubscriptionEvent]] = {
    name: _of_subscriptions(name, status, meaning) for name, (status, meaning) in TOLD.items()
}
if TYPE_CHECKING:
    AnySubscriptionEvent = SubscriptionEvent
else:
    AnySubscriptionEvent = Union[tuple(OF_SUBSCRIPTIONS.values())]  # noqa: UP007 - made of a list


KINDS: dict[str, type[Event]] = {
    **{str(cls.__struct_config__.tag): cls for cls in AnyEvent.__args__},
    **OF_SUBSCRIPTIONS,
}
TERMINAL = (PlaybookCompleted, PlaybookFailed, PlaybookCancelled)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the log of its execution."""

    execution_id: str
    seq: int
    event_id: str
    prev_event_id: str | None
    created_at: str
    event: AnyEvent | AnySubscriptionEvent
    parent_event_id: str | None = None
    event_time: str | None = None


# msgspec works out a type on its first use and is not safe when two threads do that at once.
msgspec.json.Decoder(Recorded)
