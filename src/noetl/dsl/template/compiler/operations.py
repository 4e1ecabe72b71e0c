"""Operators, literals of lists and maps, and choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.template.errors import LimitExceeded, TemplateFailure
from noetl.dsl.template.limits import check_length
from noetl.dsl.template.operators import (
    ARITHMETIC,
    COMPARISONS,
    is_large,
    is_truthy,
    keep_sign,
    negate,
)
from noetl.dsl.template.values import PLAIN_TYPES, kind_of, plain, to_text

if TYPE_CHECKING:
    from noetl.dsl.template.compiler.frame import Compiling, Evaluate, Frame
    from noetl.dsl.template.syntax import nodes

# How many keys of one map may be numbers that an author can choose to have the same hash.
_LARGE_KEYS: Final = 64
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def compile_literal(_compiler: Compiling, node: nodes.Literal) -> Evaluate:
    """Compile a constant."""
    value = node.value
    return lambda _frame: value


def compile_list(compiler: Compiling, node: nodes.ListOf) -> Evaluate:
    """Compile `[a, b]`."""
    items = [compiler.value(item) for item in node.items]
    count = len(items)

    def run(frame: Frame) -> object:
        frame.hold(count)
        return [item(frame) for item in items]

    return run


def compile_map(compiler: Compiling, node: nodes.MapOf) -> Evaluate:
    """Compile `{key: value}`; keys are scalars."""
    pairs = [(compiler.value(key), compiler.value(value)) for key, value in node.pairs]

    def run(frame: Frame) -> object:
        frame.hold(len(pairs))
        result: dict[object, object] = {}
        large = 0
        for key, value in pairs:
            name = key(frame)
            if type(name) is not str:
                large += _is_large_key(name, node.offset)
            result[name] = value(frame)
        if large > _LARGE_KEYS:
            raise LimitExceeded(f"a map has more than {_LARGE_KEYS} huge numbers as keys")
        return result

    return run


def _is_large_key(key: object, offset: int) -> bool:
    """Return whether a key is a number so large that many such ones may have the same hash."""
    if type(key) not in _SCALARS:
        raise TemplateFailure(f"a {kind_of(key)} cannot be the key of a map", offset)
    return isinstance(key, (int, float)) and is_large(key)


def compile_unary(compiler: Compiling, node: nodes.Unary) -> Evaluate:
    """Compile `not x`, `-x` and `+x`."""
    operand = compiler.expression(node.operand)
    if node.operator == "not":
        return lambda frame: not is_truthy(operand(frame))
    change = negate if node.operator == "-" else keep_sign

    def run(frame: Frame) -> object:
        try:
            return change(plain(operand(frame)), frame)
        except TemplateFailure as failure:
            raise failure.at(node.offset) from None

    return run


def compile_chain(compiler: Compiling, node: nodes.Chain) -> Evaluate:
    """Compile arithmetic of one precedence from left to right."""
    first = compiler.value(node.first)
    rest = [
        (ARITHMETIC[operand.operator], compiler.value(operand.value), operand.offset)
        for operand in node.rest
    ]

    def run(frame: Frame) -> object:
        result = first(frame)
        for compute, operand, offset in rest:
            right = operand(frame)
            try:
                result = compute(result, right, frame)
            except TemplateFailure as failure:
                raise failure.at(offset) from None
        return result

    return run


def compile_compare(compiler: Compiling, node: nodes.Compare) -> Evaluate:
    """Compile comparisons; a chain stops at the first that is false."""
    first = compiler.value(node.first)
    rest = [
        (COMPARISONS[operand.operator], compiler.value(operand.value), operand.offset)
        for operand in node.rest
    ]

    def run(frame: Frame) -> object:
        left = first(frame)
        for compare, operand, offset in rest:
            right = operand(frame)
            try:
                if not compare(left, right, frame):
                    return False
            except TemplateFailure as failure:
                raise failure.at(offset) from None
            left = right
        return True

    return run


def compile_concat(compiler: Compiling, node: nodes.Concat) -> Evaluate:
    """Compile `a ~ b`."""
    parts = [compiler.expression(part) for part in node.parts]

    def run(frame: Frame) -> object:
        texts: list[str] = []
        total = 0
        try:
            for part in parts:
                text = to_text(part(frame), frame)
                total += len(text)
                check_length(total)
                texts.append(text)
            return frame.text("".join(texts))
        except TemplateFailure as failure:
            raise failure.at(node.offset) from None

    return run


def compile_all(compiler: Compiling, node: nodes.AllOf) -> Evaluate:
    """Compile `a and b`: the first value that is false, else the last."""
    *parts, last = [compiler.expression(part) for part in node.parts]

    def run(frame: Frame) -> object:
        for part in parts:
            value = part(frame)
            if not (value if type(value) in PLAIN_TYPES else is_truthy(value)):
                return value
        return last(frame)

    return run


def compile_any(compiler: Compiling, node: nodes.AnyOf) -> Evaluate:
    """Compile `a or b`: the first value that is true, else the last."""
    *parts, last = [compiler.expression(part) for part in node.parts]

    def run(frame: Frame) -> object:
        for part in parts:
            value = part(frame)
            if value if type(value) in PLAIN_TYPES else is_truthy(value):
                return value
        return last(frame)

    return run


def compile_choice(compiler: Compiling, node: nodes.Choice) -> Evaluate:
    """Compile `a if test else b`; without `else` the other value is null."""
    test = compiler.expression(node.test)
    then = compiler.expression(node.then)
    otherwise = compiler.expression(node.otherwise) if node.otherwise is not None else _null
    return lambda frame: then(frame) if is_truthy(test(frame)) else otherwise(frame)


def _null(_frame: Frame) -> None:
    return None
