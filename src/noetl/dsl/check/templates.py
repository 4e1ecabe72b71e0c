"""Rules over the templates and the Python code of a Playbook."""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.dsl.handles import handles_of
from noetl.dsl.names import EVENT_NAMES, LATE_SCOPES, LOOP_NAMES, PIPELINE_NAMES, SCOPES, nodes_of
from noetl.dsl.shape import nearest
from noetl.dsl.shape.reader import ARC, SERVER, SQL, STEP_SET, TASK_SET, WORKLOAD, Site, value_at
from noetl.dsl.tasks import ENGINE_KINDS, Python
from noetl.dsl.template import TemplateSyntax, compile_code, read_sites
from noetl.dsl.template.syntax import nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.playbook.document import Playbook
    from noetl.dsl.playbook.step import Step
    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.tasks.task import Task
    from noetl.dsl.yaml import Place

_SERVER_ROLES = frozenset({SERVER, WORKLOAD, ARC, STEP_SET, TASK_SET})
_SQL_SAFE = frozenset({"sql_literal", "sql_ident", "tojson", "int"})
_STEP_DEPTH = 2
MOST_BRACES = 4_000
_ANY = "*"
"""Stands for the handles whose names only a run knows."""


def check(playbook: Playbook, reader: Reader) -> None:
    """Check every template and every piece of Python code."""
    entries = _entries(playbook)
    for site in reader.sites:
        text = site.template.text
        if "keychain" in text:
            _keychain(site, playbook, entries, reader)
        if "event" in text:
            _event_names(site, reader)
        if site.role == SQL:
            _sql(site, reader)
    known = known_names(playbook)
    for step in playbook.workflow:
        for task in step.tools:
            if isinstance(task, Python) and task.code is not None:
                _python(task, _Known(known, _local_names(step, task), entries), reader)
    for entry in playbook.workbook:
        if isinstance(entry.tool, Python) and entry.tool.code is not None:
            _python(entry.tool, _Known(known, frozenset(), entries), reader)


def _entries(playbook: Playbook) -> dict[str, int]:
    """The entries of the keychain by their places; no entry sees those that tasks make."""
    entries = {entry.name: index for index, entry in enumerate(playbook.keychain)}
    handles, has_others = handles_of(playbook)
    for handle in (*handles, *((_ANY,) if has_others else ())):
        entries.setdefault(handle, len(playbook.keychain))
    return entries


class _Known(NamedTuple):
    """The names that a piece of Python code may have rendered into it."""

    everywhere: frozenset[str]
    here: frozenset[str]
    entries: Mapping[str, int]

    def has(self, name: str) -> bool:
        """Whether a template that begins with a name is rendered."""
        return name in self.everywhere or name in self.here


def known_names(playbook: Playbook) -> frozenset[str]:
    """Every bare name that some template of the playbook may read."""
    names = {*SCOPES, *LATE_SCOPES, *playbook.workload, *playbook.inputs}
    for step in playbook.workflow:
        names.add(step.name)
        for writes in _writes(step):
            names |= {key.split(".")[1] for key in writes if key.startswith("ctx.")}
    return frozenset(names)


def _writes(step: Step) -> list[Any]:
    found = [step.set, *(arc.set for arc in step.arcs)]
    for task in step.tools:
        found += [task.set, *(rule.then.set for rule in task.rules)]
    return found


def _local_names(step: Step, task: Task) -> frozenset[str]:
    names = {*step.input, *task.input, *PIPELINE_NAMES, *(item.name for item in step.tools)}
    if step.loop is not None:
        names |= {step.loop.iterator, *LOOP_NAMES}
    return frozenset(names)


def _keychain(site: Site, playbook: Playbook, entries: Mapping[str, int], reader: Reader) -> None:
    reads = [read for read in read_sites(site.template) if read.path[0] == "keychain"]
    if not reads:
        return
    on_server = site.role in _SERVER_ROLES or _is_engine_run(site.place, playbook)
    path = site.place.path
    own = path[1] if path[0] == "keychain" else None
    for read in reads:
        name = read.path[1] if len(read.path) > 1 else ""
        text, offset = site.template.text, read.offset
        if on_server:
            message = f"`keychain.{name}` cannot be read here"
            reader.note("DSL041", message, site.place, text, offset)
        elif name and not _is_visible(name, entries, own):
            _no_entry(name, entries, reader, (site.place, text, offset))


def _is_visible(name: str, entries: Mapping[str, int], own: object) -> bool:
    """Whether a keychain entry may be read; an entry sees only earlier ones."""
    place = entries.get(name, entries.get(_ANY))
    return place is not None and (not isinstance(own, int) or place < own)


def _no_entry(
    name: str, entries: Mapping[str, int], reader: Reader, where: tuple[Place, str, int]
) -> None:
    def hint() -> str:
        return nearest(name, list(entries)) or "declare it under `keychain`, before its use"

    reader.note("DSL018", f"the keychain has no entry `{name}` here", *where, hint=hint)


def _is_engine_run(place: Place, playbook: Playbook) -> bool:
    """Whether a field belongs to a tool that the engine runs, so that its values are stored."""
    path = place.path
    if path[0] != "workflow" or not isinstance(path[1], int):
        return False
    tools = playbook.workflow[path[1]].tools
    if len(path) > _STEP_DEPTH and path[_STEP_DEPTH] == "tool":
        index = path[_STEP_DEPTH + 1] if len(path) > _STEP_DEPTH + 1 else 0
        task = tools[index] if isinstance(index, int) else tools[0]
        return task.kind in ENGINE_KINDS
    return any(task.kind in ENGINE_KINDS for task in tools)


def _event_names(site: Site, reader: Reader) -> None:
    for node in nodes_of(site.template):
        if not isinstance(node, nodes.Compare):
            continue
        sides = [node.first, *(operand.value for operand in node.rest)]
        if not any(_is_event_name(side) for side in sides):
            continue
        for side in sides:
            for literal in side.items if isinstance(side, nodes.ListOf) else (side,):
                if isinstance(literal, nodes.Literal) and literal.value not in EVENT_NAMES:
                    message = f"`event.name` is never `{literal.value}`"
                    text = site.template.text
                    reader.note("DSL115", message, site.place, text, literal.offset)


def _is_event_name(node: object) -> bool:
    if isinstance(node, nodes.Subscript) and isinstance(node.key, nodes.Literal):
        reads_name = node.key.value == "name"
    else:
        reads_name = isinstance(node, nodes.Attribute) and node.name == "name"
    base = getattr(node, "base", None)
    return reads_name and isinstance(base, nodes.Name) and base.name == "event"


def _sql(site: Site, reader: Reader) -> None:
    for node in nodes_of(site.template):
        if isinstance(node, nodes.Emit) and not _is_quoted(node.value):
            message = "a template in SQL text without quoting"
            reader.note("DSL122", message, site.place, site.template.text, node.offset)


def _is_quoted(node: object) -> bool:
    if isinstance(node, nodes.Filter):
        return node.name in _SQL_SAFE
    if isinstance(node, nodes.Choice):
        return _is_quoted(node.then) and _is_quoted(node.otherwise)
    return isinstance(node, nodes.Literal) or node is None or _is_frame_size(node)


def _is_frame_size(node: object) -> bool:
    return isinstance(node, nodes.Name) and node.name.startswith("__frame_")


def _python(task: Python, known: _Known, reader: Reader) -> None:
    source = task.code or ""
    place = task.place.child(value_at(task.place), "code")
    try:
        code = compile_code(source) if task.template else None
    except TemplateSyntax as fault:
        reader.syntax(fault, place, source)
        return
    rendered = [item for item in code.expressions if known.has(item.first_name)] if code else []
    for item in rendered:
        for read in read_sites(item.template):
            name = read.path[1] if read.path[0] == "keychain" and len(read.path) > 1 else None
            if name is not None and known.entries.keys().isdisjoint({name, _ANY}):
                _no_entry(name, known.entries, reader, (place, source, item.start))
        message = f"`{{{{ {item.first_name} ... }}}}` is rendered into the code"
        reader.note("DSL121", message, place, source, item.start, hint="bind it with `input`")
    fault_found = python_fault(source)
    if fault_found is not None and rendered:
        fault_found = python_fault(_blanked(source, rendered))
    if fault_found is not None:
        message, offset = fault_found
        reader.note("DSL044", f"the Python code does not parse: {message}", place, source, offset)


def _blanked(source: str, rendered: list[Any]) -> str:
    """The code with a plain name where a template will be rendered, of the same length."""
    parts, position = [], 0
    for item in rendered:
        parts += [source[position : item.start], "_" * (item.end - item.start)]
        position = item.end
    return "".join([*parts, source[position:]])


def python_fault(source: str) -> tuple[str, int] | None:
    """Why Python code does not parse, and at which character; None when it does."""
    if source.count("{") > MOST_BRACES:
        return None  # CPython reads a long f-string in quadratic time; the worker will tell
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<code>", "exec", flags=flags, dont_inherit=True)
    except SyntaxError as fault:
        lines = source.splitlines(keepends=True)
        line = min(fault.lineno or 1, len(lines))
        offset = sum(len(item) for item in lines[: line - 1]) + max((fault.offset or 1) - 1, 0)
        return (fault.msg, min(offset, len(source)))
    except (ValueError, RecursionError, MemoryError) as fault:
        return (str(fault) or "it is nested too deeply", 0)
    return None
