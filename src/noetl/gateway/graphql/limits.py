"""What a document may ask for: measured before anything of it is looked at by a resolver.

The text is counted first, which needs no tree: a text with too many or too deeply nested parts is
never parsed. The tree is measured next, fragments once each, so that neither a cycle nor a
doubling takes time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLSyntaxError,
    IntValueNode,
    OperationDefinitionNode,
    VariableNode,
    parse,
)

from noetl.gateway.errors import TOO_LARGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphql import DocumentNode, SelectionSetNode

MOST_BYTES: Final = 1 << 20
MOST_DEPTH: Final = 10
MOST_TOKENS: Final = 2000
MOST_ALIASES: Final = 15
MOST_ROOTS: Final = 10
MOST_COST: Final = 1000
MOST_S: Final = 30.0
MOST_NESTED: Final = 60
"""Brackets that are open at once: of selections, of arguments and of values in them."""
MOST_CHAIN: Final = 50
"""Fragments that are spread in each other."""
_TOKEN: Final = re.compile(
    r'"""(?:\\"""|[^"\\]|\\(?!""")|"{1,2}(?!"))*+(?:"""|\Z)'
    r'|"(?:\\.|[^"\\\n\r])*+"?'
    r"|\#[^\n\r]*+"
    r"|[_A-Za-z][_0-9A-Za-z]*+"
    r"|-?[0-9][0-9A-Za-z_.+-]*+"
    r"|\.\.\.|[!$&()*:=@\[\]{|}]",
    re.DOTALL,
)
_OPEN: Final = frozenset("{[(")
_CLOSE: Final = frozenset("}])")
_PAGE: Final = frozenset({"items", "nextCursor"})
"""What holds a page together; only what is in it costs."""
_META: Final = frozenset({"__schema", "__type"})
_CHAINED: Final = "ofType"
"""A chain of wrapped types: as long as the schema has it, and never wider."""


class LimitExceeded(Exception):
    """A document asks for more than anybody may."""

    word: Final = "LIMIT_EXCEEDED"
    rpc_code: Final = TOO_LARGE

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def parsed(text: str) -> DocumentNode:
    """The tree of a text that is not too long."""
    _must_be_short(text)
    try:
        return parse(text, max_lexical_tokens=MOST_TOKENS)
    except GraphQLSyntaxError as fault:
        if "nested too deeply" in fault.message:
            raise _over("depth", MOST_DEPTH) from None
        raise


def _must_be_short(text: str) -> None:
    count = nested = 0
    for found in _TOKEN.finditer(text):
        first = found[0][0]
        if first == "#":
            continue
        count += 1
        if count > MOST_TOKENS:
            raise _over("tokens", MOST_TOKENS)
        if first in _OPEN:
            nested += 1
            if nested > MOST_NESTED:
                raise _over("depth", MOST_DEPTH)
        elif first in _CLOSE:
            nested -= 1


@dataclass(frozen=True, slots=True)
class Size:
    """How much some selections ask for."""

    depth: int = 0
    cost: int = 0
    aliases: int = 0
    roots: int = 0

    def beside(self, other: Size) -> Size:
        """Both of them."""
        return Size(
            max(self.depth, other.depth),
            self.cost + other.cost,
            self.aliases + other.aliases,
            self.roots + other.roots,
        )


def must_fit(
    document: DocumentNode, variables: Mapping[str, Any], pages: Mapping[str, int]
) -> None:
    """Refuse a tree that asks for too much; `pages` are fields with `first`, and its default."""
    try:
        _must_fit(document, variables, pages)
    except RecursionError:
        raise _over("depth", MOST_DEPTH) from None


def _must_fit(
    document: DocumentNode, variables: Mapping[str, Any], pages: Mapping[str, int]
) -> None:
    fragments = {
        one.name.value: one
        for one in document.definitions
        if isinstance(one, FragmentDefinitionNode)
    }
    for one in document.definitions:
        if isinstance(one, OperationDefinitionNode):
            given = {**_defaults(one), **variables}
            _must_be_small(_Measure(fragments, given, pages).of(one.selection_set))
    for name in fragments:  # those that nobody spreads have to end as well
        _Measure(fragments, variables, pages).spread(name)


def _must_be_small(size: Size) -> None:
    for name, value, most in (
        ("depth", size.depth, MOST_DEPTH),
        ("aliases", size.aliases, MOST_ALIASES),
        ("root fields", size.roots, MOST_ROOTS),
        ("cost", size.cost, MOST_COST),
    ):
        if value > most:
            raise _over(name, most)


class _Measure:
    """Measures the selections of one operation; each fragment is measured once."""

    def __init__(
        self,
        fragments: Mapping[str, FragmentDefinitionNode],
        variables: Mapping[str, Any],
        pages: Mapping[str, int],
    ) -> None:
        self._fragments = fragments
        self._variables = variables
        self._pages = pages
        self._known: dict[str, Size] = {}
        self._within: list[str] = []

    def of(self, selections: SelectionSetNode | None, depth: int = 1) -> Size:
        """The size of a set of selections that stands so deep."""
        if depth > MOST_NESTED:
            raise _over("depth", MOST_DEPTH)
        size, seen = Size(), set[str]()
        for one in selections.selections if selections is not None else ():
            if isinstance(one, FieldNode):
                part = self._field(one, depth)
                name = (one.alias or one.name).value
                if one.alias is not None or name in seen:  # one field asked for more than once
                    part = Size(part.depth, part.cost, part.aliases + 1, part.roots)
                seen.add(name)
            elif isinstance(one, FragmentSpreadNode):
                part = self.spread(one.name.value)
            else:
                part = self.of(getattr(one, "selection_set", None), depth + 1)
            size = size.beside(part)
        return size

    def spread(self, name: str) -> Size:
        """The size of a fragment."""
        if name in self._known:
            return self._known[name]
        if name in self._within:
            raise LimitExceeded("a fragment spreads itself")
        if len(self._within) >= MOST_CHAIN:
            raise _over("chain of fragments", MOST_CHAIN)
        found = self._fragments.get(name)
        if found is None:
            return Size()
        self._within.append(name)
        self._known[name] = size = self.of(found.selection_set)
        self._within.pop()
        return size

    def _field(self, field: FieldNode, depth: int) -> Size:
        name = field.name.value
        below = self.of(field.selection_set, depth + 1)
        if name in _META:  # the schema is not long, and its rule bounds how often it comes
            return Size(below.depth + 1, 1, below.aliases, 1)
        own = 0 if name in _PAGE else 1
        cost = below.cost * self._first(field) if name in self._pages else below.cost
        return Size(below.depth + (name != _CHAINED), own + cost, below.aliases, 1)

    def _first(self, field: FieldNode) -> int:
        """How many a list is asked for."""
        for argument in field.arguments or ():
            if argument.name.value != "first":
                continue
            value: Any = argument.value
            if isinstance(value, IntValueNode):
                return max(1, int(value.value[:10]))
            if isinstance(value, VariableNode):
                given = self._variables.get(value.name.value)
                if isinstance(given, int):
                    return max(1, given)
        return self._pages[field.name.value]


def _defaults(operation: OperationDefinitionNode) -> dict[str, int]:
    """Numbers that variables have when nobody gives them."""
    return {
        one.variable.name.value: int(one.default_value.value[:10])
        for one in operation.variable_definitions or ()
        if isinstance(one.default_value, IntValueNode)
    }


def _over(name: str, most: int) -> LimitExceeded:
    return LimitExceeded(f"the {name} of the document is over {most}")
