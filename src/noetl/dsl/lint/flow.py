"""Rules over the way through a playbook: ends, arcs, loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.lint.subject import Finding, Subject, at_key, at_value, entry
from noetl.dsl.names import outcome_of
from noetl.dsl.template import compile_condition, compile_template, is_template, read_sites
from noetl.dsl.template.syntax import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.playbook.routing import Arc
    from noetl.dsl.playbook.step import Step

_END = "end"
_ALWAYS = ("always",)
_NEVER = ("never",)
_LEAST_CHOICES = 2
# which of "less", "equal", "greater" a comparison accepts
_ACCEPTS = {"<": 1, "==": 2, "<=": 3, ">": 4, "!=": 5, ">=": 6}
_EVERYTHING = 7
_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_UNORDERED = (None, "", 0.0)


def step_without_next(subject: Subject) -> Iterator[Finding]:
    """A step without `next` beside a defined `end` (DSL201)."""
    playbook = subject.playbook
    if playbook.step(_END) is None:
        return
    for step in playbook.workflow:
        if not step.arcs and step.name not in {_END, playbook.final}:
            message = f"`{step.name}` has no `next` and never reaches `end`"
            yield at_value(message, entry(step, "step"))


def unbounded_loop(subject: Subject) -> Iterator[Finding]:
    """A parallel loop over a source of any size without `max_in_flight` (DSL209)."""
    for step in subject.playbook.workflow:
        loop = step.loop
        if loop is None or loop.mode != "parallel" or not isinstance(loop.source, str):
            continue
        is_open = is_template(loop.source) and read_sites(compile_template(loop.source))
        if is_open and (loop.spec is None or loop.spec.max_in_flight is None):
            message = f"the parallel loop of `{step.name}` has no `max_in_flight`"
            yield at_value(message, entry(loop, "in"))


# ---------------------------------------------------------------------------- arcs


def overlap_or_gap(subject: Subject) -> Iterator[Finding]:
    """Exclusive arcs of which one can never fire, or none may fire (DSL204)."""
    executor = subject.playbook.executor
    may_fail = bool(executor and executor.spec and executor.spec.no_next_is_error)
    for step in subject.playbook.workflow:
        if step.next is None or step.next.mode != "exclusive":
            continue
        conditions = [_condition(arc) for arc in step.arcs]
        yield from _overlaps(step, conditions)
        decided = may_fail or (step.next.spec and step.next.spec.on_no_match)
        if not decided and _leaves_gap(step, conditions):
            message = f"the arcs of `{step.name}` leave a gap: it may be that none fires"
            yield at_key(message, entry(step.next, "arcs"))


def _overlaps(step: Step, conditions: list[Any]) -> Iterator[Finding]:
    for index, arc in enumerate(step.arcs):
        for earlier in range(index):
            before = step.arcs[earlier]
            hides = outcome_of(before) in {"any", outcome_of(arc)}
            if hides and _covers(conditions[earlier], conditions[index]):
                message = f"the arc to `{arc.step}` never fires: arc {earlier + 1} does before it"
                yield at_value(message, entry(arc, "step"))
                break


def _covers(before: Any, after: Any) -> bool:  # noqa: ANN401 - nested tuples
    """Whether one condition holds wherever another does, as far as one can tell."""
    if after == _NEVER:
        return False
    if before in (_ALWAYS, after):
        return True
    operand, operator, limit = _bound(before)
    other, narrower, further = _bound(after)
    if operand is None or operand != other or operator[0] != narrower[0]:
        return False
    if further == limit:
        return operator in (narrower, f"{narrower}=")
    return (further > limit) == (operator[0] == ">")


def _bound(shape: Any) -> tuple[Any, str, float]:  # noqa: ANN401 - nested tuples
    """What a comparison with a number bounds, on which side, and where."""
    left, operator, right = _compared(shape) or _UNORDERED
    if operator not in _MIRROR:
        return _UNORDERED
    if _number(left) is not None:
        left, operator, right = right, _MIRROR[operator], left
    limit = _number(right)
    return _UNORDERED if limit is None else (left, operator, limit)


def _number(shape: Any) -> float | None:  # noqa: ANN401 - nested tuples
    """The number that a literal stands for."""
    if shape[:2] == ("Unary", "-"):
        found = _number(shape[2])
        return None if found is None else -found
    is_number = shape[0] == "Literal" and isinstance(shape[1], (int, float))
    return shape[1] if is_number and not isinstance(shape[1], bool) else None


def _leaves_gap(step: Step, conditions: list[Any]) -> bool:
    """Whether a successful step may find no arc, although it has a choice of them."""
    open_arcs = [
        condition
        for arc, condition in zip(step.arcs, conditions, strict=True)
        if outcome_of(arc) != "error" and condition != _NEVER and not _is_failure(condition)
    ]
    if len(open_arcs) < _LEAST_CHOICES:
        return False
    return not any(item == _ALWAYS or _is_success(item, step) for item in open_arcs) and not (
        _is_complete(open_arcs)
    )


def _condition(arc: Arc) -> Any:  # noqa: ANN401 - nested tuples
    """What an arc asks, comparable and without positions."""
    if arc.when is None or isinstance(arc.when, bool):
        return _NEVER if arc.when is False else _ALWAYS
    template = compile_condition(arc.when)
    if not template.is_expression:
        return ("text", arc.when)
    shape = _shape(next(part for part in template.body if isinstance(part, nodes.Emit)).value)
    if shape[0] == "Literal":
        return _ALWAYS if shape[1] is True else _NEVER if shape[1] is False else shape
    return shape


def _shape(node: Any) -> Any:  # noqa: ANN401 - a node, or what it holds
    """A node as nested tuples without its positions."""
    if isinstance(node, tuple):
        return tuple(_shape(item) for item in node)
    slots = [name for name in getattr(node, "__slots__", ()) if name != "offset"]
    if not slots:
        return node
    return (type(node).__name__, *(_shape(getattr(node, name)) for name in slots))


_EVENT_NAME = ("Attribute", ("Name", "event"), "name")
_STATUS = ("Attribute", ("Name", "output"), "status")


def _compared(shape: Any) -> tuple[Any, str, Any] | None:  # noqa: ANN401 - nested tuples
    """The two sides of a plain comparison and its operator."""
    if shape[0] != "Compare" or len(shape[2]) != 1:
        return None
    _, operator, right = shape[2][0]
    return shape[1], operator, right


def _is_success(shape: Any, step: Step) -> bool:  # noqa: ANN401 - nested tuples
    """Whether a condition holds after every success of this step."""
    word = "loop.done" if step.loop is not None else "call.done"
    return _compared(shape) in (
        (_EVENT_NAME, "==", ("Literal", word)),
        (_STATUS, "==", ("Literal", "ok")),
    )


def _is_failure(shape: Any) -> bool:  # noqa: ANN401 - nested tuples
    """Whether a condition holds after failures only."""
    return _compared(shape) in (
        (_EVENT_NAME, "==", ("Literal", "call.error")),
        (_STATUS, "==", ("Literal", "error")),
    )


def _is_complete(shapes: list[Any]) -> bool:
    """Whether one of the conditions holds whatever the values are, as far as one can tell."""
    accepted: dict[tuple[Any, Any], int] = {}
    for shape in shapes:
        if ("Unary", "not", shape) in shapes:
            return True
        found = _compared(shape)
        if found is None:
            continue
        left, operator, right = found
        if operator == "in" and ("Compare", left, (("Operand", "not in", right),)) in shapes:
            return True
        if repr(right) < repr(left):
            left, right, operator = right, left, _MIRROR.get(operator, operator)
        accepted[left, right] = accepted.get((left, right), 0) | _ACCEPTS.get(operator, 0)
    return _EVERYTHING in accepted.values()
