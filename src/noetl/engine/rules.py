"""Which rule of a task matches an outcome, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.dsl.tasks.errors import RETRYABLE_KINDS
from noetl.dsl.tasks.task import Action
from noetl.dsl.template import compile_condition, is_true, render
from noetl.engine.config import Unrendered, named
from noetl.engine.events import Error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.scope import Scope
    from noetl.dsl.tasks.task import Retry, Rule, Task, TaskPolicy, TaskSpec
    from noetl.dsl.views import Outcome

MOST_TOLD: Final = 500
"""Characters that are kept of the message of an error that is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for a task: its own words, else the defaults of the playbook."""

    policy: TaskPolicy | None
    retry: Retry | None
    timeout: object

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in order."""
        return self.policy.rules if self.policy else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What to do with an outcome, and where that is written; nowhere when no rule matched."""

    action: Action
    place: str = ""


def terms_of(task: Task, defaults: TaskSpec | None) -> Terms:
    """The terms of a task."""
    specs = [spec for spec in (task.spec, defaults) if spec is not None]
    limits = [task.timeout, *(spec.timeout for spec in specs)]
    return Terms(
        policy=next((spec.policy for spec in specs if spec.policy), None),
        retry=next((spec.retry for spec in specs if spec.retry), None),
        timeout=next((limit for limit in limits if limit is not None), None),
    )


def ruling(terms: Terms, outcome: Outcome, scope: Scope) -> Ruling:
    """The first rule that matches; without one the outcome decides."""
    for index, rule in enumerate(terms.rules):
        place = f"rules[{index}]"
        if _holds(rule.when, place, scope):
            return Ruling(action=rule.then, place=place)
    if outcome.error is not None:
        if terms.retry is not None and _is_retried(terms.retry, outcome.error):
            return Ruling(action=_as_action(terms.retry), place="retry")
        return Ruling(action=Action(do="fail"))
    if terms.policy is not None and terms.policy.on_unmatched == "fail":
        message = f"no rule matches the outcome `{outcome.status}`"
        raise Unrendered(message, kind="policy", code="unmatched")
    return Ruling(action=Action())


def completed(outcome: Outcome, attempt: int) -> Outcome:
    """The outcome with every fact that rules decide on; only an error has an error."""
    error: dict[str, Any] | None = None
    if outcome.status == "error":
        given = outcome.error or {}
        kind = given.get("kind", "unknown")
        known = {"kind": kind, "code": kind, "message": "", "retryable": kind in RETRYABLE_KINDS}
        error = {**known, **given}
    return replace(outcome, error=error, meta={**(outcome.meta or {}), "attempt": attempt})


def refused(outcome: Outcome, code: str, message: str) -> dict[str, Any]:
    """The task's own error, or that of the policy when an ok outcome is refused."""
    if outcome.error is not None:
        return dict(outcome.error)
    return {"kind": "policy", "code": code, "message": message}


def told(error: Mapping[str, Any] | None) -> Error | None:
    """What is kept of the error of a task that is tried again: its name and its first words."""
    if error is None:
        return None
    message = str(error["message"])[:MOST_TOLD]
    return Error(kind=error["kind"], code=error["code"], message=message)


def failed(outcome: Outcome, found: Ruling, scope: Scope) -> dict[str, Any]:
    """The error of `fail`, in the words of its author if there are any."""
    error = refused(outcome, "rule_failed", "a rule fails this outcome")
    written = found.action.message
    if written is None:
        return error
    with named(f"{found.place}.message"):
        said = render(written, scope)
    return {**error, "message": said if isinstance(said, str) else _json(said)}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _holds(condition: bool | str | None, place: str, scope: Scope) -> bool:  # noqa: FBT001 - a condition may be a plain boolean
    if not isinstance(condition, str):
        return condition is not False
    with named(f"{place}.when"):
        return is_true(compile_condition(condition).render(scope))


def _is_retried(retry: Retry, error: Mapping[str, Any]) -> bool:
    return error["kind"] in retry.kinds if retry.kinds else bool(error["retryable"])


def _as_action(retry: Retry) -> Action:
    return Action(
        do="retry",
        attempts=retry.attempts,
        backoff=retry.backoff,
        delay=retry.delay,
        max_delay=retry.max_delay,
        jitter=retry.jitter,
    )
