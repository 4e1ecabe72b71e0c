"""Tokens to expression nodes, with the precedence of Jinja2."""

from __future__ import annotations

from typing import Final

from noetl.dsl.template.errors import TemplateSyntax
from noetl.dsl.template.limits import DEPTH_LIMIT
from noetl.dsl.template.syntax import nodes
from noetl.dsl.template.syntax.lexer import KEYWORDS, Token, constant

REFUSED_NAMES: Final = frozenset({"self", "super", "caller", "varargs", "kwargs"})

_OR: Final = 1
_AND: Final = 2
_NOT: Final = 3
_COMPARE: Final = 4
_CONCAT: Final = 6
_POWERS: Final = {
    "or": _OR,
    "and": _AND,
    "not": _COMPARE,
    "in": _COMPARE,
    "==": _COMPARE,
    "!=": _COMPARE,
    "<": _COMPARE,
    "<=": _COMPARE,
    ">": _COMPARE,
    ">=": _COMPARE,
    "+": 5,
    "-": 5,
    "~": _CONCAT,
    "*": 7,
    "/": 7,
    "//": 7,
    "%": 7,
    "**": 8,
}
# What may stand after `is name` without parentheses: `x is divisibleby 3`.
_TEST_ARGUMENT: Final = frozenset({"name", "constant", "string", "number", "(", "[", "{"})


class Expressions:
    """Reads expressions from a list of tokens that ends with `end`."""

    def __init__(self, tokens: list[Token]) -> None:
        """Start at the first token."""
        self.tokens = tokens
        self.index = 0
        self.depth = 0

    @property
    def kind(self) -> str:
        """The kind of the current token."""
        return self.tokens[self.index][0]

    def take(self) -> Token:
        """Return the current token and step over it."""
        token = self.tokens[self.index]
        self.index += 1
        return token

    def accept(self, kind: str) -> bool:
        """Step over a token of that kind when it is the current one."""
        if self.tokens[self.index][0] == kind:
            self.index += 1
            return True
        return False

    def accept_word(self, word: str) -> bool:
        """Step over a plain word such as `recursive` when it is the current token."""
        if self.tokens[self.index][:2] == ("name", word):
            self.index += 1
            return True
        return False

    def expect(self, kind: str) -> Token:
        """Return a token of that kind or fail."""
        if self.kind != kind:
            raise self.unexpected(f"expected `{kind}`")
        return self.take()

    def word(self, what: str) -> str:
        """Return an identifier; keywords are fine where only a name can stand."""
        kind, value, _ = self.tokens[self.index]
        if kind not in {"name", "constant"} and kind not in KEYWORDS:
            raise self.unexpected(f"expected {what}")
        self.index += 1
        return str(value)

    def unexpected(self, reason: str = "") -> TemplateSyntax:
        """Return the error about the current token."""
        kind, value, offset = self.tokens[self.index]
        found = "the end of the expression" if kind == "end" else f"`{value}`"
        message = f"{reason}, found {found}" if reason else f"unexpected {found}"
        return TemplateSyntax(message, offset)

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.kind != "end":
            raise self.unexpected()

    def tuple_or_expression(self, *, ternary: bool = True) -> nodes.Expression:
        """Read `a` or `a, b`; the second is a list."""
        offset = self.tokens[self.index][2]
        first = self.expression() if ternary else self.operation(_OR)
        if self.kind != ",":
            return first
        items = [first]
        while self.accept(","):
            if self.kind in {"end", ")", "="}:
                break
            items.append(self.expression() if ternary else self.operation(_OR))
        return nodes.ListOf(tuple(items), offset)

    def expression(self) -> nodes.Expression:
        """Read an expression: `a if b else c` or anything that binds tighter."""
        node = self.operation(_OR)
        while self.kind == "if":
            offset = self.take()[2]
            test = self.operation(_OR)
            node = nodes.Choice(test, node, self._otherwise(), offset)
        return node

    def _otherwise(self) -> nodes.Expression | None:
        if not self.accept("else"):
            return None
        self._enter()
        node = self.expression()
        self.depth -= 1
        return node

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise TemplateSyntax(
                f"the expression is nested deeper than {DEPTH_LIMIT} levels",
                self.tokens[self.index][2],
            )

    def operation(self, minimum: int) -> nodes.Expression:
        """Read operands joined by operators that bind at least as tight as `minimum`."""
        self._enter()
        if minimum <= _NOT and self.kind == "not":
            offset = self.take()[2]
            node: nodes.Expression = nodes.Unary("not", self.operation(_NOT), offset)
        else:
            node = self.unary()
        while (power := _POWERS.get(self.tokens[self.index][0], 0)) >= minimum:
            node = self._chain(node, power)
        self.depth -= 1
        return node

    def _chain(self, first: nodes.Expression, power: int) -> nodes.Expression:
        """Read all further operands of one precedence."""
        offset = self.tokens[self.index][2]
        rest: list[nodes.Operand] = []
        while _POWERS.get(self.kind) == power:
            operator, _, at = self.take()
            if operator == "not":
                self.expect("in")
                operator = "not in"
            rest.append(nodes.Operand(operator, self.operation(power + 1), at))
        if power > _COMPARE and power != _CONCAT:
            return nodes.Chain(first, tuple(rest), offset)
        if power == _COMPARE:
            return nodes.Compare(first, tuple(rest), offset)
        parts = (first, *(operand.value for operand in rest))
        if power == _CONCAT:
            return nodes.Concat(parts, offset)
        return nodes.AllOf(parts, offset) if power == _AND else nodes.AnyOf(parts, offset)

    def unary(self, *, filters: bool = True) -> nodes.Expression:
        """Read a sign and its operand, then attributes, calls, filters and tests."""
        kind, _, offset = self.tokens[self.index]
        if kind in {"-", "+"}:
            self.index += 1
            self._enter()
            node: nodes.Expression = nodes.Unary(kind, self.unary(filters=False), offset)
            self.depth -= 1
        else:
            node = self.primary()
        node = self.postfix(node)
        return self.filtered(node) if filters else node

    def primary(self) -> nodes.Expression:
        """Read a name, a literal, or something in brackets."""
        kind, value, offset = self.tokens[self.index]
        if kind == "name":
            if value in REFUSED_NAMES:
                raise TemplateSyntax(f"`{value}` does not exist in templates", offset)
            self.index += 1
            return nodes.Name(str(value), offset)
        if kind == "number":
            self.index += 1
            return nodes.Literal(value, offset)
        if kind == "string":
            return self._string()
        if kind == "constant":
            self.index += 1
            return nodes.Literal(constant(value), offset)
        if kind == "(":
            return self._parentheses()
        if kind == "[":
            self.index += 1
            return nodes.ListOf(self._items("]"), offset)
        if kind == "{":
            return self._map()
        raise self.unexpected("expected an expression")

    def _string(self) -> nodes.Literal:
        _, value, offset = self.take()
        parts = [str(value)]
        while self.kind == "string":
            parts.append(str(self.take()[1]))
        return nodes.Literal("".join(parts), offset)

    def _parentheses(self) -> nodes.Expression:
        offset = self.take()[2]
        if self.accept(")"):
            return nodes.ListOf((), offset)
        node = self.tuple_or_expression()
        self.expect(")")
        return node

    def _items(self, closing: str) -> tuple[nodes.Expression, ...]:
        items: list[nodes.Expression] = []
        while not self.accept(closing):
            if items:
                self.expect(",")
                if self.accept(closing):
                    break
            items.append(self.expression())
        return tuple(items)

    def _map(self) -> nodes.MapOf:
        offset = self.take()[2]
        pairs: list[tuple[nodes.Expression, nodes.Expression]] = []
        while not self.accept("}"):
            if pairs:
                self.expect(",")
                if self.accept("}"):
                    break
            key = self.expression()
            self.expect(":")
            pairs.append((key, self.expression()))
        return nodes.MapOf(tuple(pairs), offset)

    def postfix(self, node: nodes.Expression) -> nodes.Expression:
        """Read attributes, subscripts and calls."""
        while True:
            kind, _, offset = self.tokens[self.index]
            if kind == ".":
                self.index += 1
                node = self._attribute(node, offset)
            elif kind == "[":
                self.index += 1
                node = nodes.Subscript(node, self._subscript(), offset)
            elif kind == "(":
                node = nodes.Call(node, self.arguments(), offset)
            else:
                return node

    def _attribute(self, base: nodes.Expression, offset: int) -> nodes.Expression:
        kind, value, at = self.tokens[self.index]
        if kind == "number" and isinstance(value, int):
            self.index += 1
            return nodes.Subscript(base, nodes.Literal(value, at), offset)
        return nodes.Attribute(base, self.word("a name after `.`"), offset)

    def _subscript(self) -> nodes.Expression:
        offset = self.tokens[self.index][2]
        parts: list[nodes.Expression | None] = [None, None, None]
        count = 0
        if self.kind != ":":
            parts[0] = self.expression()
        while count < len(parts) - 1 and self.accept(":"):
            count += 1
            if self.kind not in {":", "]"}:
                parts[count] = self.expression()
        self.expect("]")
        if count == 0 and parts[0] is not None:
            return parts[0]
        return nodes.Slice(parts[0], parts[1], parts[2], offset)

    def arguments(self) -> nodes.Arguments:
        """Read `(a, b, c=d)`."""
        self.expect("(")
        positional: list[nodes.Expression] = []
        named: list[tuple[str, nodes.Expression]] = []
        while not self.accept(")"):
            if positional or named:
                self.expect(",")
                if self.accept(")"):
                    break
            if self.kind in {"*", "**"}:
                raise self.unexpected("arguments are not unpacked")
            if self.kind == "name" and self.tokens[self.index + 1][0] == "=":
                name = str(self.take()[1])
                self.index += 1
                if any(name == known for known, _ in named):
                    raise self.unexpected(f"the argument `{name}` is given twice")
                named.append((name, self.expression()))
            elif named:
                raise self.unexpected("expected a named argument")
            else:
                positional.append(self.expression())
        if len(positional) > DEPTH_LIMIT:
            # `map('map', 'map', ...)` nests one level per argument.
            raise self.unexpected(f"more than {DEPTH_LIMIT} arguments")
        return nodes.Arguments(tuple(positional), tuple(named))

    def filtered(self, node: nodes.Expression) -> nodes.Expression:
        """Read filters and tests."""
        while True:
            kind = self.tokens[self.index][0]
            if kind == "|":
                self.index += 1
                node = self.filter(node)
            elif kind == "is":
                node = self._test(node)
            elif kind == "(":
                raise self.unexpected("the value of a filter or test cannot be called")
            else:
                return node

    def filter(self, base: nodes.Expression) -> nodes.Filter:
        """Read `name(...)` after a bar."""
        offset = self.tokens[self.index][2]
        name = self._dotted("the name of a filter")
        arguments = self.arguments() if self.kind == "(" else nodes.Arguments()
        return nodes.Filter(base, name, arguments, offset)

    def _dotted(self, what: str) -> str:
        name = self.word(what)
        while self.accept("."):
            name += "." + self.word(what)
        return name

    def _test(self, base: nodes.Expression) -> nodes.Expression:
        self.expect("is")
        negated = self.accept("not")
        offset = self.tokens[self.index][2]
        name = self._dotted("the name of a test")
        arguments = nodes.Arguments()
        if self.kind == "(":
            arguments = self.arguments()
        elif self.kind == "is":
            raise self.unexpected("tests are not chained")
        elif self.kind in _TEST_ARGUMENT:
            arguments = nodes.Arguments((self.postfix(self.primary()),))
        test = nodes.Test(base, name, arguments, offset)
        return nodes.Unary("not", test, offset) if negated else test
