"""Safe YAML text to plain data, keeping the position of every key and value.

YAML 1.2 core types over libyaml's event stream. Every limit is checked while the events arrive, so
that a bomb is refused before it is built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml
from yaml._yaml import CParser

from noetl.dsl.diagnostics import START, Findings, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_BYTES: Final = 1024 * 1024
MOST_DEPTH: Final = 64
MOST_NODES: Final = 100_000
MOST_ALIASES: Final = 1_000

Marks = tuple[int, int, int, int]
_COLUMN_BITS = 21
_COLUMN_MASK = 2**_COLUMN_BITS - 1
_NUMERIC_START = frozenset("-+.0123456789")
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INT = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_A_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_INT_LEAST = -(2**63)
_INT_MOST = 2**64 - 1
_INT_DIGITS = 21


class Map(dict[str, Any]):
    """A YAML mapping: plain data that knows where each key and value was written."""

    __slots__ = ("at", "extent", "home")

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str, Marks] = {}
        self.home: tuple[Map | Seq, str | int] | None = None
        self.extent = (0, 0)

    @property
    def span(self) -> Span:
        """Where the whole of it was written."""
        return _span(unpack(self.extent[0]), unpack(self.extent[1]))


class Seq(list[Any]):
    """A YAML sequence: plain data that knows where each item was written."""

    __slots__ = ("at", "extent", "home")

    def __init__(self) -> None:
        super().__init__()
        self.at: list[Marks] = []
        self.home: tuple[Map | Seq, str | int] | None = None
        self.extent = (0, 0)

    @property
    def span(self) -> Span:
        """Where the whole of it was written."""
        return _span(unpack(self.extent[0]), unpack(self.extent[1]))


class Mark(NamedTuple):
    """One position in the text, 0-based."""

    line: int
    column: int


def unpack(packed: int) -> Mark:
    """The position that a packed mark stands for."""
    return Mark(packed >> _COLUMN_BITS, packed & _COLUMN_MASK)


def _pack(mark: Any) -> int:  # noqa: ANN401 - libyaml marks have no stub
    """One number per position: a tree of numbers costs the collector nothing."""
    packed: int = mark.line << _COLUMN_BITS | mark.column
    return packed


def _span(start: Any, end: Any) -> Span:  # noqa: ANN401 - libyaml marks have no stub
    return Span(start.line + 1, start.column + 1, end.line + 1, end.column + 1)


class Place:
    """Where a value stands: its container, its key there, and the place of the container."""

    __slots__ = ("container", "key", "parent")

    def __init__(self, container: object, key: str | int, parent: Place | None) -> None:
        self.container = container
        self.key = key
        self.parent = parent

    @property
    def path(self) -> tuple[str | int, ...]:
        """The keys from the root down to this value."""
        keys: list[str | int] = []
        here: Place | None = self
        while here is not None:
            if here.container is not None:
                keys.append(here.key)
            here = here.parent
        keys.reverse()
        return tuple(keys)

    @property
    def pointer(self) -> str:
        """The JSON pointer of this value."""
        return _pointer(self.path)

    def _marks(self) -> Marks | None:
        here: Place | None = self
        while here is not None:
            box = here.container
            if isinstance(box, Map) and here.key in box.at:
                return box.at[str(here.key)]
            if isinstance(box, Seq) and isinstance(here.key, int) and here.key < len(box.at):
                return box.at[here.key]
            here = here.parent
        return None

    @property
    def key_span(self) -> Span:
        """Where the key was written (of a list item: the item)."""
        marks = self._marks()
        return START if marks is None else _span(unpack(marks[0]), unpack(marks[1]))

    @property
    def span(self) -> Span:
        """Where the value was written."""
        marks = self._marks()
        return START if marks is None else _span(unpack(marks[2]), unpack(marks[3]))

    def child(self, container: object, key: str | int) -> Place:
        """The place of an entry of this value."""
        return Place(container, key, self)


ROOT: Final = Place(None, "", None)


def _pointer(path: Iterable[str | int]) -> str:
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def pointer_of(box: object, key: str | int) -> str:
    """The JSON pointer of an entry of a container, as the author wrote it."""
    path = [key]
    while isinstance(box, (Map, Seq)) and box.home is not None:
        box, key = box.home
        path.append(key)
    return _pointer(reversed(path))


@dataclass(frozen=True, slots=True)
class Document:
    """The parsed text: its data, its lines and what was wrong with it as YAML."""

    text: str
    root: object
    findings: Findings

    @property
    def lines(self) -> list[str]:
        """The text by lines, for comments and excerpts."""
        return self.text.splitlines()


class _Refused(Exception):
    """The rest of the text cannot be read."""


def load(source: str | bytes) -> Document:
    """Read one YAML document; faults are findings, never exceptions."""
    findings = Findings()
    text = _decode(source, findings)
    if text is None:
        return Document("", None, findings)
    try:
        root = _Composer(text, findings).compose()
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        span = _span(mark, mark) if mark is not None else START
        findings.add("DSL001", f"not valid YAML: {fault.problem or fault.context}", span=span)
        root = None
    except yaml.reader.ReaderError as fault:
        before = text[: fault.position] if isinstance(fault.position, int) else ""
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        findings.add(
            "DSL001",
            f"not valid YAML: {fault.reason}",
            span=Span(line, column, line, column + 1),
        )
        root = None
    except _Refused:
        root = None
    return Document(text, root, findings)


def _decode(source: str | bytes, findings: Findings) -> str | None:
    if isinstance(source, str) and len(source) <= MOST_BYTES:
        try:
            source = source.encode()
        except UnicodeEncodeError as fault:
            findings.add("DSL001", f"not valid UTF-8: {fault.reason} at character {fault.start}")
            return None
    if len(source) > MOST_BYTES:
        findings.add("DSL010", f"the document is larger than {MOST_BYTES} bytes")
        return None
    if isinstance(source, str):  # pragma: no cover - unreachable, narrows the type
        return None
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        before = source[: fault.start].decode("utf-8-sig")
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        span = Span(line, column, line, column + 1)
        findings.add("DSL001", f"not valid UTF-8 at byte {fault.start}", span=span)
        return None
    return text


class _Composer:
    """Turns libyaml events into maps, sequences and scalars, within the limits."""

    def __init__(self, text: str, findings: Findings) -> None:
        self._next: Callable[[], Any] = CParser(text).get_event
        self._findings = findings
        self._anchors: dict[str, tuple[object, int] | None] = {}
        self._nodes = 0
        self._aliases = 0

    def compose(self) -> object:
        self._next()
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        root = self._node(self._next(), 0)
        if self._aliases:
            _unshare(root, set())
        self._next()
        event = self._next()
        if not isinstance(event, yaml.StreamEndEvent):
            span = _span(event.start_mark, event.end_mark)
            self._findings.add("DSL012", "more than one YAML document in the text", span=span)
        return root

    def _refuse(self, code: str, message: str, event: Any) -> _Refused:  # noqa: ANN401 - see _span
        self._findings.add(code, message, span=_span(event.start_mark, event.end_mark))
        return _Refused()

    def _node(self, event: Any, depth: int) -> object:  # noqa: ANN401 - see _span
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise self._refuse("DSL011", f"more than {MOST_NODES} nodes", event)
        kind = event.__class__
        if kind is yaml.AliasEvent:
            return self._alias(event)
        if event.tag is not None:
            self._findings.add(
                "DSL012",
                f"the tag `{event.tag}` is not allowed",
                span=_span(event.start_mark, event.end_mark),
            )
        anchor = event.anchor
        if anchor is None:
            return self._plain_node(kind, event, depth)
        self._anchors[anchor] = None
        before = self._nodes
        value = self._plain_node(kind, event, depth)
        self._anchors[anchor] = (value, self._nodes - before + 1)
        return value

    def _plain_node(self, kind: type, event: Any, depth: int) -> object:  # noqa: ANN401 - see _span
        if kind is yaml.ScalarEvent:
            return self._scalar(event)
        if depth >= MOST_DEPTH:
            raise self._refuse("DSL011", f"nested deeper than {MOST_DEPTH} levels", event)
        if kind is yaml.MappingStartEvent:
            return self._mapping(event, depth + 1)
        return self._sequence(event, depth + 1)

    def _mapping(self, start: Any, depth: int) -> Map:  # noqa: ANN401 - see _span
        result = Map()
        while True:
            key_event = self._next()
            if key_event.__class__ is yaml.MappingEndEvent:
                break
            key = self._key(key_event)
            event = self._next()
            value = self._node(event, depth)
            if key in result:
                self._findings.add(
                    "DSL013",
                    f"the key `{key}` is written twice in one map",
                    span=_span(key_event.start_mark, key_event.end_mark),
                )
                continue
            result[key] = value
            if isinstance(value, (Map, Seq)) and value.home is None:
                value.home = (result, key)
            result.at[key] = (
                _pack(key_event.start_mark),
                _pack(key_event.end_mark),
                _pack(event.start_mark),
                _pack(event.end_mark),
            )
        result.extent = (_pack(start.start_mark), _pack(key_event.end_mark))
        return result

    def _key(self, event: Any) -> str:  # noqa: ANN401 - see _span
        if event.__class__ is not yaml.ScalarEvent:
            raise self._refuse("DSL012", "a key must be plain text", event)
        self._nodes += 1
        if event.tag is not None:
            self._findings.add(
                "DSL012",
                f"the tag `{event.tag}` is not allowed",
                span=_span(event.start_mark, event.end_mark),
            )
        key: str = event.value
        if key == "<<" and not event.style:
            self._findings.add(
                "DSL012",
                "merge keys (`<<`) are not part of YAML 1.2",
                span=_span(event.start_mark, event.end_mark),
                hint="write the keys out, or alias whole values",
            )
        return key

    def _sequence(self, start: Any, depth: int) -> Seq:  # noqa: ANN401 - see _span
        result = Seq()
        while True:
            event = self._next()
            if event.__class__ is yaml.SequenceEndEvent:
                break
            value = self._node(event, depth)
            if isinstance(value, (Map, Seq)) and value.home is None:
                value.home = (result, len(result))
            result.append(value)
            first, last = _pack(event.start_mark), _pack(event.end_mark)
            result.at.append((first, last, first, last))
        result.extent = (_pack(start.start_mark), _pack(event.end_mark))
        return result

    def _alias(self, event: Any) -> object:  # noqa: ANN401 - see _span
        self._aliases += 1
        if self._aliases > MOST_ALIASES:
            raise self._refuse("DSL011", f"more than {MOST_ALIASES} aliases", event)
        name = event.anchor
        if name not in self._anchors:
            raise self._refuse("DSL001", f"the alias `*{name}` names no anchor", event)
        known = self._anchors[name]
        if known is None:
            raise self._refuse("DSL011", f"the alias `*{name}` contains itself", event)
        value, size = known
        self._nodes += size - 1
        if self._nodes > MOST_NODES:
            message = f"more than {MOST_NODES} nodes after alias expansion"
            raise self._refuse("DSL011", message, event)
        return value

    def _scalar(self, event: Any) -> object:  # noqa: ANN401 - see _span
        text: str = event.value
        if event.style or not event.implicit[0]:
            return text
        if text[:1] in _NUMERIC_START and text:
            return self._number(text, event)
        return _WORDS.get(text, text)

    def _number(self, text: str, event: Any) -> object:  # noqa: ANN401 - see _span
        if _INT.match(text):
            value = int(text) if len(text) <= _INT_DIGITS else _INT_MOST + 1
            return self._whole(value, text, event)
        if _BASED.match(text):
            digits = text[2:]
            short = len(digits) <= _INT_DIGITS + 2
            value = int(digits, 8 if text[1] == "o" else 16) if short else _INT_MOST + 1
            return self._whole(value, text, event)
        if _FLOAT.match(text):
            real = float(text)
            if not isinf(real):
                return real
        elif not _NOT_A_NUMBER.match(text):
            return text
        self._findings.add(
            "DSL012",
            f"`{text[:40]}` has no JSON number",
            span=_span(event.start_mark, event.end_mark),
            hint="quote it if it is text",
        )
        return None

    def _whole(self, value: int, text: str, event: Any) -> int:  # noqa: ANN401 - see _span
        if not _INT_LEAST <= value <= _INT_MOST:
            self._findings.add(
                "DSL012",
                f"the integer `{text[:24]}` does not fit 64 bits",
                span=_span(event.start_mark, event.end_mark),
                hint="quote it if it is text",
            )
            return 0
        return value


def _unshare(box: object, seen: set[int]) -> None:
    """Give every alias a copy of its own, once the whole is known to be within the limits."""
    if isinstance(box, Map):
        entries: list[tuple[Any, object]] = list(box.items())
    elif isinstance(box, Seq):
        entries = list(enumerate(box))
    else:
        return
    for key, value in entries:
        if id(value) not in seen:
            seen.add(id(value))
            _unshare(value, seen)
        elif isinstance(value, (Map, Seq)):
            box[key] = _copy_into(box, key, value)


def copy(value: object) -> object:
    """A fresh copy of a value, so that no two places share one container."""
    if isinstance(value, Map):
        copied = Map()
        for key, item in value.items():
            copied[key] = _copy_into(copied, key, item)
        copied.at = dict(value.at)
        copied.extent = value.extent
        return copied
    if isinstance(value, Seq):
        items = Seq()
        items.extend(_copy_into(items, index, item) for index, item in enumerate(value))
        items.at = list(value.at)
        items.extent = value.extent
        return items
    return value


def _copy_into(box: Map | Seq, key: str | int, value: object) -> object:
    copied = copy(value)
    if isinstance(copied, (Map, Seq)):
        copied.home = (box, key)
    return copied
