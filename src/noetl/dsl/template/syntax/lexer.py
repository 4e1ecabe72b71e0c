"""Cuts a template into text, expressions and tags, and those into tokens."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from noetl.dsl.template.errors import TemplateSyntax
from noetl.dsl.template.limits import INTEGER_BITS

# kind (an operator or keyword is its own kind), value, offset
Token = tuple[str, object, int]

KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "if", "else"})
CONSTANTS: Final = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "none": None,
    "None": None,
    "null": None,
}

# The first group of each alternative names the kind of the token.
_PATTERN: Final = r"""
\s*(?:
  (?P<name>[^\W\d]\w*)
| (?P<float>(?<!\.)[0-9](?:_?[0-9])*
    (?:\.[0-9](?:_?[0-9])*(?:[eE][+-]?[0-9](?:_?[0-9])*)?|[eE][+-]?[0-9](?:_?[0-9])*))
| (?P<int>0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[0-9a-fA-F])+|[1-9](?:_?[0-9])*|0(?:_?0)*)
| (?P<string>'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")
| (?P<end>%s)
| (?P<op>\*\*|//|==|!=|<=|>=|[-+*/%%~|.,:()\[\]{}<>=])
)"""
_NEVER: Final = r"(?!)"
_INSIDE: Final = re.compile(_PATTERN % _NEVER, re.VERBOSE | re.DOTALL)
_IN_EXPRESSION: Final = re.compile(_PATTERN % r"-?\}\}", re.VERBOSE | re.DOTALL)
_IN_TAG: Final = re.compile(_PATTERN % r"[-+]?%\}", re.VERBOSE | re.DOTALL)
# A bare condition ends where its text ends.
_IN_CONDITION: Final = re.compile(_PATTERN % r"\Z", re.VERBOSE | re.DOTALL)

_OPEN: Final = re.compile(r"\{([{%#])([-+]?)")
_RAW: Final = re.compile(r"\{%[-+]?\s*raw\s*(-?|\+)%\}")
_END_RAW: Final = re.compile(r"\{%([-+]?)\s*endraw\s*([-+]?)%\}")
_END_COMMENT: Final = re.compile(r"([-+]?)#\}")
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL
)
_SIMPLE_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}


class Piece(NamedTuple):
    """A part of a template: `text` has its text, `emit` and `tag` have their tokens."""

    kind: str
    text: str
    tokens: list[Token]
    offset: int


def pieces(text: str) -> list[Piece]:
    """Cut a template into its parts, with whitespace control and raw blocks applied."""
    found: list[Piece] = []
    position = 0
    strips_next = False
    while True:
        opening = _OPEN.search(text, position)
        end = opening.start() if opening else len(text)
        outside = text[position:end]
        if strips_next:
            outside = outside.lstrip()
        if opening is not None and opening[2] == "-":
            outside = outside.rstrip()
        if outside:
            found.append(Piece("text", outside, [], position))
        if opening is None:
            return found
        position, strips_next = _inside(text, opening, found)


def _inside(text: str, opening: re.Match[str], found: list[Piece]) -> tuple[int, bool]:
    """Read one expression, tag, comment or raw block; return where it ends and if it strips."""
    start = opening.start()
    if opening[1] == "{":
        tokens, position = tokenize(text, opening.end(), _IN_EXPRESSION)
        found.append(Piece("emit", "", tokens, start))
        return position, text[position - 3] == "-"
    if opening[1] == "#":
        closing = _END_COMMENT.search(text, opening.end())
        if closing is None:
            raise TemplateSyntax("the comment is not closed with `#}`", start)
        return closing.end(), closing[1] == "-"
    raw = _RAW.match(text, start)
    if raw is not None:
        return _raw(text, raw, found)
    tokens, position = tokenize(text, opening.end(), _IN_TAG)
    found.append(Piece("tag", "", tokens, start))
    return position, text[position - 3] == "-"


def _raw(text: str, opening: re.Match[str], found: list[Piece]) -> tuple[int, bool]:
    closing = _END_RAW.search(text, opening.end())
    if closing is None:
        raise TemplateSyntax("`raw` is not closed with `endraw`", opening.start())
    body = text[opening.end() : closing.start()]
    if opening[1] == "-":
        body = body.lstrip()
    if closing[1] == "-":
        body = body.rstrip()
    if body:
        found.append(Piece("text", body, [], opening.end()))
    return closing.end(), closing[2] == "-"


def expression_tokens(text: str, start: int) -> tuple[list[Token], int]:
    """Return the tokens of an expression that `}}` closes, and the offset after it."""
    return tokenize(text, start, _IN_EXPRESSION)


def condition_tokens(text: str) -> list[Token]:
    """Return the tokens of a text that is one bare expression."""
    return tokenize(text, 0, _IN_CONDITION)[0]


def tokenize(text: str, position: int, outer: re.Pattern[str]) -> tuple[list[Token], int]:
    """Return the tokens up to the closing delimiter, and the offset after it."""
    tokens: list[Token] = []
    nesting = 0
    pattern = outer
    while True:
        found = pattern.match(text, position)
        if found is None:
            raise _unexpected(text, position)
        kind = found.lastgroup
        position = found.end()
        value = found[kind]  # type: ignore[index] # every alternative is a named group
        offset = position - len(value)
        if kind == "op":
            tokens.append((value, value, offset))
            if value in "([{":
                nesting += 1
                pattern = _INSIDE
            elif value in ")]}":
                nesting -= 1
                if nesting <= 0:
                    pattern = outer
        elif kind == "name":
            tokens.append(_word(value, offset))
        elif kind == "end":
            tokens.append(("end", value, offset))
            return tokens, position
        else:
            tokens.append(_literal(kind, value, offset))


def _word(word: str, offset: int) -> Token:
    if word in KEYWORDS:
        return (word, word, offset)
    return ("constant" if word in CONSTANTS else "name", word, offset)


def constant(word: object) -> bool | None:
    """Return what `true`, `false`, `none` and `null` stand for."""
    return CONSTANTS[str(word)]


def _literal(kind: str | None, text: str, offset: int) -> Token:
    if kind == "string":
        return ("string", unescape(text[1:-1], offset), offset)
    if kind == "float":
        number = float(text)
        if number == float("inf"):
            raise TemplateSyntax("the number is too large", offset)
        return ("number", number, offset)
    return ("number", _integer(text, offset), offset)


def _integer(text: str, offset: int) -> int:
    """A whole number of any base, within its bits; no more digits than bits are ever read."""
    try:
        number = int(text, 0) if len(text) <= INTEGER_BITS else None
    except ValueError:  # Python's own limit on decimal digits
        number = None
    if number is None or number.bit_length() > INTEGER_BITS:
        raise TemplateSyntax("the number is too large", offset)
    return number


def unescape(text: str, offset: int) -> str:
    """Return a quoted text with its escapes resolved; an unknown escape stays as it is."""
    if "\\" not in text:
        return text

    def resolve(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if code is None and found[4] is None:
            return _SIMPLE_ESCAPES.get(found[5], found[0])
        number = int(code, 16) if code else int(found[4], 8)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:  # noqa: PLR2004 - Unicode's own bounds
            raise TemplateSyntax(f"`{found[0]}` is not a character", offset)
        return chr(number)

    return _ESCAPE.sub(resolve, text)


def _unexpected(text: str, position: int) -> TemplateSyntax:
    while position < len(text) and text[position].isspace():
        position += 1
    if position >= len(text):
        return TemplateSyntax("the expression is not closed", position)
    sign = text[position]
    if sign in "'\"":
        return TemplateSyntax("the text is not closed with its quote", position)
    return TemplateSyntax(f"unexpected `{sign}`", position)
