"""The state of one execution, and the fold that makes it from events.

`fold` is total: any event in any order changes the state or leaves it alone, and never raises. It
puts what became possible on the agenda; a decided event takes its cause off again, so that a replay
ends with the same agenda as the run did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetl.dsl.views import StepResult
    from noetl.engine.events import CallDone, CallError, Error
    from noetl.engine.program import Program

Item = tuple[str, ...] | tuple[Any, ...]
TAKEN, DEAD, BESIDE = "taken", "dead", "beside"


@dataclass(slots=True, kw_only=True)
class Command:
    """An open command."""

    key: str
    step: str
    visit: int
    index: int | None = None
    attempt: int = 1
    status: str = "PENDING"
    lost: int = 0
    idempotent: bool = True
    max_attempts: int = 3
    worker_id: str | None = None
    report: CallDone | CallError | None = None
    checkpoint: Any = None
    parked: str | None = None
    delay_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class LoopState:
    """A live loop: what is issued, what has ended, and the results by index."""

    total: int
    mode: str
    max_in_flight: int
    items: Any
    next_index: int = 0
    open: int = 0
    done: int = 0
    failed: int = 0
    results: list[Any] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    first_error: Error | None = None
    is_ending: bool = False


@dataclass(slots=True, kw_only=True)
class StepState:
    """One step over all its visits."""

    visit: int = 0
    is_live: bool = False
    status: str | None = None
    came_from: tuple[str, ...] = ()
    queued_visits: int = 0
    result: StepResult | None = None
    writes: dict[str, Any] = field(default_factory=dict)
    iter: dict[str, Any] = field(default_factory=dict)
    loop: LoopState | None = None
    outcome: Any = None
    error: Error | None = None


@dataclass(slots=True, kw_only=True)
class Timer:
    """A timer that has not fired."""

    kind: str
    due_at: str
    target: str


@dataclass(slots=True, kw_only=True)
class State:
    """Everything that decisions are made from."""

    program: Program
    execution_id: str = ""
    path: str = ""
    version: int = 0
    catalog_id: str = ""
    pool: str = "shared"
    parent_execution_id: str | None = None
    started_at: str = ""
    now: str = ""
    seq: int = 0
    last_event_id: str | None = None
    workload: dict[str, Any] = field(default_factory=dict)
    ctx: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, StepState] = field(default_factory=dict)
    tokens: dict[int, str] = field(default_factory=dict)
    open_in_cycle: dict[int, int] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    timers: dict[str, Timer] = field(default_factory=dict)
    agenda: dict[Item, None] = field(default_factory=dict)
    live_visits: int = 0
    visits: int = 0
    is_started: bool = False
    is_paused: bool = False
    is_failing: bool = False
    failure: Error | None = None
    failed_steps: list[str] = field(default_factory=list)
    terminal: str | None = None
    result: Any = None
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
