"""Rules over calls: how long they may take, and whether they may be made twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.lint.subject import Finding, Subject, at_key, at_value, entry, is_written
from noetl.dsl.shape.reader import value_at
from noetl.dsl.tasks import NETWORK_KINDS, Mcp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.playbook.step import Step
    from noetl.dsl.tasks.task import Action, Retry, Task, TaskSpec

_NOT_IDEMPOTENT = frozenset({"shell", "script", "container", "mcp", "agent"})
_KEY = "idempotency_key"


def _defaults(subject: Subject) -> TaskSpec | None:
    """The `spec` that every task of the playbook has."""
    executor = subject.playbook.executor
    policy = executor.spec.policy if executor and executor.spec else None
    return policy.defaults if policy else None


def no_timeout(subject: Subject) -> Iterator[Finding]:
    """A network tool without a timeout (DSL205)."""
    defaults = _defaults(subject)
    if defaults is not None and defaults.timeout is not None:
        return
    for step in subject.playbook.workflow:
        for task in step.tools:
            if task.kind in NETWORK_KINDS and not _is_bounded(task, step):
                yield at_value(f"the `{task.kind}` call has no `timeout`", entry(task, "kind"))


def _is_bounded(task: Task, step: Step) -> bool:
    """Whether the author limits the call, the visit, or the wait of the tool itself."""
    policy = step.spec.policy if step.spec else None
    lifecycle = policy.lifecycle if policy else None
    return (
        task.timeout is not None
        or (step.spec is not None and step.spec.timeout is not None)
        or (lifecycle is not None and lifecycle.timeout_s is not None)
        or is_written(task, "timeout_ms")
    )


def unsafe_retry(subject: Subject) -> Iterator[Finding]:
    """A retry of a call that may act twice (DSL206)."""
    defaults = _defaults(subject)
    default = defaults.retry if defaults else None
    for step in subject.playbook.workflow:
        for task in step.tools:
            if task.kind not in _NOT_IDEMPOTENT or _is_safe_twice(task, step):
                continue
            message = f"`{task.kind}` is tried again without an idempotency key"
            for rule in task.rules:
                if rule.then.do == "retry" and _is_repeated(rule.then):
                    yield at_value(message, entry(rule.then, "do"))
            retry = task.spec.retry if task.spec else None
            if task.spec and retry and _is_repeated(retry):
                yield at_key(message, entry(task.spec, "retry"))
            elif retry is None and default is not None and _is_repeated(default):
                yield at_value(message, entry(task, "kind"))


def _is_repeated(retry: Action | Retry) -> bool:
    return retry.attempts != 1


def _is_safe_twice(task: Task, step: Step) -> bool:
    """Whether the call only reads, is said to be idempotent, or passes a key on."""
    if isinstance(task, Mcp) and task.method != "tools/call":
        return True
    for spec in (task.spec, step.spec):
        if spec is not None and is_written(spec, "idempotent"):
            return spec.idempotent
    return _mentions_key(value_at(task.place)) or _mentions_key(dict(step.input))


def _mentions_key(value: object) -> bool:
    if isinstance(value, dict):
        return any(_mentions_key(item) for entry in value.items() for item in entry)
    if isinstance(value, list):
        return any(_mentions_key(item) for item in value)
    return isinstance(value, str) and _KEY in value.lower().replace("-", "_")
