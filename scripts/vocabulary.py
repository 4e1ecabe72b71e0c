"""Lines of the generated pages about events and errors of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.tasks.errors import ERROR_KINDS, RETRYABLE_KINDS
from noetl.engine.vocabulary import vocabulary
from noetl.server.problems import TITLES

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    yield "| code | meaning |"
    yield "|---|---|"
    for code, title in sorted(TITLES.items()):
        yield f"| `{code}` | {title} |"
    yield ""


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
