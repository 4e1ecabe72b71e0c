"""What the rules look at: a right Playbook with its templates and places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from noetl.dsl.shape.reader import Reader, Site, value_at
from noetl.dsl.template import reads
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from noetl.dsl.diagnostics import Span
    from noetl.dsl.names import Names
    from noetl.dsl.parse import Parsed
    from noetl.dsl.playbook.document import Playbook
    from noetl.dsl.playbook.step import Step
    from noetl.dsl.shape import Model
    from noetl.dsl.tasks.task import Task

_STEP = 2
_TASK = 3


class Finding(NamedTuple):
    """One thing that a rule found."""

    message: str
    span: Span
    pointer: str
    hint: str = ""


def at_value(message: str, place: Place) -> Finding:
    """A finding at a value."""
    return Finding(message, place.span, place.pointer)


def at_key(message: str, place: Place) -> Finding:
    """A finding at a key."""
    return Finding(message, place.key_span, place.pointer)


def entry(model: Model, name: str) -> Place:
    """The place of one key of a model."""
    return Place(value_at(model.place), name, model.place)


def is_written(model: Model | None, name: str) -> bool:
    """Whether the author wrote a key that has a default."""
    value = None if model is None else value_at(model.place)
    return isinstance(value, dict) and name in value


def written(steps: Iterable[Step], prefix: str) -> frozenset[str]:
    """The names that `set` writes below a scope, anywhere in these steps."""
    found: set[str] = set()
    for step in steps:
        maps = [step.set, *(arc.set for arc in step.arcs)]
        for task in step.tools:
            maps += [task.set, *(rule.then.set for rule in task.rules)]
        keys = [key for writes in maps for key in writes if key.startswith(prefix)]
        found |= {key.removeprefix(prefix).split(".")[0] for key in keys}
    return frozenset(found)


@dataclass(frozen=True)
class Subject:
    """One Playbook under lint."""

    parsed: Parsed
    playbook: Playbook
    known_credentials: frozenset[str] | None

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.parsed.document)

    @cached_property
    def reads(self) -> Names:
        """Every path that some template reads."""
        return frozenset(path for site in self.sites for path in reads(site.template))

    @cached_property
    def ctx(self) -> frozenset[str]:
        """Every name that is written below `ctx`."""
        return written(self.playbook.workflow, "ctx.")

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every template of the document."""
        return self.parsed.sites

    def in_text(self, message: str, place: Place, text: str, offset: int) -> Finding:
        """A finding at one character of a text."""
        return Finding(message, self._reader.locate(place, text, offset), place.pointer)

    def in_template(self, message: str, site: Site, offset: int) -> Finding:
        """A finding at one character of a template."""
        if site.is_key:
            return at_key(message, site.place)
        return self.in_text(message, site.place, site.template.text, offset)

    def step_of(self, site: Site) -> Step | None:
        """The step in which a template stands."""
        path = site.place.path
        if path[0] != "workflow" or not isinstance(path[1], int):
            return None
        return self.playbook.workflow[path[1]]

    def task_of(self, site: Site) -> Task | None:
        """The task in which a template stands."""
        step, path = self.step_of(site), site.place.path
        if step is None or len(path) <= _STEP or path[_STEP] != "tool":
            return None
        index = path[_TASK] if len(path) > _TASK else 0
        return step.tools[index if isinstance(index, int) else 0]


Rule = Callable[[Subject], Iterator[Finding]]
