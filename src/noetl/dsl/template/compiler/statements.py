"""Statement nodes to closures that write into a list of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noetl.dsl.template.compiler.expressions import ExpressionCompiler
from noetl.dsl.template.compiler.frame import Evaluate, Frame, Run
from noetl.dsl.template.compiler.loops import LoopState
from noetl.dsl.template.errors import TemplateFailure
from noetl.dsl.template.filters.arguments import listed
from noetl.dsl.template.operators import is_truthy
from noetl.dsl.template.syntax import nodes
from noetl.dsl.template.tables import Namespace
from noetl.dsl.template.values import MISSING, Group, kind_of, plain, to_text

Assign = Callable[[Frame, object], None]

# Each turn of a loop pays for what stands in its body, so that a huge body ends as well.
_NODES_PER_FUEL: Final = 2


class StatementCompiler(ExpressionCompiler):
    """Compiles bodies of statements; every `for`, `with` and block has its own locals."""

    def body(self, body: nodes.Body) -> Run:
        """Return a closure that runs statements one after the other."""
        self.size += len(body)
        runs = [_COMPILERS[type(statement)](self, statement) for statement in body]

        def run(frame: Frame, out: list[str]) -> None:
            for statement in runs:
                statement(frame, out)

        return run

    def block(self, body: nodes.Body, prepare: Callable[[], None] | None = None) -> Run:
        """Return a closure that runs statements with locals of their own, unset at its start."""
        names = self.names
        before = set(names.definite)
        names.blocks.append({})
        if prepare is not None:
            prepare()
        kept = set(names.blocks[-1].values())
        inner = self.body(body)
        fresh = [slot for slot in names.blocks.pop().values() if slot not in kept]
        names.definite = before
        if not fresh:
            return inner

        def run(frame: Frame, out: list[str]) -> None:
            for slot in fresh:
                frame.slots[slot] = MISSING
            inner(frame, out)

        return run

    def target(self, target: nodes.Target) -> Assign:
        """Return a closure that writes a value to the names of a target."""
        if target.field is not None:
            return self._field(target, target.field)
        slots = [self.names.assign(name) for name in target.names]
        if not target.unpacks:
            (slot,) = slots

            def assign(frame: Frame, value: object) -> None:
                frame.slots[slot] = value

            return assign

        def unpack(frame: Frame, value: object) -> None:
            for slot, part in zip(slots, _parts(plain(value), len(slots), target), strict=True):
                frame.slots[slot] = part

        return unpack

    def _field(self, target: nodes.Target, field: str) -> Assign:
        namespace = self.expression(nodes.Name(target.names[0], target.offset))

        def assign(frame: Frame, value: object) -> None:
            found = namespace(frame)
            if not isinstance(found, Namespace):
                raise TemplateFailure(
                    f"only fields of a `namespace()` can be set, not of a {kind_of(plain(found))}",
                    target.offset,
                )
            found.change(field, plain(value), frame)

        return assign

    def captured(self, run: Run) -> Evaluate:
        """Return a closure that gives what statements write as one text."""

        def capture(frame: Frame) -> str:
            out: list[str] = []
            before, frame.written = frame.written, 0
            run(frame, out)
            frame.written = before
            return frame.text("".join(out))

        return capture

    def through(self, filters: nodes.Expression, source: Evaluate) -> Evaluate:
        """Return a closure that sends a text through the filters of a block."""
        slot = self.names.assign(nodes.BLOCK)
        chain = self.value(filters)

        def run(frame: Frame) -> object:
            frame.slots[slot] = source(frame)
            return chain(frame)

        return run


def _parts(value: object, count: int, target: nodes.Target) -> list[object]:
    if isinstance(value, Group):
        value = [value["grouper"], value["list"]]
    if not isinstance(value, (list, tuple, str, Mapping)) or len(value) != count:
        raise TemplateFailure(
            f"a {kind_of(value)} cannot be unpacked into {count} names", target.offset
        )
    return list(value)


def _text(_compiler: StatementCompiler, node: nodes.Text) -> Run:
    text = node.text

    def run(frame: Frame, out: list[str]) -> None:
        frame.write(text)
        out.append(text)

    return run


def _emit(compiler: StatementCompiler, node: nodes.Emit) -> Run:
    value = compiler.expression(node.value)

    def run(frame: Frame, out: list[str]) -> None:
        try:
            text = to_text(value(frame), frame)
            frame.write(text)
        except TemplateFailure as failure:
            raise failure.at(node.offset) from None
        out.append(text)

    return run


def _if(compiler: StatementCompiler, node: nodes.If) -> Run:
    names = compiler.names
    branches: list[tuple[Evaluate, Run]] = []
    outcomes: list[set[int]] = []
    for branch in node.branches:
        test = compiler.expression(branch.test)
        before = set(names.definite)
        branches.append((test, compiler.body(branch.body)))
        outcomes.append(names.definite)
        names.definite = before
    otherwise = compiler.body(node.otherwise)
    # A name is set for certain after the statement only when every way through it sets it.
    names.definite = names.definite.intersection(*outcomes)

    def run(frame: Frame, out: list[str]) -> None:
        for test, body in branches:
            if is_truthy(test(frame)):
                body(frame, out)
                return
        otherwise(frame, out)

    return run


def _for(compiler: StatementCompiler, node: nodes.For) -> Run:
    names = compiler.names
    source = compiler.value(node.source)
    assign: Assign
    condition: Evaluate | None = None
    loop_slot = size_of_condition = 0
    before = compiler.size

    def prepare() -> None:
        nonlocal assign, condition, loop_slot, size_of_condition
        assign = compiler.target(node.target)
        if node.condition is not None:
            condition = compiler.expression(node.condition)
            size_of_condition = compiler.size - before
        loop_slot = names.assign("loop")

    body = compiler.block(node.body, prepare)
    test_fuel = 1 + size_of_condition // _NODES_PER_FUEL
    turn_fuel = (compiler.size - before - size_of_condition) // _NODES_PER_FUEL
    # Its turns pay for the body, so a loop around this one need not.
    compiler.size = before
    otherwise = compiler.block(node.otherwise)
    has_loop = loop_slot in names.used

    def run(frame: Frame, out: list[str]) -> None:
        try:
            values = listed(frame, source(frame))
        except TemplateFailure as failure:
            raise failure.at(node.source.offset) from None
        if condition is not None:
            frame.spend(test_fuel * len(values))
            values = [value for value in values if _passes(frame, assign, value, condition)]
        frame.spend(turn_fuel * len(values))
        state = LoopState(values)
        if has_loop:
            frame.slots[loop_slot] = state
        for index, value in enumerate(values):
            assign(frame, value)
            state.index0 = index
            body(frame, out)
        if not values:
            otherwise(frame, out)

    return run


def _passes(frame: Frame, assign: Assign, value: object, condition: Evaluate) -> bool:
    assign(frame, value)
    return is_truthy(condition(frame))


def _set(compiler: StatementCompiler, node: nodes.Set) -> Run:
    value = compiler.expression(node.value)
    assign = compiler.target(node.target)
    return lambda frame, _out: assign(frame, value(frame))


def _set_block(compiler: StatementCompiler, node: nodes.SetBlock) -> Run:
    text = compiler.captured(compiler.block(node.body))
    if node.filters is not None:
        text = compiler.through(node.filters, text)
    assign = compiler.target(node.target)
    return lambda frame, _out: assign(frame, text(frame))


def _filter_block(compiler: StatementCompiler, node: nodes.FilterBlock) -> Run:
    text = compiler.through(node.filters, compiler.captured(compiler.block(node.body)))

    def run(frame: Frame, out: list[str]) -> None:
        written = to_text(text(frame), frame)
        frame.write(written)
        out.append(written)

    return run


def _with(compiler: StatementCompiler, node: nodes.With) -> Run:
    # The values see the names around the block, not each other.
    values = [compiler.expression(value) for _, value in node.assignments]
    assigns: list[Assign] = []

    def prepare() -> None:
        assigns.extend(compiler.target(target) for target, _ in node.assignments)

    body = compiler.block(node.body, prepare)

    def run(frame: Frame, out: list[str]) -> None:
        found = [value(frame) for value in values]
        for assign, value in zip(assigns, found, strict=True):
            assign(frame, value)
        body(frame, out)

    return run


_COMPILERS: Final[Mapping[type, Callable[[Any, Any], Run]]] = {
    nodes.Text: _text,
    nodes.Emit: _emit,
    nodes.If: _if,
    nodes.For: _for,
    nodes.Set: _set,
    nodes.SetBlock: _set_block,
    nodes.FilterBlock: _filter_block,
    nodes.With: _with,
}
