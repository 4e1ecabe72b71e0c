"""Expressions inside source code, where most braces belong to the code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from noetl.dsl.template.compiler.frame import Frame
from noetl.dsl.template.errors import TemplateFailure, TemplateSyntax
from noetl.dsl.template.limits import CODE_SOURCE_LIMIT
from noetl.dsl.template.syntax.lexer import expression_tokens
from noetl.dsl.template.template import Template, check_source, compile_template
from noetl.dsl.template.values import to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

# Three braces in a row are an f-string's own, never the start of an expression.
_OPEN: Final = re.compile(r"(?<!\{)\{\{(?!\{)")
_EXPRESSIONS: Final = 1_000
# As with templates, each class keeps a few MiB of source.
_SHORT: Final = 8 * 1024
_SHORT_ENTRIES: Final = 256
_LONG_ENTRIES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeExpression:
    """One `{{ ... }}` of a source text that is an expression."""

    start: int
    end: int
    template: Template
    first_name: str


class Code:
    """A source text with the expressions that were found in it."""

    __slots__ = ("expressions", "text")

    def __init__(self, text: str, expressions: tuple[CodeExpression, ...]) -> None:
        """Keep the text and its expressions in order."""
        self.text = text
        self.expressions = expressions

    def render(self, scope: Mapping[str, object]) -> str:
        """Return the text with those expressions rendered whose first name is in scope."""
        frame = Frame(scope, [])
        out: list[str] = []
        position = 0
        for expression in self.expressions:
            if expression.first_name not in scope:
                continue
            try:
                value = to_text(expression.template.resume(frame), frame)
                frame.write(value)
            except TemplateFailure as failure:
                # Its place is wanted in the whole source, not in the expression.
                if failure.offset is None:
                    failure.offset = 0
                failure.offset += expression.start
                failure.locate(self.text)
                raise
            out.append(self.text[position : expression.start])
            out.append(value)
            position = expression.end
        out.append(self.text[position:])
        return "".join(out)


def _compile(text: str) -> Code:
    found: list[CodeExpression] = []
    position = 0
    while (opening := _OPEN.search(text, position)) is not None:
        position = opening.end()
        expression = _expression(text, opening.start())
        if expression is not None:
            found.append(expression)
            if len(found) > _EXPRESSIONS:
                raise TemplateSyntax(
                    f"the source holds more than {_EXPRESSIONS} expressions",
                    expression.start,
                    code="DSL043",
                )
            position = expression.end
    return Code(text, tuple(found))


def _expression(text: str, start: int) -> CodeExpression | None:
    # An expression ends before the next `{{`, so the text is read once however many there are.
    following = text.find("{{", start + 2)
    window = text[start:] if following == -1 else text[start:following]
    try:
        _, length = expression_tokens(window, 2)
        template = compile_template(window[:length])
    except TemplateSyntax:
        return None
    names = [(site.offset, site.path[0]) for site in template.sites]
    names += [(offset, name) for name, offset in template.functions]
    if not names:
        return None
    return CodeExpression(
        start=start, end=start + length, template=template, first_name=min(names)[1]
    )


_short_code: Final = lru_cache(maxsize=_SHORT_ENTRIES)(_compile)
_long_code: Final = lru_cache(maxsize=_LONG_ENTRIES)(_compile)


def compile_code(text: str) -> Code:
    """Return a source text in which expressions may be rendered."""
    check_source(text, CODE_SOURCE_LIMIT)
    return _short_code(text) if len(text) <= _SHORT else _long_code(text)
