"""Lines of the generated pages about events and errors of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.codes import PROBLEMS
from noetl.api.failures import PATTERNS, PROCESSES, RUNS
from noetl.cli.failures import FAILURES
from noetl.dsl.tasks.errors import ERROR_KINDS, RETRYABLE_KINDS
from noetl.engine.vocabulary import vocabulary

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from noetl.api.failures import Reason

_EARLIER = FAILURES.keys() | PROBLEMS.keys()
_WHO = {
    "call": "a call through the server",
    "report": "a report of a worker, a child or the timer service",
    "engine": "the engine",
}


def event_lines() -> Iterator[str]:
    """Every event: what it means, who makes it, where its facts stand in a row."""
    yield "Everything that happens in a run is one of these events, in one order (`seq`)."
    yield "A row has `execution_id`, `seq`, `event_id`, `prev_event_id`, `event_type`, `step`,"
    yield "`node_type`, `status`, `created_at`, and the facts below where they are named."
    yield "How a run moves through them: [one engine](../explanation/one-engine.md)."
    yield ""
    yield "| event | made by | status |"
    yield "|---|---|---|"
    for event in vocabulary():
        anchor = event.name.replace(".", "")
        yield f"| [`{event.name}`](#{anchor}) | {event.producer} | {event.status} |"
    for event in vocabulary():
        yield ""
        yield f"## {event.name}"
        yield ""
        yield f"{event.meaning}"
        yield f"Made by {_WHO[event.producer]}; `node_type` is `{event.node_type}`."
        yield ""
        yield "| fact | in the row | type |"
        yield "|---|---|---|"
        for field in event.fields:
            yield f"| {field.name} | `{field.place}` | {field.type} |"


def problem_lines() -> Iterator[str]:
    """The codes of problem bodies."""
    yield "## Codes of the API"
    yield ""
    yield "A call that fails is answered with `application/problem+json`; `code` is stable."
    yield ""
    yield "| code | status | meaning | what to do |"
    yield "|---|---|---|---|"
    for code, known in sorted(PROBLEMS.items()):
        yield f"| {_named(code, FAILURES)} | {known.status} | {known.title}. | {known.remedy} |"
    yield ""


def run_code_lines() -> Iterator[str]:
    """The codes that runs and processes fail with."""
    yield "## Codes of a run"
    yield ""
    yield "The `code` of the error of a task, a step or a run."
    yield "A child that fails has the code of its own error, with the kind `child_failed`."
    yield ""
    yield from _reasons(RUNS | PATTERNS)
    yield "## Codes of processes"
    yield ""
    yield "What a server, a worker or a client says when it cannot start or go on."
    yield ""
    yield from _reasons(PROCESSES)


def _reasons(reasons: Mapping[str, Reason]) -> Iterator[str]:
    yield "| code | meaning | what to do |"
    yield "|---|---|---|"
    for code, known in sorted(reasons.items(), key=lambda item: item[0].lower()):
        yield f"| {_named(code, _EARLIER)} | {known.meaning} | {known.remedy} |"
    yield ""


def _named(code: str, earlier: Container[str]) -> str:
    """A code with a place to link to; one that stands in an earlier table has it there."""
    is_here = code not in earlier and "*" not in code
    return f'<a id="{code}"></a>`{code}`' if is_here else f"`{code}`"


def kind_lines() -> Iterator[str]:
    """The kinds of errors that a task may fail with."""
    yield "## Kinds of errors of a run"
    yield ""
    yield "A task that fails has an error `{kind, code, message, retryable, step, task, details}`."
    yield "`spec.retry` without `kinds` tries again what is retryable."
    yield ""
    yield "| kind | retryable |"
    yield "|---|---|"
    for kind in ERROR_KINDS:
        yield f"| `{kind}` | {'yes' if kind in RETRYABLE_KINDS else 'no'} |"
