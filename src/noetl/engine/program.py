"""A playbook prepared for running: its arcs, cycles and joins, worked out once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from noetl.dsl.names import names_in, names_in_condition, outcome_of
from noetl.dsl.shape import Model
from noetl.dsl.tasks import Gateway, Plugin, Python
from noetl.dsl.tasks.calls import REQUEST_ID
from noetl.dsl.tasks.task import Rule
from noetl.dsl.template import (
    CODE_SOURCE_LIMIT,
    compile_code,
    compile_template,
    is_template,
    reads,
)

if TYPE_CHECKING:
    from noetl.dsl.playbook import Arc, Playbook, Step
    from noetl.dsl.tasks.task import Output

END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArcPlan:
    """One arc: where it leads, and what it means for cycles and joins."""

    number: int
    place: int
    """Its place among the arcs of its source."""
    source: str
    target: str
    arc: Arc
    on: str
    is_back: bool
    leaves: str | None = None
    """The outermost cycle that the source lies in and the target does not."""


@dataclass(slots=True, kw_only=True)
class StepPlan:
    """One step: its arcs out, the forward arcs in, and the cycles that it lies in."""

    step: Step
    cycles: tuple[str, ...] = ()
    """The cycles by the step that heads them, the innermost first."""
    arcs: tuple[ArcPlan, ...] = ()
    incoming: list[ArcPlan] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Program:
    """Everything about a playbook that does not change while it runs."""

    playbook: Playbook
    steps: dict[str, StepPlan]
    arcs: tuple[ArcPlan, ...]
    inside: dict[str, list[ArcPlan]]
    """The forward arcs inside each cycle."""
    leaving: dict[str, list[ArcPlan]]
    """The arcs that lead out of each cycle."""
    on_worker: frozenset[str] = frozenset()
    """Steps whose tool a worker runs although the engine could: their tools are mocked."""
    max_attempts: int = 3
    """How often a command may lose its worker before it fails."""
    aliases: frozenset[str] = frozenset()
    """Credentials that the document names beside those of its steps."""
    secret: tuple[tuple[str, ...], ...] = ()
    """Where the secret values of the workload lie; in their places stand masks."""

    named: dict[str, frozenset[tuple[str, ...]]] = field(default_factory=dict)

    def reads(self, name: str) -> frozenset[tuple[str, ...]]:
        """The names that the templates of a step's tools read, worked out once."""
        found = self.named.get(name)
        if found is None:
            step = self.steps[name].step
            found = names_in(step.input) | _reads_of(step.tools)
            found |= _reads_of(step.output) | _reads_of(self._results)
            self.named[name] = found
        return found

    @property
    def _results(self) -> Output | None:
        """How results are kept unless a step says otherwise."""
        executor = self.playbook.executor
        policy = executor.spec.policy if executor and executor.spec else None
        return policy.results if policy else None

    @property
    def entry(self) -> str:
        """The step that runs first."""
        return self.playbook.entry


def _reads_of(value: object) -> frozenset[tuple[str, ...]]:
    """The names read anywhere inside the models of a step's tools."""
    if isinstance(value, Model):
        found = frozenset[tuple[str, ...]]()
        skipped = {"place", "extra"}
        if isinstance(value, Plugin):
            skipped.remove("extra")
        if isinstance(value, Python) and value.code is not None:
            skipped.add("code")
            found |= _reads_of_code(value)
        if isinstance(value, Gateway) and value.request_id is None:
            found |= names_in(REQUEST_ID)
        for part in fields(value):
            if part.name not in skipped:
                found |= _reads_of(getattr(value, part.name))
        return found
    if isinstance(value, (tuple, list)):
        return frozenset().union(*(_reads_of(item) for item in value)) if value else frozenset()
    if isinstance(value, Rule):
        return _reads_of(value.then) | names_in_condition(value.when)
    if isinstance(value, str) and is_template(value):
        return reads(compile_template(value, source_limit=CODE_SOURCE_LIMIT))
    return names_in(value)


def _reads_of_code(task: Python) -> frozenset[tuple[str, ...]]:
    """What is rendered into Python code, and what the code reads of `context` by a literal name."""
    code = task.code or ""
    found = _context_reads(code)
    if task.template:
        for item in compile_code(code).expressions:
            found |= reads(item.template)
    return found


def _context_reads(code: str) -> frozenset[tuple[str, ...]]:
    """`context["x"]` and `context.get("x")`, wherever they stand."""
    found: set[tuple[str, ...]] = set()
    for name in _CONTEXT.findall(code):
        if name == "workload":
            found.add(("workload",))
        elif name == "variables":
            found.add(("ctx",))
        else:
            found.add(("steps", name))
    return frozenset(found)


_CONTEXT = re.compile(r"""\bcontext\s*(?:\[|\.get\()\s*["']([^"']+)["']""")


def prepare(playbook: Playbook, on_worker: frozenset[str] = frozenset()) -> Program:
    """Work out arcs, back arcs, cycles and joins of a playbook."""
    steps = {step.name: step for step in playbook.workflow}
    reached, back = _depth_first(playbook.entry, steps)
    cycles = _cycles(reached, steps)
    plans: dict[str, StepPlan] = {}
    numbered: list[ArcPlan] = []
    for name, step in steps.items():
        own = cycles.get(name, ())
        for place, arc in enumerate(step.arcs):
            left = [cycle for cycle in own if cycle not in cycles.get(arc.step, ())]
            numbered.append(
                ArcPlan(
                    number=len(numbered),
                    place=place,
                    source=name,
                    target=arc.step,
                    arc=arc,
                    on=outcome_of(arc),
                    is_back=(name, place) in back,
                    leaves=left[-1] if left else None,
                )
            )
        arcs = tuple(numbered[len(numbered) - len(step.arcs) :])
        plans[name] = StepPlan(step=step, cycles=own, arcs=arcs)
    inside: dict[str, list[ArcPlan]] = {cycle: [] for own in cycles.values() for cycle in own}
    leaving: dict[str, list[ArcPlan]] = {cycle: [] for cycle in inside}
    for plan in numbered:
        if plan.is_back:
            continue
        if plan.target in plans and plan.source in reached:
            plans[plan.target].incoming.append(plan)
        for cycle in cycles.get(plan.source, ()):
            if cycle in cycles.get(plan.target, ()):
                inside[cycle].append(plan)
        if plan.leaves is not None:
            leaving[plan.leaves].append(plan)
    return Program(
        playbook=playbook,
        steps=plans,
        arcs=tuple(numbered),
        inside=inside,
        leaving=leaving,
        on_worker=on_worker,
    )


def _depth_first(entry: str, steps: dict[str, Step]) -> tuple[list[str], set[tuple[str, int]]]:
    """The steps as they are reached from the entry, and the arcs that close a cycle then."""
    reached: dict[str, None] = {}
    on_path: set[str] = set()
    back: set[tuple[str, int]] = set()
    stack: list[tuple[str, int]] = []
    if entry in steps:
        stack.append((entry, 0))
        reached[entry] = None
        on_path.add(entry)
    while stack:
        name, index = stack.pop()
        arcs = steps[name].arcs
        if index == len(arcs):
            on_path.discard(name)
            continue
        stack.append((name, index + 1))
        target = arcs[index].step
        if target in on_path:
            back.add((name, index))
        elif target in steps and target not in reached:
            reached[target] = None
            on_path.add(target)
            stack.append((target, 0))
    return list(reached), back


def _cycles(reached: list[str], steps: dict[str, Step]) -> dict[str, tuple[str, ...]]:
    """The cycles that each step lies in, the innermost first, named by the step that heads them.

    A strongly connected component is a cycle, headed by its first step in depth-first order; every
    arc back to the head is a back arc. Without the head, what is left of it may hold inner cycles.
    """
    found: dict[str, tuple[str, ...]] = {}
    parts: list[tuple[list[str], tuple[str, ...]]] = [(reached, ())]
    while parts:
        names, around = parts.pop()
        targets = _targets(names, steps)
        for members in _components(names, targets):
            head = members[0]
            if len(members) == 1 and head not in targets[head]:
                continue
            own = (head, *around)
            found.update(dict.fromkeys(members, own))
            parts.append((members[1:], own))
    return found


def _targets(names: list[str], steps: dict[str, Step]) -> dict[str, list[str]]:
    """Where the arcs of some steps lead among them."""
    among = frozenset(names)
    return {name: [arc.step for arc in steps[name].arcs if arc.step in among] for name in names}


def _components(names: list[str], targets: dict[str, list[str]]) -> list[list[str]]:
    """The strongly connected components (Kosaraju, without recursion), each in the given order."""
    finished = _post_order(names, targets)
    sources: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        for target in targets[name]:
            sources[target].append(name)
    component: dict[str, int] = {}
    for number, root in enumerate(reversed(finished)):
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if name not in component:
                component[name] = number
                waiting.extend(sources[name])
    members: dict[int, list[str]] = {}
    for name in names:
        members.setdefault(component[name], []).append(name)
    return list(members.values())


def _post_order(names: list[str], targets: dict[str, list[str]]) -> list[str]:
    """The steps, each after all that it leads to."""
    done: list[str] = []
    seen: set[str] = set()
    for root in names:
        stack = [(root, False)]
        while stack:
            name, is_left = stack.pop()
            if is_left:
                done.append(name)
            elif name not in seen:
                seen.add(name)
                stack.append((name, True))
                stack.extend((target, False) for target in reversed(targets[name]))
    return done
