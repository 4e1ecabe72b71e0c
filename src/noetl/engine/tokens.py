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
    untaken = BESIDE if taken and routing and routing.mode == "exclusive" else DEAD
    begun: list[str] = []
    for index, arc in enumerate(plan.arcs):
        if index in taken and arc.is_back:
            begun.append(arc.target)
            _again(state, arc)
    for index, arc in enumerate(plan.arcs):
        if arc.is_back:
            continue
        if index in taken:
            _put(state, arc, TAKEN)
        elif arc.leaves is None and not _is_within(state, arc, begun):
            _put(state, arc, untaken)
    _queued(state, name)
    _after_visit(state, plan)


def _is_within(state: State, arc: ArcPlan, cycles: list[str]) -> bool:
    """Whether an arc lies in a cycle that has just begun anew, which will decide about it."""
    target = state.program.steps.get(arc.target)
    return target is not None and any(cycle in target.cycles for cycle in cycles)


def skip_over(state: State, name: str) -> None:
    """A step on a dead path: all its forward arcs are dead too."""
    plan = state.program.steps[name]
    for arc in plan.arcs:
        if not arc.is_back and arc.leaves is None:
            _put(state, arc, DEAD)
    _after_visit(state, plan)


def revive(state: State, name: str) -> None:
    """A failed step is entered again by hand: what its failure has ruled out is open again.

    Steps that were passed over wait for it anew. A step that has run without this branch does not
    run twice: its arc keeps the dead token.
    """
    plan = state.program.steps[name]
    _begin(state, plan)
    arcs = [*plan.arcs, *(arc for cycle in plan.cycles for arc in state.program.leaving[cycle])]
    while arcs:
        arc = arcs.pop()
        target = state.program.steps.get(arc.target)
        if target is None or arc.is_back or state.tokens.get(arc.number) not in {DEAD, BESIDE}:
            continue
        step = state.step(arc.target)
        tokens = [state.tokens.get(incoming.number) for incoming in target.incoming]
        if None not in tokens and (TAKEN in tokens or step.status != "SKIPPED"):
            continue
        del state.tokens[arc.number]
        step.arrived -= 1
        if step.status == "SKIPPED":
            step.status = None
            arcs += target.arcs


def _queued(state: State, name: str) -> None:
    """The step was to be entered while it was live: one more visit."""
    step = state.step(name)
    if step.queued_visits:
        step.queued_visits -= 1
        enter(state, name)


def _again(state: State, arc: ArcPlan) -> None:
    """A taken back arc: the tokens inside its cycle are cleared and its target is entered again."""
    for inner in state.program.inside[arc.target]:
        if state.tokens.pop(inner.number, None) is not None:
            state.step(inner.target).arrived -= 1
    enter(state, arc.target, (arc.source,))


def enter(state: State, name: str, sources: tuple[str, ...] = ()) -> None:
    """A step is to be entered, after the visit that it is in; visits never overlap."""
    step = state.step(name)
    if _is_under_way(state, name):
        step.queued_visits += 1
        return
    step.came_from = sources or step.came_from
    _begin(state, state.program.steps[name])
    state.push("enter", name)


def _is_under_way(state: State, name: str) -> bool:
    return state.step(name).is_live or ("enter", name) in state.agenda


def _begin(state: State, plan: StepPlan) -> None:
    """The cycles around a step are not at rest until its visit has ended."""
    for cycle in plan.cycles:
        state.open_in_cycle[cycle] = state.open_in_cycle.get(cycle, 0) + 1


def _put(state: State, arc: ArcPlan, token: str) -> None:
    """Give an arc its token once per generation; the last one decides about the target."""
    target = state.program.steps.get(arc.target)
    if target is None or arc.number in state.tokens:
        return
    state.tokens[arc.number] = token
    step = state.step(arc.target)
    step.arrived += 1
    if arc.target == state.program.playbook.final or step.arrived < len(target.incoming):
        return
    tokens = [state.tokens[incoming.number] for incoming in target.incoming]
    if TAKEN in tokens:
        sources = (one.source for one in target.incoming if state.tokens[one.number] == TAKEN)
        enter(state, arc.target, tuple(sources))
    elif not _is_under_way(state, arc.target):
        _begin(state, target)
        state.push("skip", arc.target, "not_taken" if BESIDE in tokens else "dead_path")


def _after_visit(state: State, plan: StepPlan) -> None:
    """When nothing in a cycle is live any more, its untaken arcs out are dead."""
    for cycle in plan.cycles:
        left = state.open_in_cycle.get(cycle, 1) - 1
        state.open_in_cycle[cycle] = left
        if left == 0:
            for arc in state.program.leaving[cycle]:
                _put(state, arc, DEAD)
