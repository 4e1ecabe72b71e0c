"""Rewrites the forms of earlier releases in the author's own text; comments stay.

A part that is shared (an anchor and its aliases) changes once, where it is defined, so what stands
below a root key `x-*` may change although nothing reads it there. Where the uses would then differ,
each gets a copy of its own.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import Counter
from collections.abc import Iterator, MutableMapping, MutableSequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import SequenceMatcher
from io import StringIO
from typing import TYPE_CHECKING, Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode
from ruamel.yaml.resolver import BaseResolver
from ruamel.yaml.scalarstring import FoldedScalarString, ScalarString

from noetl.dsl.migrate.patch import Source, read_source, weave
from noetl.dsl.migrate.repair import Repair
from noetl.dsl.older.upgrade import Upgrade
from noetl.dsl.parse import Parsed, parse
from noetl.dsl.yaml import load

if TYPE_CHECKING:
    from noetl.dsl.diagnostics import Diagnostic

Box = MutableMapping[str, Any]

_PLAYBOOK = "Playbook"
_WIDE = 2**20
_REFUSED = frozenset({"DSL039", "DSL080", "DSL081"})
_FIRST = frozenset({"name"})


@dataclass(frozen=True, slots=True)
class Migration:
    """The rewritten text, what was changed, and what the language still says about it."""

    text: str
    changes: tuple[str, ...]
    remaining: tuple[Diagnostic, ...]


def migrate(text: str) -> Migration:
    """Rewrite every older form that has one equal; whatever has none is reported as remaining."""
    before = parse(text)
    if not before.kind or load(text).findings.has_errors:
        return Migration(text, (), before.diagnostics)
    source = read_source(text)
    rewritten, changes = _rewrite(source, before.kind, keeps_aliases=True)
    if not changes:
        return Migration(text, (), before.diagnostics)
    after = parse(rewritten)
    if before.model is not None and _meaning(before) != _meaning(after):
        rewritten, changes = _rewrite(source, before.kind, keeps_aliases=False)
        after = parse(rewritten)
    if "\r\n" in text:
        rewritten = rewritten.replace("\n", "\r\n")
    return Migration(rewritten, changes, after.diagnostics)


def _meaning(parsed: Parsed) -> object:
    """What a document says; keys of the author's own (`x-*`) may hold shared parts."""
    return parsed.model and dataclasses.replace(parsed.model, extra={})


def _rewrite(source: Source, kind: str, *, keeps_aliases: bool) -> tuple[str, tuple[str, ...]]:
    yaml = _round_trip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)
            root = yaml.load(source.bare)
    except YAMLError:
        return "", ()
    yaml.map_indent, yaml.sequence_indent, yaml.sequence_dash_offset = _indents(root)
    base = _dump(yaml, root)
    if load(base).root != load(source.bare).root:
        return "", ()  # the two readers of YAML disagree; the author's text is the truth
    if not keeps_aliases:
        _unshare(root, set())
    changes: list[tuple[int, str]] = []

    def report(code: str, box: Box, name: str, message: str, hint: str) -> None:
        if code not in _REFUSED:
            line = source.rows[row_of(box, name)].line
            changes.append((line, f"{message}: {hint}" if hint else message))

    editor = RoundTripEditor()
    upgrade = Upgrade(editor, report, keeps_refused=True)
    if kind == _PLAYBOOK:
        Repair(editor, report).playbook(root)
        upgrade.playbook(root, source.bare)
    elif isinstance(metadata := root.get("metadata"), MutableMapping):
        upgrade.metadata(metadata)
    if not changes:
        return "", ()
    told = tuple(f"line {line}: {sentence}" for line, sentence in sorted(changes))
    return weave(source, base, _dump(yaml, root)), tuple(dict.fromkeys(told))


# ---------------------------------------------------------------------------- round trip


class _CoreTypes(BaseResolver):
    """Reads plain scalars as noetl.dsl.yaml does: YAML 1.2 core, and every key is text."""

    processing_version = (1, 2)

    def __init__(self, version: object, loader: object) -> None:
        del version
        super().__init__(loader)
        self._at_key = False

    def descend_resolver(self, current_node: object, current_index: object) -> None:
        """Note whether the next scalar is a key."""
        self._at_key = isinstance(current_node, MappingNode) and current_index is None

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:  # noqa: ANN401 - the library is not typed
        """Tell the type of a scalar by its text."""
        if self._at_key and kind is ScalarNode:
            return self.DEFAULT_SCALAR_TAG
        return super().resolve(kind, value, implicit)


for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)\Z", ("~", "n", "N", "")),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", "-+.0123456789"),
):
    _CoreTypes.add_implicit_resolver_base(
        f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first)
    )


class _Constructor(RoundTripConstructor):
    """Builds plain booleans also where they have an anchor, so that they are booleans."""


_Constructor.add_constructor(
    "tag:yaml.org,2002:bool", lambda _, node: str(node.value).lower() == "true"
)


def _round_trip() -> Any:  # noqa: ANN401 - the library is not typed
    yaml = YAML(typ="rt")
    yaml.Resolver = _CoreTypes
    yaml.Constructor = _Constructor
    yaml.preserve_quotes = True
    yaml.width = _WIDE
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    return yaml


def _dump(yaml: Any, root: Any) -> str:  # noqa: ANN401 - the library is not typed
    out = StringIO()
    yaml.dump(root, out)
    return out.getvalue()


def _indents(root: object) -> tuple[int, int, int]:
    """How the author indents maps and lists: the most usual way of the document."""
    maps: Counter[int] = Counter()
    lists: Counter[tuple[int, int]] = Counter()
    for box, value in _blocks(root):
        if isinstance(value, CommentedMap):
            maps[_column(value) - _column(box)] += 1
        elif inner := [_column(item) for item in value if isinstance(item, CommentedMap)]:
            dash = inner[0] - 2 if value.yaml_anchor() else value.lc.col
            lists[inner[0] - _column(box), dash - _column(box)] += 1
    sequence, offset = lists.most_common(1)[0][0] if lists else (4, 2)
    return maps.most_common(1)[0][0] if maps else 2, sequence, offset


def _column(box: Any) -> int:  # noqa: ANN401 - the library is not typed
    """Where the keys of a map begin; its own mark may be that of its anchor."""
    column: int = box.lc.key(next(iter(box)))[1] if box else box.lc.col
    return column


def _blocks(node: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any YAML value
    """Every map and list in block style, with the map that holds it."""
    if isinstance(node, CommentedMap):
        for value in node.values():
            if isinstance(value, (CommentedMap, CommentedSeq)) and not value.fa.flow_style():
                yield node, value
                yield from _blocks(value)
    elif isinstance(node, CommentedSeq):
        for value in node:
            yield from _blocks(value)


def _unshare(node: Any, seen: set[int]) -> Any:  # noqa: ANN401 - any YAML value
    """Give every alias a copy of its own, so that one place can change without the others."""
    if not isinstance(node, (CommentedMap, CommentedSeq)):
        return node
    if id(node) in seen:
        node = deepcopy(node)
        node.yaml_set_anchor(None)
    seen.add(id(node))
    for key, value in list(node.items() if isinstance(node, CommentedMap) else enumerate(node)):
        node[key] = _unshare(value, seen)
    return node


class RoundTripEditor:
    """Changes a tree that is written back in the author's style."""

    def __init__(self) -> None:
        self._shared: dict[int, tuple[object, str]] = {}

    def rename(self, box: Box, old: str, new: str) -> None:
        """Give a key another name; its place in the map is kept."""
        items = list(box.items())
        row = row_of(box, old)
        box.clear()
        for name, value in items:
            box[new if name == old else name] = value
        _set_row(box, new, row)

    def move(self, box: Box, name: str, target: Box, new: str) -> None:
        """Take a key out of one map and put it into another."""
        self.put(target, new, box[name], (box, name))
        del box[name]

    def put(
        self,
        target: Box,
        name: str,
        value: Any,  # noqa: ANN401 - any YAML value
        like: tuple[Any, Any],
        *,
        of_key: bool = False,
    ) -> None:
        """Write a key that stands for the value at `like`; a name comes first."""
        del of_key
        row = row_of(*like)
        if name in _FIRST and name not in target:
            target.insert(0, name, value)  # type: ignore[attr-defined] # a CommentedMap
        else:
            target[name] = value
        _set_row(target, name, row)

    def replace(self, box: Any, name: Any, value: Any) -> None:  # noqa: ANN401 - any YAML value
        """Change a value in place; a text keeps its quotes."""
        row = row_of(box, name)
        box[name] = self._styled(box[name], value) if isinstance(value, str) else value
        _set_row(box, name, row)

    def _styled(self, old: object, new: str) -> str:
        """A text in the style of the old one; where that was shared, the new one is too."""
        _, made = self._shared.get(id(old), (None, ""))
        if made != new:
            made = _in_style_of(old, new)
            self._shared[id(old)] = (old, made)
        return made

    def drop(self, box: Box, name: str) -> None:
        """Remove a key."""
        del box[name]

    def map(self) -> Any:  # noqa: ANN401 - the library is not typed
        """A new, empty map."""
        return CommentedMap()

    def seq(self) -> Any:  # noqa: ANN401 - the library is not typed
        """A new, empty list."""
        return CommentedSeq()

    def append(self, items: MutableSequence[Any], value: Any, like: tuple[Any, Any]) -> None:  # noqa: ANN401 - any YAML value
        """Add an item that stands for the value at `like`."""
        self.insert(items, len(items), value, like)

    def insert(
        self,
        items: MutableSequence[Any],
        index: int,
        value: Any,  # noqa: ANN401 - any YAML value
        like: tuple[Any, Any],
    ) -> None:
        """Put an item that stands for the value at `like` before another."""
        row = row_of(*like)
        items.insert(index, value)
        _set_row(items, index, row)


def row_of(box: Any, name: Any) -> int:  # noqa: ANN401 - any YAML container
    """The line of a key or an item, counted from 0 in the text that was read."""
    known = box.lc.data or {}
    row: int = known[name][0] if name in known else box.lc.line or 0
    return row


def _set_row(box: Any, name: Any, row: int) -> None:  # noqa: ANN401 - any YAML container
    box.lc.add_kv_line_col(name, [row, 0, row, 0])


def _in_style_of(old: object, new: str) -> str:
    """A text in the style of the one that it replaces: quotes, block, folds, anchor."""
    if not isinstance(old, ScalarString):
        return new
    made: Any = type(old)(new, anchor=old.anchor.value if old.yaml_anchor() else None)
    if isinstance(old, FoldedScalarString):
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        made.fold_pos = [
            fold - block.a + block.b
            for fold in getattr(old, "fold_pos", ())
            for block in blocks
            if block.a <= fold < block.a + block.size
        ]
    return cast("str", made)
