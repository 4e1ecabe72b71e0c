"""Rules over names: read but never written, written down but never used."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from noetl.dsl.check.templates import known_names
from noetl.dsl.lint.subject import Finding, Subject, at_key, at_value, entry, written
from noetl.dsl.names import LOOP_NAMES, PIPELINE_NAMES
from noetl.dsl.shape.reader import WORKLOAD
from noetl.dsl.tasks import Gateway, Http, Python
from noetl.dsl.template import read_sites

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noetl.dsl.playbook.step import Step
    from noetl.dsl.tasks.task import Output, Task

_ITERATION = ("_index", "_first", "_last", "_total")
_FRAME = ("frame", "__frame_")
_WORD = re.compile(r"\w+")


# ---------------------------------------------------------------------------- DSL202


def never_written(subject: Subject) -> Iterator[Finding]:
    """A name that some template needs and nothing provides (DSL202)."""
    known = known_names(subject.playbook)
    for site in subject.sites:
        if site.place.path[0] == "workbook":
            continue  # its names come from the step that uses it; they are read again there
        if site.role == WORKLOAD and site.template.is_expression:
            continue  # undefined is null there
        step, task = subject.step_of(site), subject.task_of(site)
        here = known | _local(step, task)
        for read in read_sites(site.template):
            name = _unwritten(read.path, subject, step, here)
            if name and not read.is_lenient:
                message = f"`{name}` is read but never written"
                yield subject.in_template(message, site, read.offset)


def _unwritten(
    path: tuple[str, ...], subject: Subject, step: Step | None, here: frozenset[str]
) -> str:
    """The name that nothing writes, or nothing."""
    root, *below = path
    if not below:
        return "" if root in here or root.startswith(_FRAME) else root
    playbook = subject.playbook
    declared = {*playbook.workload, *playbook.inputs}
    writes: Iterable[str] | None = None
    if root == "ctx":
        writes = subject.ctx
    elif root == "steps":
        writes = {item.name for item in playbook.workflow}
    elif root == "workload" and declared:
        writes = declared
    elif root == "iter" and step is not None and not _names_results(step):
        writes = {*written([step], "iter."), *_ITERATION, *_iterator(step)}
    if writes is not None:
        return "" if below[0] in writes else f"{root}.{below[0]}"
    return _unwritten((root,), subject, step, here)


def _local(step: Step | None, task: Task | None) -> frozenset[str]:
    """The names that only a step, or one task of it, sees."""
    if step is None:
        return frozenset()
    names = {*PIPELINE_NAMES, *step.input, *(item.name for item in step.tools), *_iterator(step)}
    names |= {name for output in _outputs(step) for name in _given(output)}
    if step.loop is not None:
        names |= {*LOOP_NAMES}
    if task is not None:
        names |= {*task.input, *(("page",) if isinstance(task, Http) else ())}
    return frozenset(names)


def _iterator(step: Step) -> tuple[str, ...]:
    return (step.loop.iterator,) if step.loop is not None else ()


def _outputs(step: Step) -> list[Output]:
    outputs = (step.output, *(task.output for task in step.tools))
    return [output for output in outputs if output is not None]


def _given(output: Output) -> Iterator[str]:
    """The names that an `output` gives to a result."""
    if output.as_:
        yield output.as_
    if output.accumulate and output.accumulate.manifest_as:
        yield output.accumulate.manifest_as


def _names_results(step: Step) -> bool:
    return any(True for output in _outputs(step) for _ in _given(output))


# ---------------------------------------------------------------------------- DSL208


def never_used(subject: Subject) -> Iterator[Finding]:
    """A workbook task, keychain entry or workload key that nothing uses (DSL208)."""
    playbook = subject.playbook
    for task in playbook.workbook:
        if task.name not in subject.parsed.workbook_used:
            yield at_value(f"no step uses the workbook task `{task.name}`", entry(task, "name"))
    for item in playbook.keychain:
        if not _is_used(item.name, "keychain", subject):
            yield at_value(f"nothing uses the keychain entry `{item.name}`", entry(item, "name"))
    if playbook.executor is not None and playbook.executor.runtime == "wasm":
        return
    box = entry(playbook, "workload")
    for key in playbook.workload:
        if not key.startswith("x-") and not _is_used(key, "workload", subject):
            message = f"nothing reads the workload key `{key}`"
            yield at_key(message, box.child(playbook.workload, key))


def _is_used(name: str, scope: str, subject: Subject) -> bool:
    """Whether a template reads the name, or code may; doubt counts as use."""
    for path in subject.reads:
        if path == (scope,) or path[:2] == (scope, name) or path[0] == name:
            return True
    tasks = (task for step in subject.playbook.workflow for task in step.tools)
    return any(_may_use(task, name, scope) for task in tasks)


def _may_use(task: Task, name: str, scope: str) -> bool:
    """Whether a task reaches the name without a template."""
    if task.auth == name:
        return True
    if isinstance(task, Gateway):
        return name == "request_id" and task.request_id is None
    if not isinstance(task, Python):
        return False
    if task.code is None:
        return scope == "workload"
    return _may_reach(task.code, scope)


@lru_cache(maxsize=1024)
def _may_reach(code: str, scope: str) -> bool:
    return not {"context", scope}.isdisjoint(_WORD.findall(code))
