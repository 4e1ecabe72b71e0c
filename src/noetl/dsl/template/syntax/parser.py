"""Pieces of a template to statement nodes."""

from __future__ import annotations

import re
from typing import Final

from noetl.dsl.template.errors import TemplateSyntax
from noetl.dsl.template.limits import DEPTH_LIMIT
from noetl.dsl.template.syntax import nodes
from noetl.dsl.template.syntax.expressions import REFUSED_NAMES, Expressions
from noetl.dsl.template.syntax.lexer import CONSTANTS, KEYWORDS, Piece, condition_tokens, pieces

_REFUSED_TAGS: Final = frozenset(
    [
        "macro",
        "call",
        "block",
        "extends",
        "include",
        "import",
        "from",
        "do",
        "debug",
        "autoescape",
        "trans",
        "pluralize",
    ]
)
_ENDS: Final = frozenset(
    ["elif", "else", "endif", "endfor", "endset", "endfilter", "endwith", "endraw"]
)
_PATH: Final = re.compile(r"\s*\{\{-?\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*-?\}\}\s*\Z", re.ASCII)
# Words that the fast reading of a plain path must leave to the parser.
_NOT_NAMES: Final = REFUSED_NAMES | KEYWORDS | frozenset(CONSTANTS)


def parse(text: str) -> nodes.Body:
    """Return the statements of a template."""
    path = _PATH.match(text)
    if path is not None:
        node = _path(path[1], path.start(1))
        if node is not None:
            return (nodes.Emit(node, text.index("{")),)
    return _Statements(pieces(text)).document()


def _path(path: str, offset: int) -> nodes.Expression | None:
    """Return the nodes of `a.b.c`, by far the most frequent expression, without tokens."""
    first, *rest = path.split(".")
    if first in _NOT_NAMES:
        return None
    node: nodes.Expression = nodes.Name(first, offset)
    offset += len(first)
    for name in rest:
        node = nodes.Attribute(node, name, offset)
        offset += len(name) + 1
    return node


def parse_condition(text: str) -> nodes.Expression:
    """Return the node of a text that is one bare expression."""
    return _whole(Expressions(condition_tokens(text)))


def _whole(reader: Expressions) -> nodes.Expression:
    node = reader.tuple_or_expression()
    reader.finish()
    return node


class _Statements:
    """Reads statements from the pieces of a template."""

    def __init__(self, found: list[Piece]) -> None:
        self.pieces = found
        self.index = 0
        self.depth = 0

    def document(self) -> nodes.Body:
        body: list[nodes.Statement] = []
        while self.index < len(self.pieces):
            body.append(self.statement(self.next()))
        return tuple(body)

    def next(self) -> Piece:
        self.index += 1
        return self.pieces[self.index - 1]

    def statement(self, piece: Piece) -> nodes.Statement:
        if piece.kind == "text":
            return nodes.Text(piece.text, piece.offset)
        if piece.kind == "emit":
            return nodes.Emit(_whole(Expressions(piece.tokens)), piece.offset)
        return self.tag(Expressions(piece.tokens), piece)

    def closed(self, ends: str, opening: Piece) -> tuple[nodes.Body, Expressions, str]:
        """Read a body up to one of its end tags; return it, the reader of that tag, its name."""
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise TemplateSyntax(
                f"statements are nested deeper than {DEPTH_LIMIT} levels", opening.offset
            )
        body: list[nodes.Statement] = []
        while self.index < len(self.pieces):
            piece = self.next()
            if piece.kind == "tag" and piece.tokens[0][1] in ends.split():
                self.depth -= 1
                reader = Expressions(piece.tokens)
                word = reader.word("a tag")
                if word != "elif":
                    reader.finish()
                return tuple(body), reader, word
            body.append(self.statement(piece))
        name = opening.tokens[0][1]
        raise TemplateSyntax(f"`{name}` is not closed with `end{name}`", opening.offset)

    def tag(self, reader: Expressions, piece: Piece) -> nodes.Statement:
        """Read one statement."""
        offset = reader.tokens[0][2]
        name = reader.word("the name of a tag")
        match name:
            case "if":
                return self.if_(reader, piece)
            case "for":
                return self.for_(reader, piece)
            case "set":
                return self.set_(reader, piece)
            case "filter":
                chain = _filters(reader)
                return nodes.FilterBlock(chain, self.closed("endfilter", piece)[0], piece.offset)
            case "with":
                return self.with_(reader, piece)
        if name in _REFUSED_TAGS:
            raise TemplateSyntax(f"`{name}` does not exist in templates", offset)
        if name in _ENDS:
            raise TemplateSyntax(f"`{name}` has no statement to belong to", offset)
        raise TemplateSyntax(f"unknown tag `{name}`", offset)

    def if_(self, reader: Expressions, piece: Piece) -> nodes.If:
        branches: list[nodes.Branch] = []
        ending = "elif"
        while ending == "elif":
            test = _whole(reader)
            body, reader, ending = self.closed("elif else endif", piece)
            branches.append(nodes.Branch(test, body))
        otherwise = self.closed("endif", piece)[0] if ending == "else" else ()
        return nodes.If(tuple(branches), otherwise, piece.offset)

    def for_(self, reader: Expressions, piece: Piece) -> nodes.For:
        target = _target(reader)
        reader.expect("in")
        source = reader.tuple_or_expression(ternary=False)
        condition = reader.expression() if reader.accept("if") else None
        if reader.accept_word("recursive"):
            raise TemplateSyntax("recursive loops do not exist in templates", piece.offset)
        reader.finish()
        body, _, ending = self.closed("else endfor", piece)
        otherwise = self.closed("endfor", piece)[0] if ending == "else" else ()
        return nodes.For(target, source, condition, body, otherwise, piece.offset)

    def set_(self, reader: Expressions, piece: Piece) -> nodes.Set | nodes.SetBlock:
        target = _target(reader, fields=True)
        if reader.accept("="):
            return nodes.Set(target, _whole(reader), piece.offset)
        if target.unpacks:
            raise reader.unexpected("expected `=`")
        chain = _filters(reader) if reader.accept("|") else None
        reader.finish()
        return nodes.SetBlock(target, chain, self.closed("endset", piece)[0], piece.offset)

    def with_(self, reader: Expressions, piece: Piece) -> nodes.With:
        assignments: list[tuple[nodes.Target, nodes.Expression]] = []
        while reader.kind != "end":
            if assignments:
                reader.expect(",")
            target = _target(reader, single=True)
            reader.expect("=")
            assignments.append((target, reader.expression()))
        return nodes.With(tuple(assignments), self.closed("endwith", piece)[0], piece.offset)


def _filters(reader: Expressions) -> nodes.Expression:
    chain: nodes.Expression = reader.filter(nodes.Name(nodes.BLOCK, reader.tokens[0][2]))
    while reader.accept("|"):
        chain = reader.filter(chain)
    reader.finish()
    return chain


def _target(reader: Expressions, *, fields: bool = False, single: bool = False) -> nodes.Target:
    """Read `a`, `a, b`, `(a, b)` or, where fields may be set, `namespace.field`."""
    offset = reader.tokens[reader.index][2]
    parenthesised = not single and reader.accept("(")
    names = [_local(reader)]
    if fields and not parenthesised and reader.accept("."):
        return nodes.Target((names[0],), offset, field=reader.word("a name after `.`"))
    unpacks = False
    while not single and reader.accept(","):
        unpacks = True
        if reader.kind in {"in", "=", ")"}:
            break
        names.append(_local(reader))
    if parenthesised:
        reader.expect(")")
    return nodes.Target(tuple(names), offset, unpacks=unpacks)


def _local(reader: Expressions) -> str:
    value = str(reader.tokens[reader.index][1])
    if reader.kind != "name" or value in REFUSED_NAMES:
        raise reader.unexpected("expected a name to assign")
    reader.index += 1
    return value
