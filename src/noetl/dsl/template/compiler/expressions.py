"""The compiler of expressions: one function per kind of node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.template.compiler import calls, operations, paths
from noetl.dsl.template.compiler.frame import Evaluate, Frame, Names
from noetl.dsl.template.errors import TemplateSyntax, UndefinedName
from noetl.dsl.template.limits import DEPTH_LIMIT
from noetl.dsl.template.syntax import nodes
from noetl.dsl.template.values import MISSING, PLAIN_TYPES, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_COMPILERS: Final[Mapping[type, Callable[[Any, Any], Evaluate]]] = {
    nodes.Literal: operations.compile_literal,
    nodes.Name: paths.compile_path,
    nodes.Attribute: paths.compile_path,
    nodes.Subscript: paths.compile_path,
    nodes.ListOf: operations.compile_list,
    nodes.MapOf: operations.compile_map,
    nodes.Call: calls.compile_call,
    nodes.Filter: calls.compile_filter,
    nodes.Test: calls.compile_test,
    nodes.Unary: operations.compile_unary,
    nodes.Chain: operations.compile_chain,
    nodes.Compare: operations.compile_compare,
    nodes.Concat: operations.compile_concat,
    nodes.AllOf: operations.compile_all,
    nodes.AnyOf: operations.compile_any,
    nodes.Choice: operations.compile_choice,
}


class ExpressionCompiler:
    """Compiles expressions against the names that are known where they stand."""

    def __init__(self) -> None:
        """Start without locals."""
        self.names = Names()
        self.depth = 0
        self.size = 0

    def expression(self, node: nodes.Expression) -> Evaluate:
        """Return a closure that gives the value of an expression or fails."""
        self.depth += 1
        self.size += 1
        if self.depth > DEPTH_LIMIT:
            raise TemplateSyntax(
                f"the expression is nested deeper than {DEPTH_LIMIT} levels", node.offset
            )
        evaluate = _COMPILERS[type(node)](self, node)
        self.depth -= 1
        return evaluate

    def value(self, node: nodes.Expression) -> Evaluate:
        """Return a closure that gives the value as data, never as a view."""
        evaluate = self.expression(node)
        if isinstance(node, nodes.Literal):
            return evaluate

        def run(frame: Frame) -> object:
            value = evaluate(frame)
            return value if type(value) in PLAIN_TYPES else plain(value)

        return run

    def optional(self, node: nodes.Expression) -> Evaluate:
        """Return a closure that gives MISSING when something in the expression is undefined."""
        before, self.names.is_lenient = self.names.is_lenient, True
        evaluate = self.expression(node)
        self.names.is_lenient = before

        def run(frame: Frame) -> object:
            try:
                return evaluate(frame)
            except UndefinedName:
                return MISSING

        return run
