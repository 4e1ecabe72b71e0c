"""A playbook prepared for running: its arcs, cycles and joins, worked out once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from noetl.dsl.names import names_in, names_in_condition, outcome_of
from noetl.dsl.shape import Model
from noetl.dsl.tasks import Python
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

END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArcPlan:
    """One arc: where it leads, and what it means for cycles and joins."""

    number: int
    source: str
    target: str
    arc: Arc
    on: str
    is_back: bool
    is_inside: bool
    """Both ends lie in one cycle."""
    is_leaving: bool
    """The source lies in a cycle that the target is not part of."""


@dataclass(slots=True, kw_only=True)
class StepPlan:
    """One step: its arcs out, the forward arcs in, and the cycle it belongs to."""

    step: Step
    cycle: int
    in_cycle: bool
    arcs: tuple[ArcPlan, ...] = ()
    incoming: list[ArcPlan] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Program:
    """Everything about a playbook that does not change while it runs."""

    playbook: Playbook
    steps: dict[str, StepPlan]
    arcs: tuple[ArcPlan, ...]
    cycles: dict[int, list[str]]
    inside: dict[int, list[int]]

    named: dict[str, frozenset[tuple[str, ...]]] = field(default_factory=dict)

    def reads(self, name: str) -> frozenset[tuple[str, ...]]:
        """The names that the templates of a step's tools read, worked out once."""
        found = self.named.get(name)
        if found is None:
            step = self.steps[name].step
            found = self.named[name] = names_in(step.input) | _reads_of(step.tools)
        return found

    @property
    def entry(self) -> str:
        """The step that runs first."""
        return self.playbook.entry


def _reads_of(value: object) -> frozenset[tuple[str, ...]]:
    """The names read anywhere inside the models of a step's tools."""
    if isinstance(value, Model):
        found = frozenset[tuple[str, ...]]()
        skipped = {"place", "extra"}
        if isinstance(value, Python) and value.code is not None:
            skipped.add("code")
            found |= _reads_of_code(value)
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
    """The names that are rendered into Python code; other braces are the code's own."""
    if not task.template:
        return frozenset()
    found = frozenset[tuple[str, ...]]()
    for item in compile_code(task.code or "").expressions:
        found |= reads(item.template)
    return found


def prepare(playbook: Playbook) -> Program:
    """Work out arcs, back arcs, cycles and joins of a playbook."""
    steps = {step.name: step for step in playbook.workflow}
    reachable, back = _depth_first(playbook.entry, steps)
    cycle_of = _cycles(playbook.entry, steps)
    sizes: dict[int, int] = {}
    for cycle in cycle_of.values():
        sizes[cycle] = sizes.get(cycle, 0) + 1
    plans: dict[str, StepPlan] = {}
    numbered: list[ArcPlan] = []
    for name, step in steps.items():
        cycle = cycle_of.get(name, -1)
        loops_to_itself = any(arc.step == name for arc in step.arcs)
        arcs = []
        for index, arc in enumerate(step.arcs):
            same = cycle_of.get(arc.step, -2) == cycle
            in_cycle = sizes.get(cycle, 0) > 1 or loops_to_itself
            plan = ArcPlan(
                number=len(numbered),
                source=name,
                target=arc.step,
                arc=arc,
                on=outcome_of(arc),
                is_back=(name, index) in back,
                is_inside=in_cycle and same,
                is_leaving=in_cycle and not same,
            )
            arcs.append(plan)
            numbered.append(plan)
        in_cycle = sizes.get(cycle, 0) > 1 or loops_to_itself
        plans[name] = StepPlan(step=step, cycle=cycle, in_cycle=in_cycle, arcs=tuple(arcs))
    for plan in numbered:
        if plan.target in plans and plan.source in reachable and not plan.is_back:
            plans[plan.target].incoming.append(plan)
    cycles: dict[int, list[str]] = {}
    for name, plan_of_step in plans.items():
        if plan_of_step.in_cycle:
            cycles.setdefault(plan_of_step.cycle, []).append(name)
    inside: dict[int, list[int]] = {cycle: [] for cycle in cycles}
    for plan in numbered:
        if plan.is_inside and not plan.is_back:
            inside[plans[plan.source].cycle].append(plan.number)
    return Program(
        playbook=playbook, steps=plans, arcs=tuple(numbered), cycles=cycles, inside=inside
    )


def _depth_first(entry: str, steps: dict[str, Step]) -> tuple[set[str], set[tuple[str, int]]]:
    """The steps reached from the entry, and the arcs that close a cycle in that order."""
    reached: set[str] = set()
    on_path: set[str] = set()
    back: set[tuple[str, int]] = set()
    if entry not in steps:
        return reached, back
    stack: list[tuple[str, int]] = [(entry, 0)]
    reached.add(entry)
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
            reached.add(target)
            on_path.add(target)
            stack.append((target, 0))
    return reached, back


def _cycles(entry: str, steps: dict[str, Step]) -> dict[str, int]:
    """The strongly connected component of every reachable step (Kosaraju, without recursion)."""
    finished = _post_order(entry, {name: _targets(step, steps) for name, step in steps.items()})
    sources: dict[str, list[str]] = {name: [] for name in finished}
    for name in finished:
        for target in _targets(steps[name], steps):
            sources[target].append(name)
    component: dict[str, int] = {}
    for number, root in enumerate(reversed(finished)):
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if name not in component:
                component[name] = number
                waiting.extend(sources[name])
    return component


def _targets(step: Step, steps: dict[str, Step]) -> list[str]:
    return [arc.step for arc in step.arcs if arc.step in steps]


def _post_order(entry: str, targets: dict[str, list[str]]) -> list[str]:
    """The reachable steps, each after all that it leads to."""
    done: list[str] = []
    seen: set[str] = set()
    stack: list[tuple[str, bool]] = [(entry, False)] if entry in targets else []
    while stack:
        name, is_left = stack.pop()
        if is_left:
            done.append(name)
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack.extend((target, False) for target in reversed(targets[name]))
    return done
