"""The fields of a credential: from a file, from standard input, or typed without an echo."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.cli.failures import CommandFailed
from noetl.cli.files import STDIN, read
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.cli.output import Output

# What a file without field names holds.
_SINGLE: Final = {
    "bearer": "token", "secret": "value", "api_key": "key", "postgres": "url", "nats": "url",
    "mcp": "url",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What was said of a credential; a document may name it, too."""

    type: str
    data: dict[str, Any] | None = None
    source: dict[str, Any] | None = None
    """Where the server reads the fields from."""
    name: str | None = None
    description: str = ""

    def __repr__(self) -> str:
        """Show the names of the fields, never a value."""
        return f"Filled({self.type!r}, fields={sorted(self.data or ())!r})"


def filled(out: Output, kind: str | None, file: str | None, data: str | None) -> Filled:
    """The fields from the one place that was named, else from whoever sits at the terminal."""
    if file is not None and data is not None:
        message = "`--from-file` and `--data` are two places"
        raise CommandFailed("usage", message, hint="leave one of them out")
    if data is not None:
        out.note("warning: the process list and the shell's history show --data; use --from-file")
        return _read(data, kind, "--data")
    if file is not None:
        text = read(file).data.decode("utf-8", "replace")
        return _read(text, kind, f"--from-file {file}")
    if sys.stdin is None or not sys.stdin.isatty() or not out.may_ask:
        message = "there is nobody to ask for the fields"
        raise CommandFailed("usage", message, hint=f"add `--from-file FILE` (`{STDIN}`: stdin)")
    return Filled(type=_type(kind), data=_typed(_type(kind)))


def _type(kind: str | None) -> str:
    from noetl.dsl.documents.credential_types import TYPES

    if kind is None:
        raise CommandFailed("usage", "the type is missing", hint=f"--type {'|'.join(TYPES)}")
    if kind not in TYPES:
        message = f"there is no type `{kind}`"
        raise CommandFailed("usage", message, hint=nearest(kind, tuple(TYPES)))
    return kind


def _read(text: str, kind: str | None, place: str) -> Filled:
    found = _map(text, place)
    if found is None:
        name = _SINGLE.get(_type(kind))
        if name is None:
            message = f"`{place}` is not a map of fields"
            raise CommandFailed("usage", message, hint='write it like {"user": "ada"}')
        return Filled(type=_type(kind), data={name: text.strip("\r\n")})
    if found.get("kind") == "Credential":
        return _of_document(text, kind, place)
    own = found.pop("type", None)
    if isinstance(found.get("data"), dict) and set(found) == {"data"}:
        found = found["data"]
    return Filled(type=_type(kind or own), data=found)


def _map(text: str, place: str) -> dict[str, Any] | None:
    """A map of JSON or YAML; none for a text that is neither."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        from noetl.dsl.yaml import load

        document = load(text)
        if document.findings.has_errors and ":" in text.partition("\n")[0]:
            first = document.findings.sorted()[0]
            where = f"line {first.span.line}, column {first.span.column}"
            message = f"`{place}` cannot be read ({where})"
            raise CommandFailed("usage", message, hint="write JSON or YAML") from None
        found = None if document.findings.has_errors else _plain(document.root)
    return found if isinstance(found, dict) else None


def _of_document(text: str, kind: str | None, place: str) -> Filled:
    from noetl.dsl.documents.credential import Credential
    from noetl.dsl.parse import parse

    parsed = parse(text)
    model = parsed.model
    if not isinstance(model, Credential):
        first = parsed.errors[0]
        message = f"`{place}`: {first.message} (line {first.span.line})"
        raise CommandFailed("invalid_playbook", message, hint=first.hint)
    spec = model.spec
    if kind not in {None, spec.type}:
        message = f"`--type {kind}`: the document is of type {spec.type}"
        raise CommandFailed("usage", message, hint="leave `--type` out")
    source = _plain(_map(text, place) or {})["spec"].get("from")
    return Filled(
        type=spec.type,
        data=None if spec.data is None else _plain(spec.data),
        source=source,
        name=model.metadata.name,
        description=model.metadata.description or "",
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - the reader's maps know their places; JSON has none
    return json.loads(json.dumps(value))


def _typed(kind: str) -> dict[str, Any]:
    """Ask for every field; an empty answer leaves it out, and a secret is not echoed."""
    import typer

    from noetl.dsl.documents.credential_types import PLAIN, TYPES
    from noetl.dsl.shape import Fields

    made: dict[str, Any] = {}
    fields: Mapping[str, Any] = Fields.of(TYPES[kind]).keys
    for field in fields.values():
        answer: str = typer.prompt(
            field.name, default="", show_default=False, hide_input=field.name not in PLAIN, err=True
        )
        if answer:
            made[field.name] = answer
    if not made:
        raise CommandFailed("usage", "no field was given", hint="nothing was kept")
    return made
