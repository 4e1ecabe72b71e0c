"""The state of one execution, and the fold that makes it from events.

`fold` is total: any event in any order changes the state or leaves it alone, and never raises. It
puts what became possible on the agenda; a decided event takes its cause off again, so that a replay
ends with the same agenda as the run did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.dsl.views import Reference, StepResult
    from noetl.engine.events import CallDone, CallError, CommandIssued, Error
    from noetl.engine.program import Program

Item = tuple[str, ...] | tuple[Any, ...]
TAKEN, DEAD, BESIDE = "taken", "dead", "beside"


@dataclass(slots=True, kw_only=True)
class Command:
    """An open command."""

    id: str
    issued: CommandIssued
    attempt: int = 1
    status: str = "PENDING"
    lost: int = 0
    worker_id: str | None = None
    lease_until: str | None = None
    started_at: str | None = None
    report: CallDone | CallError | None = None
    checkpoint: Any = None
    parked: str | None = None
    delay_ms: int | None = None
    request: dict[str, Any] | None = None
    callback_key: str | None = None
    error: Error | None = None
    """Why it is tried again, while it waits for that."""
    awaited: dict[str, Any] | None = None
    awaited_ref: Reference | None = None
    children: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """What the children of this attempt returned, in their order; None while one is open."""

    @property
    def key(self) -> str:
        """Its deterministic name."""
        return self.issued.command_key

    @property
    def step(self) -> str:
        """The step that it belongs to."""
        return self.issued.step

    @property
    def visit(self) -> int:
        """The visit of the step."""
        return self.issued.visit

    @property
    def index(self) -> int | None:
        """The iteration, or the row of a frame."""
        return self.issued.index

    @property
    def frame(self) -> int | None:
        """The frame of a cursor loop."""
        return self.issued.frame

    @property
    def pool(self) -> str | None:
        """The pool whose workers may claim it; none when the engine runs it."""
        return self.issued.pool

    @property
    def kind(self) -> str:
        """The kind of its first tool."""
        return self.issued.kind

    @property
    def priority(self) -> int:
        """Its place in the hand-out."""
        return self.issued.priority

    @property
    def idempotent(self) -> bool:
        """Whether it may run again after it had started."""
        return self.issued.idempotent

    @property
    def max_attempts(self) -> int:
        """How often its worker may be lost."""
        return self.issued.max_attempts


@dataclass(slots=True, kw_only=True)
class FrameState:
    """A frame of a cursor loop: claimed rows, and how far their bodies are."""

    attempt: int = 1
    is_claimed: bool = False
    rows: Any = None
    reference: Reference | None = None
    total: int = 0
    waiting: list[int] = field(default_factory=list)
    """Rows that are to be issued in this attempt."""
    open: int = 0
    failed: list[int] = field(default_factory=list)
    error: Error | None = None


@dataclass(slots=True, kw_only=True)
class LoopState:
    """A live loop: what is issued, what has ended, and the results by index."""

    total: int
    mode: str
    max_in_flight: int
    items: Any = None
    items_ref: tuple[Reference, ...] = ()
    next_index: int = 0
    again: list[int] = field(default_factory=list)
    """Iterations that a fork issues anew."""
    open: int = 0
    done: int = 0
    failed: int = 0
    results: list[Any] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    first_error: Error | None = None
    is_ending: bool = False
    is_broken: bool = False
    """No more rows can be claimed; whatever its rows gave, the step has failed."""
    frame_spec: dict[str, Any] = field(default_factory=dict)
    frames: dict[int, FrameState] = field(default_factory=dict)
    next_frame: int = 0
    lanes_closed: int = 0
    rows: int = 0


@dataclass(slots=True, kw_only=True)
class StepState:
    """One step over all its visits."""

    visit: int = 0
    is_live: bool = False
    status: str | None = None
    came_from: tuple[str, ...] = ()
    queued_visits: int = 0
    arrived: int = 0
    """Tokens on the forward arcs that lead here."""
    result: StepResult | None = None
    writes: dict[str, Any] = field(default_factory=dict)
    iter: dict[str, Any] = field(default_factory=dict)
    loop: LoopState | None = None
    outcome: Any = None
    reference: Reference | None = None
    child_execution_id: str | None = None
    error: Error | None = None
    is_handled: bool = False


@dataclass(slots=True, kw_only=True)
class Timer:
    """A timer that has not fired."""

    kind: str
    due_at: str
    target: str


@dataclass(slots=True, kw_only=True)
class Child:
    """A run that this one asked for and that has not returned."""

    command_key: str
    is_awaited: bool


@dataclass(slots=True, kw_only=True)
class State:
    """Everything that decisions are made from."""

    program: Program
    execution_id: str = ""
    path: str = ""
    version: int = 0
    catalog_id: str = ""
    pool: str = "shared"
    priority: int = 5
    parent_execution_id: str | None = None
    parent_key: str | None = None
    depth: int = 0
    engine_version: int = 1
    concurrency_key: str | None = None
    dedup_key: str | None = None
    rerun_of: str | None = None
    forked_from: dict[str, Any] | None = None
    labels: dict[str, Any] = field(default_factory=dict)
    trace: dict[str, Any] | None = None
    started_at: str = ""
    ended_at: str | None = None
    now: str = ""
    seq: int = 0
    last_event_id: str | None = None
    workload: dict[str, Any] = field(default_factory=dict)
    ctx: dict[str, Any] = field(default_factory=dict)
    has_refs: bool = False
    """Whether a value of `ctx` lies elsewhere."""
    steps: dict[str, StepState] = field(default_factory=dict)
    tokens: dict[int, str] = field(default_factory=dict)
    open_in_cycle: dict[str, int] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    command_ids: dict[str, str] = field(default_factory=dict)
    children: dict[str, Child] = field(default_factory=dict)
    timers: dict[str, Timer] = field(default_factory=dict)
    agenda: dict[Item, None] = field(default_factory=dict)
    live_visits: int = 0
    visits: int = 0
    is_started: bool = False
    is_queued: bool = False
    is_paused: bool = False
    paused_at: str | None = None
    extending: str | None = None
    """When the last pause began by which limits were extended."""
    is_failing: bool = False
    failure: Error | None = None
    failed_steps: list[str] = field(default_factory=list)
    terminal: str | None = None
    result: Any = None
    reference: Reference | None = None
    final_entered: bool = False
    last_terminal_step: str | None = None
    last_step: str | None = None

    def step(self, name: str) -> StepState:
        """The state of a step, made on first use."""
        found = self.steps.get(name)
        if found is None:
            found = self.steps[name] = StepState()
        return found

    def push(self, *item: Any) -> None:  # noqa: ANN401 - the parts of an agenda item
        """Put something that became possible on the agenda."""
        self.agenda[item] = None

    def take(self, *item: Any) -> None:  # noqa: ANN401 - the parts of an agenda item
        """Take something off the agenda that was decided."""
        self.agenda.pop(item, None)
