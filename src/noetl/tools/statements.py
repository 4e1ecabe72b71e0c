"""Splits SQL text into statements: quotes, comments and dollar-quoted bodies are understood."""

from __future__ import annotations

import re
from typing import Final

# What may hold a semicolon that ends nothing; an unclosed one reaches the end of the text.
_OPAQUE: Final = re.compile(
    r"""
      '(?:[^']|'')*(?:'|\Z)
    | "(?:[^"]|"")*(?:"|\Z)
    | `(?:[^`]|``)*(?:`|\Z)
    | --[^\n]*
    | /\*[\s\S]*?(?:\*/|\Z)
    | \$(?P<tag>[A-Za-z_]\w*)?\$[\s\S]*?(?:\$(?(tag)(?P=tag))\$|\Z)
    | ;
    """,
    re.VERBOSE,
)
_WORD: Final = re.compile(r"[A-Za-z_]+")


def split(text: str) -> list[str]:
    """The statements of a text, without empty ones; a trigger's body stays whole."""
    found: list[str] = []
    start, depth, seen = 0, 0, 0
    bare = ""
    for match in _OPAQUE.finditer(text):
        bare += text[seen : match.start()] + " "
        seen = match.end()
        if match.group() != ";":
            bare += "?" if match.group()[0] in "'\"`$" else ""
            continue
        depth = _open_blocks(bare)
        if depth:
            bare += ";"
            continue
        _keep(found, text[start : match.start()], bare)
        start, bare = match.end(), ""
    _keep(found, text[start:], bare + text[seen:])
    return found


def _keep(found: list[str], statement: str, bare: str) -> None:
    if bare.replace(";", " ").strip():
        found.append(statement.strip())


def _open_blocks(bare: str) -> int:
    """How many BEGIN and CASE of a CREATE TRIGGER are not ended yet."""
    words = [word.upper() for word in _WORD.findall(bare)]
    if words[:1] != ["CREATE"] or "TRIGGER" not in words[:4]:
        return 0
    return sum(word in {"BEGIN", "CASE"} for word in words) - words.count("END")
