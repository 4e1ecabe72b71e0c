"""Reads SQL text as a database does: where statements end, and what in them is code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from noetl.tools.base import ToolError
from noetl.tools.python import source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.tasks.data import Sql
    from noetl.tools.base import ToolContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between databases in how a text is read."""

    dollars: bool = True
    """`$tag$ .. $tag$` is a text, and `E'..'` has backslashes that hide a quote."""
    nested: bool = True
    """A comment may hold comments."""
    other_names: bool = False
    """Backticks and brackets quote names."""
    escapes: bool = False
    """A backslash hides a quote in every text, and `//` begins a comment."""


POSTGRES: Final = Dialect()
SQLITE: Final = Dialect(dollars=False, nested=False, other_names=True)
SNOWFLAKE: Final = Dialect(nested=False, escapes=True)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of characters: code, or what no reader looks into."""

    kind: str
    """`code`, `text` (a literal), `name` (a quoted one) or `comment`."""
    text: str
    start: int


_OPENS: Final = re.compile(
    r"""
      --
    | //
    | /\*
    | (?<![\w$])[eE]'
    | ['"`\[]
    | (?<![\w$])\$(?:[^\W\d]\w*)?\$
    """,
    re.VERBOSE,
)
# Where each ends; an unclosed one reaches the end of the text.
_ENDS: Final = {
    "--": re.compile(r"[^\n]*"),
    "//": re.compile(r"[^\n]*"),
    "'": re.compile(r"(?:[^']|'')*(?:'|\Z)"),
    "E'": re.compile(r"(?:[^'\\]|''|\\[\s\S])*(?:'|\\?\Z)"),
    '"': re.compile(r'(?:[^"]|"")*(?:"|\Z)'),
    "`": re.compile(r"(?:[^`]|``)*(?:`|\Z)"),
    "[": re.compile(r"[^\]]*(?:\]|\Z)"),
    "/*": re.compile(r"[\s\S]*?(?:\*/|\Z)"),
}
_KINDS: Final = {
    "--": "comment",
    "//": "comment",
    "/*": "comment",
    '"': "name",
    "`": "name",
    "[": "name",
}
_COMMENT: Final = re.compile(r"/\*|\*/")
_WORD: Final = re.compile(r"\w+")


def pieces(text: str, dialect: Dialect = POSTGRES) -> Iterator[Piece]:
    """The text, cut where code ends and where it goes on."""
    begin = at = 0
    while found := _OPENS.search(text, at):
        mark = found.group()
        if not _is_opening(mark, dialect):
            at = found.end() if mark[0] != "$" else found.start() + 1
            if mark[0] in "eE":  # no escapes here: the quote opens a plain text
                at = found.end() - 1
            continue
        if found.start() > begin:
            yield Piece("code", text[begin : found.start()], begin)
        end = _end(text, found, dialect)
        yield Piece(_KINDS.get(mark, "text"), text[found.start() : end], found.start())
        begin = at = end
    if begin < len(text):
        yield Piece("code", text[begin:], begin)


def _is_opening(mark: str, dialect: Dialect) -> bool:
    if mark in ("`", "["):
        return dialect.other_names
    if mark == "//":
        return dialect.escapes
    return dialect.dollars or mark[0] not in "$eE"


def _end(text: str, found: re.Match[str], dialect: Dialect) -> int:
    mark, at = found.group(), found.end()
    if mark[0] == "$":
        end = text.find(mark, at)
        return len(text) if end < 0 else end + len(mark)
    if mark == "/*" and dialect.nested:
        return _end_of_comments(text, at)
    is_escaped = mark == "'" and dialect.escapes
    match = _ENDS["E'" if is_escaped else mark.upper()].match(text, at)
    return len(text) if match is None else match.end()


def _end_of_comments(text: str, at: int) -> int:
    depth = 1
    while depth and (found := _COMMENT.search(text, at)):
        depth += 1 if found.group() == "/*" else -1
        at = found.end()
    return len(text) if depth else at


def split(text: str, dialect: Dialect = POSTGRES) -> list[str]:
    """The statements of a text, without empty ones; bodies of triggers and functions stay whole."""
    found: list[str] = []
    start = 0
    statement = _Statement()
    for piece in pieces(text, dialect):
        if piece.kind != "code":
            statement.is_empty = statement.is_empty and piece.kind == "comment"
            continue
        at = piece.start
        *closed, rest = piece.text.split(";")
        for part in closed:
            statement.take(part)
            at += len(part)
            if not statement.is_inside:
                if not statement.is_empty:
                    found.append(text[start:at].strip())
                start, statement = at + 1, _Statement()
            at += 1
        statement.take(rest)
    if not statement.is_empty:
        found.append(text[start:].strip())
    return found


class _Statement:
    """What was read of a statement: whether it is inside a block of statements."""

    def __init__(self) -> None:
        self.is_empty = True
        self._blocks = 0
        self._parens = 0
        self._head: list[str] = []

    @property
    def is_inside(self) -> bool:
        """Whether a semicolon ends nothing here."""
        return self._blocks > 0 or self._parens > 0

    def take(self, code: str) -> None:
        """Read on."""
        self.is_empty = self.is_empty and not code.strip()
        self._parens = max(0, self._parens + code.count("(") - code.count(")"))
        if len(self._head) < _HEAD:
            words = (found.group().upper() for found in _WORD.finditer(code))
            self._head += islice(words, _HEAD - len(self._head))
        if self._head[:1] != ["CREATE"] or not _BODIED.intersection(self._head):
            return
        for found in _WORD.finditer(code):
            word = found.group().upper()
            if word == "BEGIN" or (word == "CASE" and self._blocks):
                self._blocks += 1
            elif word == "END" and self._blocks:
                self._blocks -= 1


_HEAD: Final = 5
_BODIED: Final = frozenset({"TRIGGER", "FUNCTION", "PROCEDURE"})
_CONTROL: Final = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "PREPARE"})


def first_word(statement: str, dialect: Dialect = POSTGRES) -> str:
    """The word that a statement begins with, in capitals."""
    for piece in pieces(statement, dialect):
        if piece.kind == "code" and (found := _WORD.search(piece.text)):
            return found.group().upper()
    return ""


def controls_transactions(statement: str, dialect: Dialect = POSTGRES) -> bool:
    """Whether the author begins or ends transactions."""
    word = first_word(statement, dialect)
    return word in _CONTROL and (word != "PREPARE" or "TRANSACTION" in statement.upper())


async def texts_of(config: Sql, ctx: ToolContext) -> list[str]:
    """The SQL texts of a task: in place, listed, fetched."""
    texts: list[str] = []
    if config.command is not None:
        texts += [config.command] if isinstance(config.command, str) else list(config.command)
    texts += config.commands
    if config.script is not None:
        texts.append(await source_of(None, None, config.script, ctx))
    return texts


async def statements_of(
    config: Sql, ctx: ToolContext, dialect: Dialect = POSTGRES
) -> tuple[list[str], Any]:
    """The statements of a task and the values to bind, which need a single one."""
    found = [one for text in await texts_of(config, ctx) for one in split(text, dialect)]
    params = config.params
    if isinstance(params, str):
        raise ToolError("config", "invalid_config", "/params: a list or a map")
    if params and len(found) != 1:
        raise ToolError("config", "invalid_config", "/params: they need a single statement")
    return found, params
