"""Compares what came of a case with what its author expects: one sentence per difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl.dsl.documents.matching import matches
from noetl.dsl.template import TemplateFailure, compile_condition, is_true

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from noetl.dsl.documents.testcase import Case, Expect, ExpectedError
    from noetl.local.steps import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a case."""

    run: Run
    ctx: Mapping[str, Any]
    calls: Mapping[str, int]
    unmocked: Mapping[str, str]
    """The kinds of tools that were called and not mocked, by step."""
    scope: Mapping[str, Any]
    """What the conditions of `assert` see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a case came to."""

    name: str
    line: int
    faults: tuple[str, ...]
    duration_ms: float = 0.0
    run: Run | None = None
    events_file: Path | None = None
    """Kept when the case failed."""

    @property
    def is_passed(self) -> bool:
        """Whether everything is as expected."""
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return {
            "name": self.name,
            "line": self.line,
            "passed": self.is_passed,
            "duration_ms": round(self.duration_ms),
            "status": None if self.run is None else self.run.status,
            "faults": list(self.faults),
            "events_file": None if self.events_file is None else str(self.events_file),
        }


def faults_of(case: Case, played: Played) -> tuple[str, ...]:
    """Every difference, in the order of the keys of `expect`."""
    expect = case.expect
    return (
        *_unmocked(played),
        *_status(expect, played.run),
        *_steps(expect, played),
        *_values("ctx", expect.ctx, dict(played.ctx), exact=expect.exact and bool(expect.ctx)),
        *_values("result", expect.result, played.run.result, exact=expect.exact),
        *_error(expect.error, played.run),
        *_conditions(expect, played),
        *_size(expect, played.run),
    )


def _unmocked(played: Played) -> Iterator[str]:
    for step, kind in played.unmocked.items():
        remedy = f"mock the step, or add `{kind}` to `allow`"
        yield f"unmocked_tool: step `{step}` calls `{kind}`, which is not mocked ({remedy})"


def _status(expect: Expect, run: Run) -> Iterator[str]:
    wanted = expect.status or ("COMPLETED" if expect.error is None else "FAILED")
    if run.status == wanted:
        return
    error = run.error or {}
    step = f"step `{error['step']}`: " if error.get("step") else ""
    why = f" ({step}{error['kind']}: {error['message']})" if error else ""
    yield f"status: expected {wanted}, found {run.status}{why}"


def _steps(expect: Expect, played: Played) -> Iterator[str]:
    for name, wanted in expect.steps.items():
        step = played.run.steps.get(name)
        found = "SKIPPED" if step is None else step.status
        if found != wanted:
            yield f"steps.{name}: expected {wanted}, found {found}"
    for name, number in expect.calls.items():
        if (called := calls_of(name, played)) != number:
            yield f"calls.{name}: expected {number}, found {called}"


def calls_of(name: str, played: Played) -> int:
    """How often the tools of a step were called; what the engine runs itself counts too."""
    step = played.run.steps.get(name)
    by_engine = 0 if step is None else step.issued or (step.total or step.runs)
    return played.calls.get(name, by_engine or 0)


def _values(name: str, expected: object, actual: object, *, exact: bool) -> Iterator[str]:
    for fault in matches(expected, actual, exact=exact):
        place, _, rest = fault.partition(":")
        yield f"{name}{'' if place == '(root)' else place}:{rest}"


def _error(expected: ExpectedError | None, run: Run) -> Iterator[str]:
    if expected is None:
        return
    found = run.error or {}
    for key in ("kind", "step"):
        wanted = getattr(expected, key)
        if wanted is not None and found.get(key) != wanted:
            yield f"error.{key}: expected {wanted}, found {found.get(key, 'no error')}"
    if expected.message_matches is not None:
        pattern = {"$regex": expected.message_matches}
        yield from _values("error.message", pattern, found.get("message"), exact=False)


def _conditions(expect: Expect, played: Played) -> Iterator[str]:
    for condition in expect.assert_:
        if isinstance(condition, bool):
            if not condition:
                yield "assert: false never holds"
            continue
        try:
            holds = is_true(compile_condition(condition).render(played.scope))
        except TemplateFailure as fault:
            yield f"assert: `{condition}` cannot be evaluated: {fault.message}"
            continue
        if not holds:
            yield f"assert: `{condition}` does not hold"


def _size(expect: Expect, run: Run) -> Iterator[str]:
    if expect.max_events is not None and run.events > expect.max_events:
        yield f"max_events: expected at most {expect.max_events}, found {run.events}"
