"""Rules over calls: how long they may take, and whether they may be made twice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from noetl.dsl.lint.subject import Finding, Subject, at_key, at_value, entry, is_written
from noetl.dsl.shape.reader import value_at
from noetl.dsl.tasks import NETWORK_KINDS, Duckdb, Mcp
from noetl.dsl.tasks.data import Sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.playbook.step import Step
    from noetl.dsl.tasks.task import Action, Retry, Rule, Task, TaskSpec

_NOT_IDEMPOTENT = frozenset({"shell", "script", "container", "mcp", "agent"})
_KEY = "idempotency_key"
# what of an SQL text is no keyword; each stretch ends at the end of the text at the latest
_NOT_SQL = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|\{[%#].*?(?:[%#]\}|\Z)"
    r"|(?P<operand>'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|\{\{.*?(?:\}\}|\Z))",
    re.DOTALL,
)
_WRITE = re.compile(r"(?:^|[()]|\bBEGIN\b)\s*(INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)
_WRITTEN_ONCE = re.compile(
    r"\bON\s+CONFLICT\b|\bINSERT\s+(?:OVERWRITE|OR\s+REPLACE|OR\s+IGNORE)\b", re.IGNORECASE
)
_ATTACH = re.compile(r"\bATTACH\b", re.IGNORECASE)


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
        or is_written(task, "statement_timeout")
    )


def unsafe_retry(subject: Subject) -> Iterator[Finding]:
    """A retry of a call that may act twice (DSL206)."""
    defaults = _defaults(subject)
    for step in subject.playbook.workflow:
        for task in step.tools:
            if _acts(task) and not _is_safe_twice(task, step, defaults):
                yield from _retries(task, defaults)


def _retries(task: Task, defaults: TaskSpec | None) -> Iterator[Finding]:
    """Where a call is said to be tried again: by its own rules and `retry`, or by the defaults."""
    message = f"`{task.kind}` is tried again without an idempotency key"
    for rule in _retry_rules(task.spec):
        yield at_value(message, entry(rule.then, "do"))
    retry = task.spec.retry if task.spec else None
    if task.spec and retry and _is_repeated(retry):
        yield at_key(message, entry(task.spec, "retry"))
    if defaults is None:
        return
    by_default = retry is None and defaults.retry is not None and _is_repeated(defaults.retry)
    has_rules = task.spec is not None and task.spec.policy is not None
    if by_default or (not has_rules and _retry_rules(defaults)):
        yield at_value(message, entry(task, "kind"))


def _retry_rules(spec: TaskSpec | None) -> list[Rule]:
    rules = spec.policy.rules if spec and spec.policy else ()
    return [rule for rule in rules if rule.then.do == "retry" and _is_repeated(rule.then)]


def _is_repeated(retry: Action | Retry) -> bool:
    return retry.attempts != 1


def _acts(task: Task) -> bool:
    """Whether a second call may change something again; a call with our key does not."""
    if isinstance(task, Sql):
        command = [task.command] if isinstance(task.command, str) else task.command or ()
        texts = (*command, *task.commands)
        return any(_writes(text) for text in texts) and not _is_private(task, texts)
    return task.kind in _NOT_IDEMPOTENT


def _writes(text: str) -> bool:
    """Whether an SQL text changes rows in a way that a repeat would do again."""
    bare = _NOT_SQL.sub(lambda found: " _ " if found["operand"] else " ", text)
    for statement in bare.split(";"):
        found = {word.upper() for word in _WRITE.findall(statement)}
        if _WRITTEN_ONCE.search(statement):
            found.discard("INSERT")
        if found:
            return True
    return False


def _is_private(task: Sql, texts: tuple[str, ...]) -> bool:
    """Whether a DuckDB lives in memory alone: it is a new one for every try."""
    return (
        type(task) is Duckdb
        and task.database == ":memory:"
        and not (task.attach or task.auth)
        and not any(_ATTACH.search(text) for text in texts)
    )


def _is_safe_twice(task: Task, step: Step, defaults: TaskSpec | None) -> bool:
    """Whether the call only reads, is said to be idempotent, or passes a key on."""
    if isinstance(task, Mcp) and task.method != "tools/call":
        return True
    for spec in (task.spec, step.spec, defaults):
        if spec is not None and is_written(spec, "idempotent"):
            return spec.idempotent
    return _mentions_key(value_at(task.place)) or _mentions_key(dict(step.input))


def _mentions_key(value: object) -> bool:
    if isinstance(value, dict):
        return any(_mentions_key(item) for entry in value.items() for item in entry)
    if isinstance(value, list):
        return any(_mentions_key(item) for item in value)
    return isinstance(value, str) and _KEY in value.lower().replace("-", "_")
