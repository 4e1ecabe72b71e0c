"""What a run would do: its steps, tools, pools, credentials, hosts and sub-playbooks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from noetl.dsl.shape import Model
from noetl.dsl.tasks import NETWORK_KINDS
from noetl.dsl.template import is_template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.playbook import Playbook, Step
    from noetl.dsl.tasks.task import Task


def plan_of(playbook: Playbook) -> dict[str, Any]:
    """The plan; what only a run can know (a host from a template) is shown as it is written."""
    spec = playbook.executor.spec if playbook.executor else None
    pool = (spec.pool if spec else None) or "shared"
    steps = [_step(step, pool) for step in playbook.workflow]
    keychain = [entry.name for entry in playbook.keychain]
    return {
        "path": playbook.path,
        "entry": playbook.entry,
        "steps": steps,
        "pools": _union(steps, "pool"),
        "credentials": sorted({*_union(steps, "credentials"), *_credentials(playbook.keychain)}),
        "keychain": keychain,
        "hosts": _union(steps, "hosts"),
        "playbooks": _union(steps, "playbooks"),
    }


def _step(step: Step, pool: str) -> dict[str, Any]:
    own = step.spec.pool if step.spec else None
    return {
        "step": step.name,
        "tools": [task.kind for task in step.tools] or ["noop"],
        "loop": step.loop.mode if step.loop else None,
        "pool": own or pool,
        "credentials": sorted({name for task in step.tools for name in _credentials(task)}),
        "hosts": sorted({host for task in step.tools for host in _hosts(task)}),
        "playbooks": sorted({path for task in step.tools for path in _playbooks(task)}),
        "next": [arc.step for arc in step.arcs],
    }


def _union(steps: list[dict[str, Any]], key: str) -> list[str]:
    found: set[str] = set()
    for step in steps:
        value = step[key]
        found.update([value] if isinstance(value, str) else value)
    return sorted(found)


def _values(value: object) -> Iterator[tuple[str, object]]:
    """Every key and value below a model, in maps and lists too."""
    pairs: list[tuple[str, object]] = []
    if isinstance(value, Model):
        names = [part.name for part in dataclasses.fields(value) if part.name != "place"]
        pairs = [(name, getattr(value, name)) for name in names]
    elif isinstance(value, dict):
        pairs = [(str(name), item) for name, item in value.items()]
    elif isinstance(value, (list, tuple)):
        pairs = [("", item) for item in value]
    for name, item in pairs:
        yield name, item
        yield from _values(item)


def _credentials(of: object) -> Iterator[str]:
    for name, value in _values(of):
        if name in {"auth", "credential"}:
            alias = value.get("credential") if isinstance(value, dict) else value
            if isinstance(alias, str) and alias:
                yield alias


def _hosts(task: Task) -> Iterator[str]:
    if task.kind not in NETWORK_KINDS:
        return
    for name, value in _values(task):
        if name in {"url", "endpoint", "uri"} and isinstance(value, str):
            host = value if is_template(value) else urlsplit(value).hostname
            if host:
                yield host
        elif name == "host" and isinstance(value, str) and value:
            yield value


def _playbooks(task: Task) -> Iterator[str]:
    if task.kind in {"playbook", "playbooks"}:
        for name, value in _values(task):
            if name == "path" and isinstance(value, str):
                yield value
