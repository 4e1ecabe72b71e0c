"""Rules over names: read but never written, written down but never used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from noetl.dsl.check.templates import known_names
from noetl.dsl.form import DIRECTIVES, unknown_directives
from noetl.dsl.lint.subject import Finding, Subject, at_key, at_value, entry, written
from noetl.dsl.names import LOOP_NAMES, PIPELINE_NAMES
from noetl.dsl.shape import nearest
from noetl.dsl.shape.reader import SHELL, SQL, WORKER, WORKLOAD, Site
from noetl.dsl.tasks import Gateway, Http, Python
from noetl.dsl.template import is_template, read_sites
from noetl.dsl.views import ERROR_FIELDS
from noetl.dsl.yaml import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from noetl.dsl.playbook.step import Step
    from noetl.dsl.tasks.task import Output, Task

_ITERATION = ("_index", "_first", "_last", "_total")
_FRAME = ("frame", "__frame_")
_EXECUTION = (
    "id", "path", "version", "catalog_id", "started_at", "parent_id", "pool", "trace", "outcome",
)  # fmt: skip
_ERROR = ("output", "error")
_ERROR_FIELDS = (*ERROR_FIELDS, "details")
_AFTERWARDS = frozenset({"output", "event"})
_BEFOREHAND = frozenset({WORKER, SQL, SHELL})
_FIELD = 2
_WORD = re.compile(r"\w+")


# ---------------------------------------------------------------------------- DSL202


@dataclass(frozen=True, slots=True)
class _Visible:
    """The names that a template may read: those of the playbook, and those of its place."""

    everywhere: frozenset[str]
    local: frozenset[str]

    def __contains__(self, name: object) -> bool:
        """Whether the name can be read."""
        return name in self.everywhere or name in self.local


def never_written(subject: Subject) -> Iterator[Finding]:
    """A name that some template needs and nothing provides (DSL202)."""
    known = known_names(subject.playbook)
    for site in subject.sites:
        if site.place.path[0] == "workbook":
            continue  # its names come from the step that uses it; they are read again there
        if site.role == WORKLOAD and site.template.is_expression:
            continue  # undefined is null there
        here = _Visible(known, _local(subject.step_of(site), subject.task_of(site)))
        for read in read_sites(site.template):
            message = "" if read.is_lenient else _fault(read.path, subject, site, here)
            if message:
                yield subject.in_template(message, site, read.offset)


def _fault(path: tuple[str, ...], subject: Subject, site: Site, here: _Visible) -> str:
    """What is wrong with one read, or nothing."""
    if path[0] in _AFTERWARDS and _is_early(path[0], subject, site):
        return f"`{path[0]}` is not visible here: rules, `set` and arcs read it"
    name = _unwritten(path, subject, site, here)
    return f"`{name}` is read but never written" if name else ""


def _is_early(name: str, subject: Subject, site: Site) -> bool:
    """Whether a field is rendered before the scope exists, and nothing else has its name."""
    playbook, step = subject.playbook, subject.step_of(site)
    if step is None or site.role not in _BEFOREHAND:
        return False
    if site.place.path[_FIELD] not in {"tool", "input"}:
        return False
    own = _local(step, subject.task_of(site))
    named = {*playbook.workload, *playbook.inputs, *subject.ctx, *own}
    return name not in named and playbook.step(name) is None


def _unwritten(path: tuple[str, ...], subject: Subject, site: Site, here: _Visible) -> str:
    """The name that nothing writes, or nothing."""
    root, *below = path
    if not below:
        return "" if root in here or root.startswith(_FRAME) else root
    writes = _below(root, subject, site)
    if writes is not None:
        return "" if below[0] in writes else f"{root}.{below[0]}"
    if path[:2] == _ERROR and len(below) > 1 and below[1] not in _ERROR_FIELDS:
        return f"output.error.{below[1]}"
    return _unwritten((root,), subject, site, here)


def _below(root: str, subject: Subject, site: Site) -> Iterable[str] | None:
    """All that can be read below a name, where that is known."""
    playbook, step = subject.playbook, subject.step_of(site)
    match root:
        case "ctx":
            return subject.ctx
        case "steps":
            return {item.name for item in playbook.workflow}
        case "execution":
            return _EXECUTION
        case "workload":
            return {*playbook.workload, *playbook.inputs} or None
        case "input" | "args":
            return _inputs(step, subject.task_of(site))
        case "iter" if step is not None and not _names_results(step):
            return {*written([step], "iter."), *_ITERATION, *_iterator(step)}
    return None


def _inputs(step: Step | None, task: Task | None) -> set[str] | None:
    """The names bound for a task; unknown outside of one, or when a name is a template."""
    if step is None or task is None:
        return None
    names = {*step.input, *task.input}
    return None if any(is_template(name) for name in names) else names


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
    uses = _Uses(subject)
    for task in playbook.workbook:
        if task.name not in subject.parsed.workbook_used:
            yield at_value(f"no step uses the workbook task `{task.name}`", entry(task, "name"))
    for item in playbook.keychain:
        if not uses.has(item.name, "keychain"):
            yield at_value(f"nothing uses the keychain entry `{item.name}`", entry(item, "name"))
    if playbook.executor is not None and playbook.executor.runtime == "wasm":
        return
    box = ROOT.child(subject.parsed.document.root, "workload")
    for key in playbook.workload:
        if not key.startswith("x-") and not uses.has(key, "workload"):
            message = f"nothing reads the workload key `{key}`"
            yield at_key(message, box.child(playbook.workload, key))


class _Uses:
    """What the templates and the code of a playbook read, gathered once; doubt counts as use."""

    def __init__(self, subject: Subject) -> None:
        self._roots = {path[0] for path in subject.reads}
        self._pairs = {path[:2] for path in subject.reads}
        tasks = [task for step in subject.playbook.workflow for task in step.tools]
        self._named = {task.auth for task in tasks if isinstance(task.auth, str)}
        if any(isinstance(task, Gateway) and task.request_id is None for task in tasks):
            self._named.add("request_id")
        codes = [task for task in tasks if isinstance(task, Python)]
        self._whole = {
            scope
            for scope in ("keychain", "workload")
            if (scope,) in self._pairs or any(_reaches(task, scope) for task in codes)
        }

    def has(self, name: str, scope: str) -> bool:
        """Whether a template reads the name, or code may."""
        read = name in self._roots or (scope, name) in self._pairs
        return read or scope in self._whole or name in self._named


def _reaches(task: Python, scope: str) -> bool:
    """Whether Python code may read a scope without a template."""
    return scope == "workload" if task.code is None else _may_reach(task.code, scope)


@lru_cache(maxsize=1024)
def _may_reach(code: str, scope: str) -> bool:
    return not {"context", scope}.isdisjoint(_WORD.findall(code))


# ---------------------------------------------------------------------------- DSL116


def unknown_directive(subject: Subject) -> Iterator[Finding]:
    """A `# ui:` directive of a workload key that does not exist (DSL116)."""
    for found in unknown_directives(subject.parsed):
        message = f"there is no directive `ui:{found.name[:80]}`"
        yield Finding(message, found.span, found.pointer, nearest(found.name, DIRECTIVES))
