"""Compiled templates and the one way to render them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from noetl.dsl.template.compiler.frame import Evaluate, Frame, Read
from noetl.dsl.template.compiler.statements import StatementCompiler
from noetl.dsl.template.errors import LimitExceeded, TemplateFailure, TemplateSyntax
from noetl.dsl.template.limits import (
    CODE_SOURCE_LIMIT,
    FUEL_LIMIT,
    SOURCE_LIMIT,
    TEXT_LIMIT,
    VALUE_DEPTH_LIMIT,
)
from noetl.dsl.template.syntax import nodes
from noetl.dsl.template.syntax.parser import parse, parse_condition
from noetl.dsl.template.values import MISSING, kind_of, plain, to_text

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})

# Most texts are short; the few long ones (SQL, prompts) must not hold the memory of thousands.
# Compiled, a text takes some hundred times its own memory: each class keeps 1 MiB of source.
_SHORT: Final = 128
_SHORT_ENTRIES: Final = 8_192
_LONGER: Final = ((1024, 1_024), (8 * 1024, 128), (SOURCE_LIMIT, 16), (CODE_SOURCE_LIMIT, 1))


class Template:
    """A text that was compiled once and renders any number of times."""

    __slots__ = (
        "_run",
        "_slots",
        "body",
        "functions",
        "is_expression",
        "is_literal",
        "sites",
        "text",
    )

    def __init__(self, text: str, body: nodes.Body) -> None:
        """Compile the nodes of a text."""
        self.text = text
        self.body = body
        compiler = StatementCompiler()
        lone = _lone(body)
        self.is_expression = lone is not None
        self.is_literal = all(isinstance(part, nodes.Text) for part in body)
        self._run = _native(compiler, lone) if lone is not None else _mixed(compiler, body)
        self._slots = compiler.names.slot_count
        self.sites = tuple(compiler.names.reads)
        self.functions = tuple(compiler.names.functions)

    def __repr__(self) -> str:
        """Show the text."""
        return f"Template({self.text!r})"

    def render(self, scope: Mapping[str, object]) -> object:
        """Return the native value of a lone expression, else text."""
        return self._render(Frame(scope, [MISSING] * self._slots))

    def measure(self, scope: Mapping[str, object]) -> tuple[object, int]:
        """Return what `render` returns and the fuel that it used."""
        frame = Frame(scope, [MISSING] * self._slots)
        value = self._render(frame)
        return value, FUEL_LIMIT - frame.fuel

    def resume(self, frame: Frame) -> object:
        """Return what `render` returns, on what is left of a meter that other templates used."""
        frame.slots = [MISSING] * self._slots
        return self._render(frame)

    evaluate = render

    def _render(self, frame: Frame) -> object:
        try:
            value = self._run(frame)
            if type(value) in _SCALARS:
                return value
            value = plain(value)
            frame.settle(value)
        except TemplateFailure as failure:
            failure.locate(self.text)
            raise
        except (RecursionError, MemoryError):
            raise LimitExceeded("the template needs too much memory or nesting") from None
        return value


def _lone(body: nodes.Body) -> nodes.Expression | None:
    """Return the expression of a template that is exactly one, blanks around it aside."""
    found: nodes.Expression | None = None
    for part in body:
        if isinstance(part, nodes.Emit) and found is None:
            found = part.value
        elif not isinstance(part, nodes.Text) or not part.text.isspace():
            return None
    return found


def _native(compiler: StatementCompiler, node: nodes.Expression) -> Evaluate:
    return compiler.expression(node)


def _mixed(compiler: StatementCompiler, body: nodes.Body) -> Evaluate:
    simple = [part for part in body if isinstance(part, (nodes.Text, nodes.Emit))]
    if len(simple) == len(body):
        return _flat(compiler, simple)
    run = compiler.body(body)

    def render(frame: Frame) -> str:
        out: list[str] = []
        run(frame, out)
        return "".join(out)

    return render


def _flat(compiler: StatementCompiler, body: list[nodes.Text | nodes.Emit]) -> Evaluate:
    """Return a closure for text and expressions without statements, the usual case."""
    parts = [
        (part.text, None, 0)
        if isinstance(part, nodes.Text)
        else ("", compiler.expression(part.value), part.offset)
        for part in body
    ]

    def render(frame: Frame) -> str:
        out: list[str] = []
        total = 0
        for literal, evaluate, offset in parts:
            text = literal
            if evaluate is not None:
                try:
                    text = to_text(evaluate(frame), frame)
                except TemplateFailure as failure:
                    raise failure.at(offset) from None
            total += len(text)
            if total > TEXT_LIMIT:
                raise LimitExceeded(f"the output is longer than {TEXT_LIMIT} characters")
            out.append(text)
        return "".join(out)

    return render


def is_template(text: str) -> bool:
    """Return whether a text holds an expression, a statement or a comment."""
    return "{" in text and ("{{" in text or "{%" in text or "{#" in text)


def _located(build: Callable[[str], Template], text: str) -> Template:
    try:
        return build(text)
    except TemplateSyntax as error:
        error.locate(text)
        raise


def _build_template(text: str) -> Template:
    return Template(text, parse(text) if is_template(text) else (nodes.Text(text, 0),))


def _build_condition(text: str) -> Template:
    return Template(text, (nodes.Emit(parse_condition(text), 0),))


def _new_template(text: str) -> Template:
    return _located(_build_template, text)


def _new_condition(text: str) -> Template:
    return _located(_build_condition, text)


_short_template: Final = lru_cache(maxsize=_SHORT_ENTRIES)(_new_template)
_templates: Final = [(size, lru_cache(maxsize=count)(_new_template)) for size, count in _LONGER]
_short_condition: Final = lru_cache(maxsize=_SHORT_ENTRIES)(_new_condition)
_conditions: Final = [(size, lru_cache(maxsize=count)(_new_condition)) for size, count in _LONGER]


def check_source(text: str, limit: int) -> None:
    """Refuse a text that is too long to compile; the limit is in bytes."""
    size = len(text)
    if size <= limit and size * 4 > limit and not text.isascii():
        size = len(text.encode(errors="replace"))
    if size > limit:
        raise TemplateSyntax(f"the template is longer than {limit} bytes", 0, code="DSL043")


def compile_template(text: str, *, source_limit: int = SOURCE_LIMIT) -> Template:
    """Return the compiled form of a text, compiled once per distinct text."""
    if len(text) <= _SHORT:
        return _short_template(text)
    check_source(text, source_limit)
    return _longer(text, _templates)


def compile_condition(text: str) -> Template:
    """Return the compiled form of a condition: a template or a bare expression."""
    if is_template(text):
        return compile_template(text)
    if len(text) <= _SHORT:
        return _short_condition(text)
    check_source(text, SOURCE_LIMIT)
    return _longer(text, _conditions)


def _longer(text: str, caches: Sequence[tuple[int, Callable[[str], Template]]]) -> Template:
    return next(cached for size, cached in caches if len(text) <= size)(text)


def compilations() -> int:
    """Return how many distinct texts were compiled so far."""
    return sum(cache.cache_info().misses for _, cache in caches())


def caches() -> list[tuple[int, _lru_cache_wrapper[Template]]]:
    """Return the caches of compiled texts, each with the length of the longest text in it."""
    return [(_SHORT, _short_template), (_SHORT, _short_condition), *_templates, *_conditions]


def render(value: object, scope: Mapping[str, object]) -> object:
    """Render every text of a value once, map keys included; other scalars stay as they are."""
    return _render(value, scope, VALUE_DEPTH_LIMIT)


def _render(value: object, scope: Mapping[str, object], depth: int) -> object:
    if isinstance(value, str):
        return compile_template(value).render(scope) if "{" in value else value
    if depth == 0:
        raise LimitExceeded(f"a value is nested deeper than {VALUE_DEPTH_LIMIT} levels")
    if isinstance(value, Mapping):
        return _render_map(value, scope, depth - 1)
    if isinstance(value, (list, tuple)):
        return [_render(entry, scope, depth - 1) for entry in value]
    return value


def _render_map(
    value: Mapping[object, object], scope: Mapping[str, object], depth: int
) -> dict[object, object]:
    result: dict[object, object] = {}
    for key, entry in value.items():
        name = _render(key, scope, 1) if isinstance(key, str) else key
        if isinstance(key, str) and not isinstance(name, str):
            raise TemplateFailure(f"the key `{key}` must render to text, not {kind_of(name)}")
        if name in result:
            raise TemplateFailure(f"two keys of a map render to `{name}`")
        result[name] = _render(entry, scope, depth)
    return result


def read_sites(template: Template) -> tuple[Read, ...]:
    """Return every place where a template reads the scope."""
    return template.sites


def reads(template: Template) -> frozenset[tuple[str, ...]]:
    """Return the paths of the scope that a template reads; its own locals are none."""
    return frozenset(site.path for site in template.sites)
