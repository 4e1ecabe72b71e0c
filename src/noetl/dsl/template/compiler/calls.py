"""Calls of functions and methods, filters and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.template.access import is_forbidden, refuse
from noetl.dsl.template.compiler.arity import check_arguments
from noetl.dsl.template.compiler.loops import LoopState
from noetl.dsl.template.compiler.paths import display
from noetl.dsl.template.errors import TemplateFailure, TemplateSyntax, UndefinedName
from noetl.dsl.template.methods import find_method
from noetl.dsl.template.operators import is_truthy
from noetl.dsl.template.syntax import nodes
from noetl.dsl.template.tables import FILTERS, FUNCTIONS, PREDICATES, find
from noetl.dsl.template.values import MISSING, PLAIN_TYPES, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.dsl.template.compiler.frame import Compiling, Evaluate, Frame

# What a wrong argument makes Python's own functions raise.
_TRANSLATED: Final = (TypeError, ValueError, ArithmeticError, LookupError)
# Filters that apply another one, with the place of the argument that names it.
_INDIRECT: Final = {
    "map": (0, FILTERS, "filter"),
    "select": (0, PREDICATES, "test"),
    "reject": (0, PREDICATES, "test"),
    "selectattr": (1, PREDICATES, "test"),
    "rejectattr": (1, PREDICATES, "test"),
}


class _Values:
    """The compiled arguments of a call."""

    __slots__ = ("named", "positional")

    def __init__(self, compiler: Compiling, arguments: nodes.Arguments) -> None:
        self.positional = [compiler.value(value) for value in arguments.positional]
        self.named = [(name, compiler.value(value)) for name, value in arguments.named]

    def invoke(
        self, function: Callable[..., object], frame: Frame, label: str, offset: int, *lead: object
    ) -> object:
        """Evaluate the arguments, call, and translate what Python raises."""
        args = [value(frame) for value in self.positional]
        named = {name: value(frame) for name, value in self.named}
        frame.spend(1)
        try:
            return function(frame, *lead, *args, **named)
        except TemplateFailure as failure:
            raise failure.at(offset) from None
        except _TRANSLATED as error:
            raise TemplateFailure(f"`{label}`: {error}", offset) from None


def compile_call(compiler: Compiling, node: nodes.Call) -> Evaluate:
    """Compile `function(...)` or `value.method(...)`."""
    target = node.function
    if isinstance(target, nodes.Attribute):
        return _method(compiler, node, target)
    if not isinstance(target, nodes.Name) or target.name not in FUNCTIONS:
        hint = "functions are " + ", ".join(sorted(FUNCTIONS))
        raise TemplateSyntax(f"`{display(target)}` is not a function", node.offset, hint=hint)
    name = target.name
    compiler.names.functions.append((name, target.offset))
    function = FUNCTIONS[name]
    check_arguments(function, 1, node, f"`{name}`")
    values = _Values(compiler, node.arguments)
    return lambda frame: values.invoke(function, frame, name, node.offset)


def _method(compiler: Compiling, node: nodes.Call, target: nodes.Attribute) -> Evaluate:
    base = compiler.expression(target.base)
    name = target.name
    values = _Values(compiler, node.arguments)

    def run(frame: Frame) -> object:
        if is_forbidden(name):
            raise refuse(name).at(target.offset)
        value = base(frame)
        if isinstance(value, LoopState):
            loop = value
            return values.invoke(
                lambda meter, *args: loop.call(name, args, meter), frame, name, node.offset
            )
        value = plain(value)
        if value is None:
            raise UndefinedName(display(target), target.offset)
        try:
            method = find_method(value, name)
        except TemplateFailure as failure:
            raise failure.at(target.offset) from None
        return values.invoke(method, frame, name, node.offset, value)

    return run


def compile_filter(compiler: Compiling, node: nodes.Filter) -> Evaluate:
    """Compile `value | name(...)`."""
    function = find(FILTERS, node.name, "filter", node.offset)
    check_arguments(function, 2, node, f"the filter `{node.name}`")
    if node.name in {"default", "d"}:
        return _default(compiler, node)
    _check_indirect(node)
    base = compiler.value(node.base)
    values = _Values(compiler, node.arguments)
    name, offset = node.name, node.offset

    def run(frame: Frame) -> object:
        result = values.invoke(function, frame, name, offset, base(frame))
        if result is MISSING:
            raise UndefinedName(display(node), offset)
        return result

    return run


def _check_indirect(node: nodes.Filter) -> None:
    place, table, what = _INDIRECT.get(node.name, (0, FILTERS, ""))
    positional = node.arguments.positional
    if what and len(positional) > place:
        argument = positional[place]
        if isinstance(argument, nodes.Literal):
            find(table, str(argument.value), what, argument.offset)


def _default(compiler: Compiling, node: nodes.Filter) -> Evaluate:
    """Compile `default`: its input may be undefined, its argument is evaluated when needed."""
    optional = compiler.optional(node.base)
    given = dict(zip(("default_value", "boolean"), node.arguments.positional, strict=False))
    given.update(node.arguments.named)
    other = given.get("default_value")
    flag = given.get("boolean")
    fallback: Evaluate = compiler.expression(other) if other is not None else lambda _frame: ""
    boolean = compiler.expression(flag) if flag is not None else None

    def run(frame: Frame) -> object:
        frame.spend(1)
        value = optional(frame)
        if value is MISSING:
            return fallback(frame)
        if boolean is not None and is_truthy(boolean(frame)) and not is_truthy(value):
            return fallback(frame)
        return value

    return run


def compile_test(compiler: Compiling, node: nodes.Test) -> Evaluate:
    """Compile `value is name(...)`."""
    function = find(PREDICATES, node.name, "test", node.offset)
    check_arguments(function, 2, node, f"the test `{node.name}`")
    if node.name in {"defined", "undefined"}:
        optional = compiler.optional(node.base)
        wanted = node.name == "defined"
        return lambda frame: (optional(frame) is not MISSING) is wanted
    base = compiler.expression(node.base)
    values = _Values(compiler, node.arguments)
    name, offset = node.name, node.offset

    def run(frame: Frame) -> object:
        value = base(frame)
        data = value if type(value) in PLAIN_TYPES else plain(value)
        return values.invoke(function, frame, name, offset, data)

    return run
