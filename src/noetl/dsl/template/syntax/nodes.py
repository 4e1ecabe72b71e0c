"""The syntax tree of a template; every node knows its offset in the text.

Thousands are made when a large playbook is checked, so the classes are slotted and have nothing
but a constructor: frozen ones take twice the time to make and to import. Nothing changes a node.
"""

from __future__ import annotations

from dataclasses import dataclass

# The local that holds the text of a block for its filters; no author can write such a name.
BLOCK = "{block}"


@dataclass(slots=True, eq=False, repr=False)
class Literal:
    """A number, text, bool or null."""

    value: object
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Name:
    """A name read from the locals or the scope."""

    name: str
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Attribute:
    """`base.name`."""

    base: Expression
    name: str
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Subscript:
    """`base[key]`."""

    base: Expression
    key: Expression
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Slice:
    """`start:stop:step` inside a subscript."""

    start: Expression | None
    stop: Expression | None
    step: Expression | None
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class ListOf:
    """`[a, b]` or `(a, b)`."""

    items: tuple[Expression, ...]
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class MapOf:
    """`{key: value}`."""

    pairs: tuple[tuple[Expression, Expression], ...]
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Arguments:
    """What stands between the parentheses of a call, filter or test."""

    positional: tuple[Expression, ...] = ()
    named: tuple[tuple[str, Expression], ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """`function(...)` or `base.method(...)`."""

    function: Expression
    arguments: Arguments
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Filter:
    """`base | name(...)`."""

    base: Expression
    name: str
    arguments: Arguments
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Test:
    """`base is name(...)`."""

    base: Expression
    name: str
    arguments: Arguments
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Unary:
    """`-x`, `+x` or `not x`."""

    operator: str
    operand: Expression
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Operand:
    """One further operand of a chain, with the operator before it."""

    operator: str
    value: Expression
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Chain:
    """Arithmetic of one precedence, from left to right: flat, so a long sum is not deep."""

    first: Expression
    rest: tuple[Operand, ...]
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Compare:
    """`a < b <= c`."""

    first: Expression
    rest: tuple[Operand, ...]
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Concat:
    """`a ~ b ~ c`."""

    parts: tuple[Expression, ...]
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class AllOf:
    """`a and b and c`."""

    parts: tuple[Expression, ...]
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class AnyOf:
    """`a or b or c`."""

    parts: tuple[Expression, ...]
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Choice:
    """`then if test else otherwise`."""

    test: Expression
    then: Expression
    otherwise: Expression | None
    offset: int


Expression = (
    Literal
    | Name
    | Attribute
    | Subscript
    | Slice
    | ListOf
    | MapOf
    | Call
    | Filter
    | Test
    | Unary
    | Chain
    | Compare
    | Concat
    | AllOf
    | AnyOf
    | Choice
)


@dataclass(slots=True, eq=False, repr=False)
class Text:
    """Text outside of expressions and statements."""

    text: str
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Emit:
    """`{{ expression }}`."""

    value: Expression
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Branch:
    """One `if` or `elif` with its body."""

    test: Expression
    body: Body


@dataclass(slots=True, eq=False, repr=False)
class If:
    """`{% if %}` with its `elif` branches and the `else` body."""

    branches: tuple[Branch, ...]
    otherwise: Body
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Target:
    """What an assignment writes: one name, several names, or a field of a namespace."""

    names: tuple[str, ...]
    offset: int
    unpacks: bool = False
    field: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class For:
    """`{% for target in source if condition %}` with its `else` body."""

    target: Target
    source: Expression
    condition: Expression | None
    body: Body
    otherwise: Body
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class Set:
    """`{% set target = value %}`."""

    target: Target
    value: Expression
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class SetBlock:
    """`{% set target | filters %}body{% endset %}`; the filters start at the name BLOCK."""

    target: Target
    filters: Expression | None
    body: Body
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class FilterBlock:
    """`{% filter filters %}body{% endfilter %}`; the filters start at the name BLOCK."""

    filters: Expression
    body: Body
    offset: int


@dataclass(slots=True, eq=False, repr=False)
class With:
    """`{% with a = 1, b = 2 %}body{% endwith %}`."""

    assignments: tuple[tuple[Target, Expression], ...]
    body: Body
    offset: int


Statement = Text | Emit | If | For | Set | SetBlock | FilterBlock | With
Body = tuple[Statement, ...]
