"""The graph of a run: the playbook's own graph, and how far the run is on each node and arc."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from noetl.api.reading import GraphEdge, GraphNode, RunGraph
from noetl.dsl.graph import caption_of, graph, label_of
from noetl.engine.state import TAKEN

if TYPE_CHECKING:
    from noetl.dsl.graph import Edge, Node
    from noetl.engine.state import LoopState, State, StepState
    from noetl.server.reading.detail import Details
    from noetl.store.base import Store
    from noetl.store.reading import ArcSum, StepSum

NOT_TAKEN: Final = "not_taken"
PENDING: Final = "pending"


class Graphs:
    """Draws runs."""

    def __init__(self, store: Store, details: Details) -> None:
        self._reading = store.reading
        self._details = details

    async def graph(self, execution_id: str) -> RunGraph:
        """The graph of a run as it is now; its log is summed up by the store."""
        row = await self._details.row(execution_id)
        steps, arcs = await asyncio.gather(
            self._reading.steps(execution_id), self._reading.arcs(execution_id)
        )
        return drawn(await self._details.state(row), steps, arcs)


def drawn(state: State, steps: list[StepSum], arcs: list[ArcSum]) -> RunGraph:
    """The graph of a state; the sums tell what a state forgets: times, attempts, old arcs."""
    shown = graph(state.program.playbook)
    sums = {item.step: item for item in steps}
    times = {(item.step, item.place): item.taken for item in arcs}
    edges = tuple(
        _edge(state, edge, times.get((edge.source, edge.index), 0)) for edge in shown.edges
    )
    reached = {edge.to for edge in edges if edge.taken}
    open_, parked = Counter[str](), Counter[str]()
    for command in state.commands.values():
        open_[command.step] += 1
        parked[command.step] += command.status == "PARKED"
    waiting = {name for name, count in open_.items() if count == parked[name]}
    return RunGraph(
        execution_id=state.execution_id,
        nodes=tuple(
            _node(state, node, sums.get(node.name), waiting)
            if node.is_defined
            else _end(state, node, is_reached=node.name in reached)
            for node in shown.nodes
        ),
        edges=edges,
        as_of_seq=state.seq,
    )


def _node(state: State, node: Node, told: StepSum | None, waiting: set[str]) -> GraphNode:
    step = state.steps.get(node.name)
    word = _state(state, step, is_waiting=node.name in waiting)
    is_over = step is not None and not step.is_live
    failed = step.error if step is not None and word == "failed" else None
    return GraphNode(
        id=node.name,
        kind="step",
        label=label_of(node)[0],
        tool=" > ".join(node.kinds),
        desc=node.desc,
        state=word,
        runs=0 if step is None else step.visit,
        attempts=0 if told is None else told.claimed,
        loop=_loop(node, step),
        is_entry=node.is_entry,
        is_final=node.is_final,
        started_at=None if told is None else told.started_at,
        ended_at=told.ended_at if told is not None and is_over else None,
        error=None if failed is None else {"kind": failed.kind, "code": failed.code,
                                           "message": failed.message},
    )  # fmt: skip


def _end(state: State, node: Node, *, is_reached: bool) -> GraphNode:
    """The end that no step stands for."""
    word = "completed" if is_reached else PENDING if state.terminal is None else NOT_TAKEN
    return GraphNode(id=node.name, kind="end", label=node.name, state=word, runs=0, attempts=0)


def _state(state: State, step: StepState | None, *, is_waiting: bool) -> str:
    if step is None or step.status is None:
        return PENDING if state.terminal is None else NOT_TAKEN
    if step.is_live:
        return "waiting" if is_waiting else "running"
    if step.status != "SKIPPED":
        return step.status.lower()
    # Who was refused leaves an empty result; who was passed by leaves none.
    is_refused = step.result is not None and step.result.data is not None
    return "skipped" if is_refused else NOT_TAKEN


def _loop(node: Node, step: StepState | None) -> dict[str, Any] | None:
    if node.loop is None:
        return None
    told: dict[str, Any] = {"mode": node.loop, "done": 0, "failed": 0, "in_flight": 0}
    live: LoopState | None = None if step is None else step.loop
    if live is not None:
        told |= {"done": live.done, "failed": live.failed, "in_flight": live.open}
        if live.mode != "cursor":
            told["total"] = live.total
    elif step is not None and step.result is not None and step.result.stats is not None:
        stats = step.result.stats
        told |= {"total": stats["total"], "done": stats["success"] + stats["failed"],
                 "failed": stats["failed"]}  # fmt: skip
    return told


def _edge(state: State, edge: Edge, times: int) -> GraphEdge:
    return GraphEdge(
        from_=edge.source,
        to=edge.target,
        when=edge.when,
        label=caption_of(edge) or None,
        taken=times > 0 or _was_taken(state, edge),
        times=times,
    )


def _was_taken(state: State, edge: Edge) -> bool:
    """What the state itself knows: a fork has no log of what its source has done."""
    plan = state.program.steps.get(edge.source)
    if plan is None or edge.index >= len(plan.arcs):
        return False
    if state.tokens.get(plan.arcs[edge.index].number) == TAKEN:
        return True
    target = state.steps.get(edge.target)
    is_fork = state.forked_from is not None
    return is_fork and target is not None and target.visit > 0 and edge.source in target.came_from
