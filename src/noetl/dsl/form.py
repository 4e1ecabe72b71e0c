"""The form of a playbook: fields from `inputs`, from `workload` and from `# ui:` comments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetl.dsl.playbook.document import Playbook
from noetl.dsl.shape.reader import value_at
from noetl.dsl.yaml import Place, load

if TYPE_CHECKING:
    from noetl.dsl.parse import Parsed
    from noetl.dsl.playbook.inputs import InputField

_DIRECTIVE = re.compile(
    r"ui:(secret|hidden|enum|credential|description|title)(?:=(\[[^\]]*\]|.*?))?(?=\s+ui:|\s*$)"
)


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
    lines = parsed.document.lines
    found: list[tuple[int, FormField]] = []
    for name, item in playbook.inputs.items():
        default = item.default if item.has_default else playbook.workload.get(name)
        found.append((item.order or 0, _of_input(name, item, default)))
    for name, value in playbook.workload.items():
        hints = directives(lines, Place(playbook.workload, name, None))
        if name not in playbook.inputs and "hidden" not in hints:
            found.append((0, _of_value(name, value, hints)))
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


def _of_value(name: str, value: object, hints: Mapping[str, str]) -> FormField:
    options = _options(hints["enum"]) if "enum" in hints else ()
    secret = "secret" in hints
    return FormField(
        name=name,
        kind="enum" if options else kind_of(value),
        default=None if secret else value,
        title=hints.get("title"),
        description=hints.get("description"),
        secret=secret,
        credential_glob=hints.get("credential"),
        options=options,
        children=tuple(_of_value(key, item, {}) for key, item in value.items())
        if isinstance(value, dict)
        else (),
    )


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
    root = load(text).root
    return tuple(root) if isinstance(root, list) else (text,)


def directives(lines: list[str], place: Place) -> dict[str, str]:
    """The `# ui:` directives on the line of a key."""
    span, key = place.span, place.key_span
    value = value_at(place)
    on_line = not isinstance(value, (Mapping, list)) and span.end_line == key.line
    start = span.end_column - 1 if on_line else key.end_column - 1
    line = lines[key.line - 1] if key.line <= len(lines) else ""
    _, mark, comment = line[start:].partition("#")
    if not mark:
        return {}
    return {found[1]: (found[2] or "").strip() for found in _DIRECTIVE.finditer(comment)}
