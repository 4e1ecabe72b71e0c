"""The form of a playbook: fields from `inputs`, from `workload` and from `# ui:` comments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl.dsl.diagnostics import Span
from noetl.dsl.playbook.document import Playbook
from noetl.dsl.shape.reader import value_at
from noetl.dsl.yaml import ROOT, Map, Place, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.parse import Parsed
    from noetl.dsl.playbook.inputs import InputField

DIRECTIVES = ("secret", "hidden", "enum", "credential", "description", "title")
_DIRECTIVE = re.compile(r"(?:^|(?<=\s))ui:([\w-]*)")
MOST_LINE = 10_000
_LIST = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a run form."""

    name: str
    kind: str
    default: Any = None
    required: bool = False
    title: str | None = None
    description: str | None = None
    secret: bool = False
    credential_glob: str | None = None
    options: tuple[Any, ...] = ()
    children: tuple[FormField, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The wire form of dsl.md 10."""
        return {
            "name": self.name,
            "kind": self.kind,
            "default": self.default,
            "required": self.required,
            "title": self.title,
            "description": self.description,
            "secret": self.secret,
            "credential_glob": self.credential_glob,
            "options": list(self.options),
            "children": [child.as_json() for child in self.children],
        }


def ui_schema(parsed: Parsed, *, version: int, generated_at: str) -> dict[str, Any]:
    """The form of a document; one that no longer parses has no fields."""
    playbook = parsed.model if isinstance(parsed.model, Playbook) else None
    metadata = playbook.metadata if playbook else None
    return {
        "path": playbook.path if playbook else "",
        "version": version,
        "kind": parsed.kind,
        "title": metadata.name if metadata else "",
        "description_markdown": (metadata.description or "") if metadata else "",
        "exposed_in_ui": metadata.exposed_in_ui if metadata else False,
        "fields": [item.as_json() for item in fields_of(playbook, parsed)] if playbook else [],
        "generated_at": generated_at,
    }


def fields_of(playbook: Playbook, parsed: Parsed) -> tuple[FormField, ...]:
    """The fields, in the order the author gave or wrote."""
    lines = _readable(parsed.document.lines)
    found: list[tuple[int, FormField]] = []
    for name, item in playbook.inputs.items():
        default = item.default if item.has_default else playbook.workload.get(name)
        found.append((item.order or 0, _of_input(name, item, default)))
    for name, value in playbook.workload.items():
        hints = directives(lines, Place(playbook.workload, name, None))
        if name not in playbook.inputs and "hidden" not in hints:
            found.append((0, _of_value(name, value, hints, lines)))
    return tuple(field for _, field in sorted(found, key=lambda entry: entry[0]))


def _of_input(name: str, item: InputField, default: object) -> FormField:
    kind = "enum" if item.enum else ("string" if item.type == "any" else item.type)
    return FormField(
        name=name,
        kind=kind,
        default=None if item.secret else default,
        required=item.required,
        title=item.title,
        description=item.description,
        secret=item.secret,
        credential_glob=item.credential,
        options=item.enum,
        children=tuple(_of_input(key, child, child.default) for key, child in
                       item.properties.items()),
    )  # fmt: skip


def _of_value(name: str, value: object, hints: Mapping[str, str], lines: list[str]) -> FormField:
    options = _options(hints["enum"]) if "enum" in hints else ()
    secret = "secret" in hints
    children = _children(value, lines, secret=secret) if isinstance(value, dict) else ()
    return FormField(
        name=name,
        kind="enum" if options else kind_of(value),
        default=None if secret else _shown(value, children),
        title=hints.get("title"),
        description=hints.get("description"),
        secret=secret,
        credential_glob=hints.get("credential"),
        options=options,
        children=children,
    )


def _children(box: dict[str, Any], lines: list[str], *, secret: bool) -> tuple[FormField, ...]:
    """The fields of a map; what is inside a secret is one."""
    found: list[FormField] = []
    for name, value in box.items():
        place = Place(box, name, None)
        hints = directives(lines, place) if _starts_line(place, lines) else {}
        if secret:
            hints = {**hints, "secret": ""}
        if "hidden" not in hints:
            found.append(_of_value(name, value, hints, lines))
    return tuple(found)


def _starts_line(place: Place, lines: list[str]) -> bool:
    """Whether the comment of the line is about this key: in `a: {b: 1}  # ...` it is about `a`."""
    key = place.key_span
    return not lines[key.line - 1][: key.column - 1].strip()


def _shown(value: object, children: tuple[FormField, ...]) -> object:
    """A default without what is secret or hidden inside it; a run adds that again."""
    if not isinstance(value, dict):
        return value
    return {child.name: child.default for child in children if not child.secret}


def kind_of(value: object) -> str:
    """The kind of field that fits a default value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def _options(text: str) -> tuple[Any, ...]:
    listed = _LIST.match(text)
    root = load(listed[0] if listed else text).root
    return tuple(root) if isinstance(root, list) else (text,)


@dataclass(frozen=True, slots=True)
class UnknownDirective:
    """A directive that does not exist, and where it was written."""

    name: str
    span: Span
    pointer: str


def unknown_directives(parsed: Parsed) -> Iterator[UnknownDirective]:
    """The directives of workload keys that do nothing."""
    root = parsed.document.root
    if isinstance(root, Map) and isinstance(box := root.get("workload"), Map):
        yield from _unknown(box, ROOT.child(root, "workload"), _readable(parsed.document.lines))


def _unknown(box: Map, at: Place, lines: list[str]) -> Iterator[UnknownDirective]:
    for name, value in box.items():
        place = at.child(box, name)
        line = place.key_span.line
        start, comment = _comment(lines, place)
        for found in _DIRECTIVE.finditer(comment):
            if found[1] not in DIRECTIVES:
                span = Span(line, start + found.start() + 1, line, start + found.end() + 1)
                yield UnknownDirective(found[1], span, place.pointer)
        if isinstance(value, Map):
            yield from _unknown(value, place, lines)


def _readable(lines: list[str]) -> list[str]:
    """The lines, without those that are too long to hold a hint for one key."""
    return [line if len(line) <= MOST_LINE else "" for line in lines]


def directives(lines: list[str], place: Place) -> dict[str, str]:
    """The `# ui:` directives on the line of a key; each goes on to the next."""
    _, comment = _comment(lines, place)
    marks = list(_DIRECTIVE.finditer(comment))
    ends = [*(mark.start() for mark in marks[1:]), len(comment)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=False):
        name, rest = mark[1], comment[mark.end() : end].strip()
        if name in DIRECTIVES:
            found[name] = rest[1:].strip() if rest.startswith("=") else ""
    return found


def _comment(lines: list[str], place: Place) -> tuple[int, str]:
    """The comment on the line of a key, and how many characters stand before it."""
    span, key = place.span, place.key_span
    value = value_at(place)
    on_line = not isinstance(value, (Mapping, list)) and span.end_line == key.line
    start = span.end_column - 1 if on_line else key.end_column - 1
    line = lines[key.line - 1] if key.line <= len(lines) else ""
    before, mark, comment = line[start:].partition("#")
    return start + len(before) + len(mark), comment
