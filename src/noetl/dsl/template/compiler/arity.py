"""Checks the arguments of filters, tests and functions when a template is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from noetl.dsl.template.errors import TemplateSyntax

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from noetl.dsl.template.syntax import nodes

# CO_VARARGS and CO_VARKEYWORDS of `inspect`, whose import takes longer than that of this package.
_ANY_POSITIONAL: Final = 4
_ANY_NAMED: Final = 8


def check_arguments(
    function: Callable[..., object],
    given: int,
    node: nodes.Filter | nodes.Test | nodes.Call,
    what: str,
) -> None:
    """Fail unless the function, `given` leading arguments aside, can take those of the node."""
    known = cast("FunctionType", function)
    code = known.__code__
    parameters = code.co_varnames[given : code.co_argcount]
    positional = len(node.arguments.positional)
    named = [name for name, _ in node.arguments.named]
    if positional > len(parameters) and not code.co_flags & _ANY_POSITIONAL:
        raise TemplateSyntax(f"{what} takes at most {len(parameters)} arguments", node.offset)
    taken = set(parameters[:positional])
    unnamed = code.co_varnames[: code.co_posonlyargcount]
    for name in named:
        if name in taken and name not in unnamed:
            raise TemplateSyntax(f"{what}: the argument `{name}` is given twice", node.offset)
        if name not in parameters and not code.co_flags & _ANY_NAMED:
            raise TemplateSyntax(f"{what} has no argument `{name}`", node.offset)
    required = parameters[: len(parameters) - len(known.__defaults__ or ())]
    for name in required:
        if name not in taken and name not in named:
            raise TemplateSyntax(f"{what} needs the argument `{name}`", node.offset)
