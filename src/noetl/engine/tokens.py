"""How branches move: a token on every forward arc, taken or dead, and joins that count them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.engine.state import BESIDE, DEAD, TAKEN

if TYPE_CHECKING:
    from noetl.engine.events import Routing
    from noetl.engine.program import ArcPlan, StepPlan
    from noetl.engine.state import State


def leave(state: State, name: str, routing: Routing | None) -> None:
    """A visit ended (or was refused): its arcs get their tokens, taken back arcs re-enter."""
    plan = state.program.steps[name]
    taken = {index for index, arc in enumerate(routing.arcs) if arc.taken} if routing else set()
    exclusive = routing is not None and routing.mode == "exclusive" and bool(taken)
    for index, arc in enumerate(plan.arcs):
        if index in taken and arc.is_back:
            _again(state, arc)
    for index, arc in enumerate(plan.arcs):
        if arc.is_back:
            continue
        if index in taken:
            _put(state, arc, TAKEN)
        elif not arc.is_leaving:
            _put(state, arc, BESIDE if exclusive else DEAD)
    _queued(state, name)
    _after_visit(state, plan)


def skip_over(state: State, name: str) -> None:
    """A step on a dead path: all its forward arcs are dead too."""
    plan = state.program.steps[name]
    for arc in plan.arcs:
        if not arc.is_back and not arc.is_leaving:
            _put(state, arc, DEAD)
    _after_visit(state, plan)


def _queued(state: State, name: str) -> None:
    """A back arc fired while the step was live: one more visit."""
    step = state.step(name)
    if step.queued_visits:
        step.queued_visits -= 1
        enter(state, name)


def _again(state: State, arc: ArcPlan) -> None:
    """A taken back arc: the tokens inside its cycle are cleared and its target is entered again."""
    for number in state.program.inside[state.program.steps[arc.target].cycle]:
        state.tokens.pop(number, None)
    step = state.step(arc.target)
    if (step.is_live and arc.target != arc.source) or ("enter", arc.target) in state.agenda:
        step.queued_visits += 1
        return
    step.came_from = (arc.source,)
    enter(state, arc.target)


def enter(state: State, name: str) -> None:
    """A step is to be entered; its cycle is not at rest until the visit has ended."""
    plan = state.program.steps[name]
    if plan.in_cycle:
        state.open_in_cycle[plan.cycle] = state.open_in_cycle.get(plan.cycle, 0) + 1
    state.push("enter", name)


def _put(state: State, arc: ArcPlan, token: str) -> None:
    """Give an arc its token once per generation; the last one decides about the target."""
    target = state.program.steps.get(arc.target)
    if target is None or arc.number in state.tokens:
        return
    state.tokens[arc.number] = token
    if arc.target == state.program.playbook.final:
        return
    tokens = [state.tokens.get(incoming.number) for incoming in target.incoming]
    if None in tokens:
        return
    if TAKEN in tokens:
        sources = (one.source for one in target.incoming if state.tokens[one.number] == TAKEN)
        state.step(arc.target).came_from = tuple(sources)
        enter(state, arc.target)
    else:
        if target.in_cycle:
            state.open_in_cycle[target.cycle] = state.open_in_cycle.get(target.cycle, 0) + 1
        state.push("skip", arc.target, "not_taken" if BESIDE in tokens else "dead_path")


def _after_visit(state: State, plan: StepPlan) -> None:
    """When nothing in a cycle is live any more, its untaken arcs out are dead."""
    if not plan.in_cycle:
        return
    left = state.open_in_cycle.get(plan.cycle, 1) - 1
    state.open_in_cycle[plan.cycle] = left
    if left == 0:
        resolve(state, plan.cycle)


def resolve(state: State, cycle: int) -> None:
    """Close the arcs that leave a cycle which has come to rest."""
    for name in state.program.cycles[cycle]:
        for arc in state.program.steps[name].arcs:
            if arc.is_leaving:
                _put(state, arc, DEAD)
