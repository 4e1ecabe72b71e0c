"""Text to a checked model: every fault of the document in one pass, each with its place."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from noetl.dsl.diagnostics import START, Diagnostic, InvalidDocument
from noetl.dsl.kinds import KINDS, Kind
from noetl.dsl.older.normal import Normaliser, TreeEditor
from noetl.dsl.older.upgrade import Box, Report, Upgrade
from noetl.dsl.plugins import NONE
from noetl.dsl.shape import Model, Of, nearest
from noetl.dsl.shape.reader import Reader, Site
from noetl.dsl.yaml import ROOT, Map, Place, Seq, load, pointer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.plugins import Plugins
    from noetl.dsl.yaml import Document

_LARGE: Final = 32 * 1024
"""Texts from this length on are read without the collector; for others it costs more to ask it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A document after one pass: its model, and all that was found."""

    kind: str
    model: Model | None
    diagnostics: tuple[Diagnostic, ...]
    overflow: int
    document: Document
    sites: tuple[Site, ...] = ()
    workbook_used: frozenset[str] = frozenset()

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The findings for which the document is refused."""
        return tuple(item for item in self.diagnostics if item.severity == "error")

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The findings that a document may carry."""
        return tuple(item for item in self.diagnostics if item.severity == "warning")


def parse(source: str | bytes, *, plugins: Plugins = NONE) -> Parsed:
    """Read any document; whatever the bytes, the answer is a model or diagnostics."""
    if len(source) < _LARGE:
        return _parse(source, plugins)
    with _collector_paused():
        return _parse(source, plugins)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the cyclic collector still: a large document is all live, so each pass finds nothing.

    Measured on 2,000 steps, the collector took two fifths of the time. What was made joins the
    oldest generation without being looked at (frozen, then thawed), unless someone else froze.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _parse(source: str | bytes, plugins: Plugins) -> Parsed:
    document = load(source)
    reader = Reader(document, plugins=plugins)
    root = document.root
    kind = _kind_of(root, reader) if isinstance(root, Map) else None
    if not isinstance(root, Map) and not reader.findings.has_errors:
        if root is None:
            reader.report(
                "DSL021", "the document is empty", ROOT, hint="start with `kind: Playbook`"
            )
        else:
            span = root.span if isinstance(root, Seq) else START
            reader.findings.add("DSL038", "the document must be a map", span=span)
    if kind is None or not isinstance(root, Map):
        return _parsed("", None, reader, document)
    normaliser = Normaliser(reader)
    if kind.name == "Playbook":
        Upgrade(TreeEditor(), _reporter(reader)).playbook(root, document.text)
        normaliser.playbook(root)
    elif isinstance(metadata := root.get("metadata"), Map):
        Upgrade(TreeEditor(), _reporter(reader)).metadata(metadata)
    model: Model = Of(kind.model).read(root, ROOT, reader)
    kind.check(model, reader)
    return _parsed(kind.name, model, reader, document, frozenset(normaliser.used))


def _parsed(
    kind: str,
    model: Model | None,
    reader: Reader,
    document: Document,
    used: frozenset[str] = frozenset(),
) -> Parsed:
    return Parsed(
        kind=kind,
        model=None if reader.findings.has_errors else model,
        diagnostics=reader.findings.sorted(),
        overflow=reader.findings.overflow,
        document=document,
        sites=tuple(reader.sites),
        workbook_used=used,
    )


def _reporter(reader: Reader) -> Report:
    def report(code: str, box: Box, name: str, message: str, hint: str) -> None:
        place = Place(box, name, None)
        reader.findings.add(
            code, message, span=place.key_span, pointer=pointer_of(box, name), hint=hint
        )

    return report


def _kind_of(root: Map, reader: Reader) -> Kind | None:
    word = root.get("kind")
    place = Place(root, "kind", ROOT)
    if word is None:
        hint = "add `kind`, for example `kind: Playbook`"
        reader.report("DSL021", "the key `kind` is missing", ROOT, into=True, hint=hint)
        return None
    if not isinstance(word, str):
        reader.wrong_type(place, word, "text")
        return None
    name = word.lower()
    if name == "agent":
        _agent(root, reader)
        name = "playbook"
    kind = KINDS.get(name)
    if kind is None:
        known = [item.name for item in KINDS.values()]
        hint = nearest(word, known)
        reader.report("DSL020", f"unknown kind `{word[:80]}`", place, hint=hint)
        return None
    root["kind"] = kind.name
    _version(root, kind, reader)
    return kind


def _agent(root: Map, reader: Reader) -> None:
    place = Place(root, "kind", ROOT)
    hint = "write `kind: Playbook` and `metadata.agent: true`"
    reader.report("DSL103", "`Agent` is a Playbook with `metadata.agent`", place, hint=hint)
    if isinstance(metadata := root.get("metadata"), Map):
        metadata["agent"] = True


def _version(root: Map, kind: Kind, reader: Reader) -> None:
    version = root.get("apiVersion")
    if not isinstance(version, str) or version in kind.versions:
        return
    place = Place(root, "apiVersion", ROOT)
    if kind.name == "Playbook" and version == "noetl.io/v1":
        hint = "`noetl migrate FILE` rewrites it"
        reader.report("DSL022", "a Playbook of `noetl.io/v1` is not read", place, hint=hint)
        return
    code = "subscription_api_version" if kind.name == "Subscription" else "DSL023"
    hint = "use " + " or ".join(f"`{item}`" for item in kind.versions)
    reader.report(code, f"`{version[:80]}` is not a version of {kind.name}", place, hint=hint)


_M = TypeVar("_M", bound=Model)


def read(source: str | bytes, expected: type[_M], *, name: str = "", plugins: Plugins = NONE) -> _M:
    """The model of a document that must be right; raises with every diagnostic otherwise."""
    parsed = parse(source, plugins=plugins)
    if isinstance(parsed.model, expected):
        return parsed.model
    if parsed.errors:
        raise InvalidDocument(parsed.diagnostics, source=name)
    wrong = Diagnostic(
        code="DSL020",
        severity="error",
        message=f"expected {expected.__name__}, found {parsed.kind}",
    )
    raise InvalidDocument([wrong], source=name)
